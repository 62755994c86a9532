"""The JSON views of queues, which the command line and the API share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.placement import Place
from holdfast.insight.views import fields
from holdfast.insight.views.view import Time, View, example
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import OF_QUEUES, Switch, SwitchSetting


class Off(View):
    """The person who has paused a queue, and the reason."""

    actor: fields.Actor
    origin: fields.Origin
    reason: str
    at: Time


class QueueView(View):
    queue: fields.QueueName
    places: Annotated[dict[Place, int], example(example_places())]
    oldestAgeSeconds: Annotated[float, example(12.5)]
    backlog: Annotated[int, example(3, "The number of waiting tasks")]
    threshold: Annotated[int | None, example(10_000, "A larger backlog raises an alert")]
    intakePaused: Annotated[Off | None, example(example_pause())]
    claimingPaused: Annotated[Off | None, example(None)]


class QueueList(View):
    queues: list[QueueView]


class Valve(StrEnum):
    INTAKE = "intake"
    CLAIMING = "claiming"


class SwitchState(View):
    what: Valve
    paused: Annotated[bool, example(True)]
    changed: fields.Changed


class _Known(View):
    queue: fields.QueueName
    known: Annotated[bool, example(True, "False if no task, type or worker has this queue")]


class Turned(SwitchState, _Known):
    """A switch of a queue after a command, as the API answers it."""


class SwitchesTurned(_Known):
    switches: list[SwitchState]


def example_places() -> dict[Place, int]:
    return dict.fromkeys(Place, 0) | {Place.READY: 3, Place.LEASED: 1, Place.SETTLED: 9}


def example_pause() -> Off:
    return {
        "actor": "api:ann",
        "origin": "10.0.0.7",
        "reason": "the database is down",
        "at": iso(fields.EXAMPLE_AT),
    }


def queue_views(
    snapshot: Snapshot, off: Iterable[SwitchSetting], limits: Mapping[str, int], hide: Redactor
) -> list[QueueView]:
    """Return every queue by its name; ``off`` is as of now, the snapshot may be older."""
    of_queues = [one for one in off if one.switch in OF_QUEUES]
    names = sorted({*snapshot.queues, *(one.name for one in of_queues)})
    return [_view(snapshot, of_queues, name, limits, hide) for name in names]


def _view(
    snapshot: Snapshot,
    off: Iterable[SwitchSetting],
    queue: str,
    limits: Mapping[str, int],
    hide: Redactor,
) -> QueueView:
    places = snapshot.stats.by_queue.get(queue, {})
    paused = {one.switch: one for one in off if one.name == queue}
    return {
        "queue": queue,
        "places": {place: places.get(place, 0) for place in Place},
        "oldestAgeSeconds": snapshot.oldest_seconds(queue),
        "backlog": snapshot.depth(queue),
        "threshold": limits.get(queue, limits.get("*")),
        "intakePaused": _pause(paused.get(Switch.INTAKE), hide),
        "claimingPaused": _pause(paused.get(Switch.CLAIMING), hide),
    }


def _pause(setting: SwitchSetting | None, hide: Redactor) -> Off | None:
    if setting is None:
        return None
    return {
        "actor": setting.by.actor,
        "origin": setting.by.origin,
        "reason": hide.text(setting.by.reason),
        "at": iso(setting.at),
    }
