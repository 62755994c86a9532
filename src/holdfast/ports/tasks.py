"""The task part of a store: everything that writes tasks.

A store is given whole transitions and compares before it swaps. It decides only what must be
decided over sets: which task to hand out, whose lease has lapsed, what is due, and which task is
first in a tenant's line. `holdfast.testing.contract` is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.task import Progress, StageRecord, Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition

# A worker is shown and judged as live while it was seen within so many leases. A worker beats at
# least three times in a lease: past one lease it holds none.
LIVE_LEASES = 1.2


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task handed out, with all that its holder needs to run it."""

    task: Task  # with its lease
    payload: bytes
    checkpoint: bytes | None  # as stored: to read it is the holder's risk
    data: bytes | None
    stages: tuple[StageRecord, ...]
    moved_on: bool  # newer work has run for its tenant since it last ran
    checkpoint_version: int = 0  # the one that the store compares with


class OutageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An error group whose stages or undos meet outages."""

    fingerprint: str
    error: str  # the exception's type
    stage: str
    since: float  # the first outage of the row that has lasted longest


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker says that it lives, and what it can do."""

    worker: str
    host: str
    pid: int
    types: tuple[str, ...]
    queues: tuple[str, ...]
    slots: int
    running: int
    started_at: float
    triggers: tuple[str, ...] = ()  # those that its code declares
    schedules: bool = True  # it fires triggers
    outages: tuple[OutageGroup, ...] = ()  # that it met lately


class Renewal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    task_id: str
    lease_id: str
    progress: Progress | None = None


class Due(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    next_seconds: float | None  # until the next is due; None: nothing waits for a time


class TaskStore(Protocol):
    """Each element of a batch is written whole or not at all, and is durable when answered."""

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        """Accept new tasks. A repeated id or key is answered as the first submit was."""

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        """Hand out what is ready. A repeat of a worker's last request hands out the same again."""

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        """Write transitions. The tasks that follow from one are inserted with it, whatever the
        depth of their queue: what has happened cannot be refused."""

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        """Extend leases; False: that lease is lost. Callable from a thread with its own loop."""

    async def leave(self, worker: str) -> None:
        """Forget a worker that stops for good."""

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        """Take the tasks of lapsed leases back into their queues and return how many they were.
        `crashes.is_counted` decides which of them count as a crash; without ``count_crashes``
        none does."""

    async def promote(self, *, limit: int) -> Due:
        """Move what is due into its queue."""
