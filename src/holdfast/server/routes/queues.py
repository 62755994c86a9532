"""Queues: how full they are, and whether they take work in and give it out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from fastapi import Body, Path
from pydantic import Field

from holdfast.app import shapes
from holdfast.domain import names
from holdfast.domain.audit import Audit
from holdfast.domain.task import Place
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import Switch, Thrown
from holdfast.server import schemas as sc
from holdfast.server.access import Caller, CallerOf
from holdfast.server.routing import Routes, needs
from holdfast.server.service import Service, ServiceOf
from holdfast.server.tokens import Role

router = Routes("queues")


class Off(sc.Answer):
    """Who has paused it."""

    actor: str
    origin: str
    reason: str
    at: sc.Time


class QueueView(sc.Answer):
    queue: str
    places: dict[Place, int]
    oldest_age_seconds: float
    backlog: int = Field(description="How many wait")
    threshold: int | None = Field(description="Above it there is an alert")
    intake_paused: Off | None
    claiming_paused: Off | None


class QueueList(sc.Answer):
    queues: list[QueueView]


@router.get("/internal/queues", response_model=QueueList, **needs(Role.VIEWER, everywhere=True))
async def list_queues(service: ServiceOf) -> dict[str, Any]:
    """How full each is, and who has paused it; the counts are at most two seconds old."""
    found, off = await service.monitor.snapshot(), await service.app.store.switches()
    queues = {*found.queues, *(one.name for one in off if one.switch is not Switch.DRAIN)}
    return {"queues": [_shape(service, found, off, name) for name in sorted(queues)]}


def _shape(service: Service, found: Snapshot, off: Any, queue: str) -> dict[str, Any]:
    places = found.stats.by_queue.get(queue, {})
    limits = service.settings.backlog
    thrown = {one.switch: one for one in off if one.name == queue}
    return {
        "queue": queue,
        "places": {place: places.get(place, 0) for place in Place},
        "oldestAgeSeconds": found.oldest_seconds(queue),
        "backlog": found.depth(queue),
        "threshold": limits.get(queue, limits.get("*")),
        "intakePaused": _off(service, thrown.get(Switch.INTAKE)),
        "claimingPaused": _off(service, thrown.get(Switch.CLAIMING)),
    }


def _off(service: Service, thrown: Thrown | None) -> dict[str, Any] | None:
    if thrown is None:
        return None
    return {
        "actor": thrown.by.actor,
        "origin": thrown.by.origin,
        "reason": service.app.redactor.text(thrown.by.reason),
        "at": shapes.at(thrown.at),
    }


class Valve(StrEnum):
    INTAKE = "intake"
    CLAIMING = "claiming"


class Turning(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"


class Turn(sc.Sent):
    model_config = sc.example(reason="the database is down")

    reason: sc.Reason = Field(default="", examples=["the database is down"])


class Turned(sc.Answer):
    queue: str
    what: Valve
    paused: bool
    changed: bool = Field(description="False: it was so already")


@router.post(
    "/internal/queues/{queue}/{what}/{turning}",
    response_model=Turned,
    **needs(Role.OPERATOR, everywhere=True),
)
async def turn_queue(
    *,
    queue: Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,99}$")],
    what: Valve,
    turning: Turning,
    service: ServiceOf,
    caller: CallerOf,
    turn: Annotated[Turn | None, Body()] = None,
) -> dict[str, Any]:
    """Over all machines, at once. With the intake paused, submits are answered with 503 and
    Retry-After; with claiming paused, what waits stays where it is, and what runs goes on."""
    names.check("queue", queue)
    pause, reason = turning is Turning.PAUSE, turn.reason if turn else ""
    changed = await throw(
        service, caller, Switch(what), queue, on=not pause, about=f"queue:{queue}", reason=reason
    )
    return {"queue": queue, "what": what, "paused": pause, "changed": changed}


async def throw(
    service: Service,
    caller: Caller,
    switch: Switch,
    name: str,
    *,
    on: bool,
    about: str,
    reason: str,
) -> bool:
    entry = Audit(
        task_id=about,
        command=f"{'resume' if on else 'pause'} {switch}",
        by=caller.by(names.check_text("reason", reason)),
        at=service.app.clock.now(),
        before="",
        after="on" if on else "off",
    )
    return await service.app.store.throw(switch, name, on=on, audit=entry)
