"""The routes of queues: how full they are, and whether they take work in and give it out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Body, Path

from holdfast.engine.operations.queues import named_here
from holdfast.insight.views.queues import QueueList, SwitchState, Turned, Valve, queue_views
from holdfast.ports import Switch
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("queues")


@router.get("/internal/queues", **needs(Role.VIEWER, everywhere=True))
async def list_queues(service: ServiceOf) -> QueueList:
    """List the queues: how full they are, and who paused them. Counts are up to two seconds old."""
    snapshot, off = await service.monitor.snapshot(), await service.app.store.admin.switches()
    limits, hide = service.settings.backlog, service.app.redactor
    return {"queues": queue_views(snapshot, off, limits, hide)}


class Turning(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"


class Turn(sc.Reasoned):
    model_config = sc.body_example(reason="the database is down")

    force: sc.Flag = sc.flag(
        "True if `pause` may name a queue that no task, type or live worker has"
    )


@router.post("/internal/queues/{queue}/{what}/{turning}", **needs(Role.OPERATOR, everywhere=True))
async def turn_queue(
    *,
    queue: Annotated[sc.QueueName, Path(description="The name of a queue")],
    what: Annotated[
        Valve, Path(description="The intake of the queue, or the claiming of its tasks")
    ],
    turning: Annotated[Turning, Path(description="Whether to pause or to resume")],
    service: ServiceOf,
    caller: CallerOf,
    turn: Annotated[Turn | None, Body()] = None,
) -> Turned:
    """Pause or resume a queue on all machines at once. While the intake is paused, submits are
    answered with 503 and Retry-After. While claiming is paused, waiting tasks stay where they are,
    and running tasks continue. A queue that no task, type or live worker uses is paused with
    `force` only."""
    pause, turn, switch = turning is Turning.PAUSE, turn or Turn(), Switch(what)
    known = {*(await service.monitor.snapshot()).queues, *named_here(service.app)}
    changed = await service.acting_as(caller).queues.turn(
        queue, [switch], on=not pause, reason=turn.reason, force=turn.force, known=known
    )
    state = SwitchState(what=what, paused=pause, changed=changed[switch])
    return {"queue": queue, **state, "known": queue in known}
