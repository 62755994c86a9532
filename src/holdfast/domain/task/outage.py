"""Outages: what a stage needs does not answer, which is no failure of its task.

A row of outages is counted apart from failures. Any other outcome of the stage ends the row.
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
JITTER = 0.2  # of each wait, so that all that waits for one database does not come back at once
LIMIT_SECONDS = 86_400.0  # for a row, unless set otherwise


NONE: dict[str, Any] = {"outages": 0, "outage_since": None}  # in the record


class OutageRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Outages of one stage, or of its undo, one after the other."""

    count: int
    since: float  # the first of them

    def lasts_too_long(self, limit_seconds: float, *, now: float) -> bool:
        return now - self.since >= limit_seconds


def are_outages(errors: Sequence[BaseException]) -> bool:
    """Return whether each of these errors is an outage, by its type: those of a group, or one
    alone."""
    return all(issubclass(type(error), OUTAGES) for error in errors)


def row_with(task: Task, failure: Failure, *, now: float) -> OutageRow:
    """The row of the task after this outage: a new one unless its last outcome was one of it.

    The failure is compared too: a process of an older release does not reset the counts.
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
    """The failure as its event has it. In a row, which may be long, only the first one has its
    traceback there; the record has that of the last."""
    return replace(failure, traceback="") if counted["outages"] > 1 else failure


def delay_seconds(count: int, chance: float) -> float:
    """Return how long to wait after the ``count``-th outage in a row; ``chance`` in [0, 1)."""
    return stretch(doubled_seconds(PAUSE_SECONDS, count - 1), JITTER, chance)
