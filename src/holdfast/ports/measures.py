"""Measures: counts and timings, kept in the store so that they outlive every process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task

# The upper bounds of the spans in which durations of stages are counted; the last has none.
BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tasks of a type and queue that went from one status to another, and how long
    they had been in the first. Older counts have no type and queue."""

    before: Status
    after: Status
    count: int
    dwell_seconds: float
    queue: str = ""
    type: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of a stage's calls: their number in each span of BUCKETS, and their sum."""

    type: str
    stage: str
    outcome: str  # as `runtime.meter` names them: "done", "failed", "outage"
    counts: tuple[int, ...]  # one more than BUCKETS, not added up
    total_seconds: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def plus(self, other: Timings) -> Timings:
        """Return the sum of two timings of one stage and outcome."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        total = self.total_seconds + other.total_seconds
        return msgspec.structs.replace(self, counts=counts, total_seconds=total)


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Suspended tasks whose failures have the same cause."""

    fingerprint: str
    count: int
    newest: Task  # the one with the greatest id


class Awaited(StrEnum):
    """The kinds of records that only a live worker moves when their time has come."""

    LEASE = "lease"  # of a task: its end
    TASK = "task"  # that waits for a time
    TRIGGER = "trigger"
    PLAN = "plan"


def late(waits: Mapping[Awaited, float | None]) -> Mapping[Awaited, float]:
    """Return how long each kind is past its time, if it is. ``waits``: the seconds until then."""
    past = {kind: round(-wait, 3) for kind, wait in waits.items() if wait is not None}
    return {kind: seconds for kind, seconds in past.items() if seconds > 0}


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    by_status: Mapping[Status, int]
    by_queue: Mapping[str, Mapping[Place, int]]
    moves: tuple[Moves, ...]
    refused: Mapping[str, int]  # "STATUS command" → how often
    heads: Mapping[str, Task]  # the ready task that is next in each queue
    now: float  # by the store's clock, which judges leases and due times
    checkpoints: int = 0  # of tasks that have not settled
    locks: int = 0  # tenants that are locked
    timings: tuple[Timings, ...] = ()
    late_seconds: Mapping[Awaited, float] = {}  # how long the first of each is past its time

    @property
    def transitions(self) -> tuple[Moves, ...]:
        """Return the moves of all queues and types together."""
        counts: Counter[tuple[Status, Status]] = Counter()
        dwelt: defaultdict[tuple[Status, Status], float] = defaultdict(float)
        for move in self.moves:
            counts[move.before, move.after] += move.count
            dwelt[move.before, move.after] += move.dwell_seconds
        return tuple(
            Moves(before=a, after=b, count=count, dwell_seconds=dwelt[a, b])
            for (a, b), count in counts.items()
        )
