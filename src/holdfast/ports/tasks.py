"""The task part of a store: everything that writes tasks.

A store receives complete transitions, and compares before it writes. It decides only about sets of
tasks: which task a worker claims, whose lease has lapsed, what is due, and which task is first in a
tenant's line. `holdfast.testing.contract` is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.task import Progress, StageRecord, Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition

# A worker counts as live if it was seen within so many lease times. It reports at least three times
# in one lease time, so a worker that was not seen for longer holds no lease.
LIVE_LEASES = 1.2


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claimed task, with all that its holder needs to run it."""

    task: Task  # with its lease
    payload: bytes
    checkpoint: bytes | None  # as stored; the holder decodes it
    data: bytes | None
    stages: tuple[StageRecord, ...]
    moved_on: bool  # newer work has run for its tenant since it last ran
    checkpoint_version: int = 0  # the version that the store compares


class OutageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An error group whose stages or undos meet outages."""

    fingerprint: str
    error: str  # the exception's type
    stage: str
    since: float  # the first outage of the longest row


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a live worker: what it can run, and what it runs."""

    worker: str
    host: str
    pid: int
    types: tuple[str, ...]
    queues: tuple[str, ...]
    slots: int
    running: int
    started_at: float
    triggers: tuple[str, ...] = ()  # declared in its code
    schedules: bool = True  # it fires triggers
    outages: tuple[OutageGroup, ...] = ()  # those that it met lately


class Renewal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    task_id: str
    lease_id: str
    progress: Progress | None = None


class Due(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    next_seconds: float | None  # until the next is due; None: nothing waits for a time


class TaskStore(Protocol):
    """Each element of a batch is written completely or not at all, and is durable when answered."""

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        """Accept new tasks. A repeated id or key gets the answer of the first submit."""

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        """Lease ready tasks to a worker. A repeat of its last request returns the same tasks."""

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        """Write transitions. The follow-up tasks of each are inserted with it, whatever the depth
        of their queue. Where several refusals apply, the answer is the first of Stale,
        NoCheckpoint, MovedOn and Busy."""

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        """Renew leases; False: that lease is lost. A thread with its own loop may call this."""

    async def leave(self, worker: str) -> None:
        """Forget a worker that stops for good."""

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        """Return the tasks of lapsed leases to their queues, and answer how many.
        `crashes.is_counted` decides which of them count as a crash; without ``count_crashes``,
        none does."""

    async def promote(self, *, limit: int) -> Due:
        """Move due tasks into their queues."""
