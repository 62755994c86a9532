"""Queues as JSON, for the command line and the API. The keys are a promise: add, never rename."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.placement import Place
from holdfast.insight.views.tasks import at
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import OF_QUEUES, Switch, Thrown


def queue_shapes(
    found: Snapshot, off: Iterable[Thrown], limits: Mapping[str, int], hide: Redactor
) -> list[dict[str, Any]]:
    """``off``: as of now, the snapshot may be older."""
    of_queues = [one for one in off if one.switch in OF_QUEUES]
    names = sorted({*found.queues, *(one.name for one in of_queues)})
    return [_shape(found, of_queues, name, limits, hide) for name in names]


def _shape(
    found: Snapshot, off: Iterable[Thrown], queue: str, limits: Mapping[str, int], hide: Redactor
) -> dict[str, Any]:
    places = found.stats.by_queue.get(queue, {})
    thrown = {one.switch: one for one in off if one.name == queue}
    return {
        "queue": queue,
        "places": {place: places.get(place, 0) for place in Place},
        "oldestAgeSeconds": found.oldest_seconds(queue),
        "backlog": found.depth(queue),
        "threshold": limits.get(queue, limits.get("*")),
        "intakePaused": _off(thrown.get(Switch.INTAKE), hide),
        "claimingPaused": _off(thrown.get(Switch.CLAIMING), hide),
    }


def _off(thrown: Thrown | None, hide: Redactor) -> dict[str, Any] | None:
    if thrown is None:
        return None
    return {
        "actor": thrown.by.actor,
        "origin": thrown.by.origin,
        "reason": hide.text(thrown.by.reason),
        "at": at(thrown.at),
    }
