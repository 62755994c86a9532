"""Outages: something that a stage needs does not answer, which is no failure of its task.

Outages in a row are counted apart from failures. Any other outcome of the stage ends the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.backoff import doubled_seconds, stretch
from holdfast.domain.errors import SinkUnavailable, StoreUnavailable, Unavailable
from holdfast.domain.task.task import Failure, FailureKind, Task

OUTAGES = (SinkUnavailable, StoreUnavailable, Unavailable)
PAUSE_SECONDS = (1.0, 300.0)  # the first one, and the longest
JITTER = 0.2  # of each wait: the tasks that wait for one database must not return at once
LIMIT_SECONDS = 86_400.0  # of a row, unless set otherwise


NONE: dict[str, Any] = {"outages": 0, "outage_since": None}  # the fields of a record


class OutageRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Outages of one stage, or of its undo, one after the other."""

    count: int
    since: float  # the first of them

    def lasts_too_long(self, limit_seconds: float, *, now: float) -> bool:
        return now - self.since >= limit_seconds


def are_outages(errors: Sequence[BaseException]) -> bool:
    """Return whether each of these errors is an outage, by its type."""
    return all(issubclass(type(error), OUTAGES) for error in errors)


def row_with(task: Task, failure: Failure, *, now: float) -> OutageRow:
    """Return the row of outages with this one: a new row unless the last outcome was an outage.

    The failure is compared, too: a process of an older release does not reset the counts.
    """
    last = task.failure
    goes_on = (
        task.outage_since is not None
        and task.crashes == task.lapses == 0
        and last is not None
        and last.stage == failure.stage
    )
    if goes_on and task.outage_since is not None:
        return OutageRow(count=task.outages + 1, since=task.outage_since)
    return OutageRow(count=1, since=now)


def judge(
    task: Task, failure: Failure, *, limit_seconds: float, now: float
) -> tuple[bool, Failure, dict[str, Any]]:
    """Return whether the row has lasted too long, the failure for the record, and its counts.

    The failure has a kind of its own only where it suspends: a process of an older release cannot
    read a task of this kind.
    """
    row = row_with(task, failure, now=now)
    spent = row.lasts_too_long(limit_seconds, now=now)
    kept = replace(failure, kind=FailureKind.OUTAGE) if spent else failure
    begun = {"interrupted": True}  # no failure says so
    return spent, kept, begun | {"outages": row.count, "outage_since": row.since}


def for_event(failure: Failure, counted: Mapping[str, Any]) -> Failure:
    """Return the failure for its event. A row may be long, so only the event of its first outage
    has a traceback; the record has the traceback of the last one."""
    return replace(failure, traceback="") if counted["outages"] > 1 else failure


def delay_seconds(count: int, chance: float) -> float:
    """Return how long to wait after the ``count``-th outage in a row; ``chance`` in [0, 1)."""
    return stretch(doubled_seconds(PAUSE_SECONDS, count - 1), JITTER, chance)
