"""What the engine asks of a store of tasks, and of a clock.

A store is told whole transitions and compares before it swaps; it decides nothing but what must be
decided over sets: whom to hand out, whose lease has lapsed, what is due, who heads a tenant's line.
`holdfast.testing.contract` is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.domain.audit import Audit, Chain
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.events import Event
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, Progress, StageRecord, Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports.measures import ErrorGroup, Stats, Timings
from holdfast.ports.plans import PlanStore
from holdfast.ports.switches import Switch, Thrown
from holdfast.ports.triggers import TriggerStore

# Whoever shows or judges workers calls one live that was seen within so many leases. One beats at
# least thrice in a lease: past one it holds none.
LIVE_LEASES = 1.2


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch; may jump."""

    def steady(self) -> float:
        """Seconds that never jump and do not stand still while the machine is suspended."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer: ...


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


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    beat: Beat
    seen_seconds_ago: float
    live: bool


class Peek(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a task stands, for those who wait for its end. Answered from the tombstone, too."""

    task_id: str
    status: Status
    result: bytes | None = None
    failure: Failure | None = None
    reason: str | None = None


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    payload: bytes
    result: bytes | None
    data: bytes | None
    checkpoint: bytes | None
    stages: tuple[StageRecord, ...]
    events: tuple[Event, ...]
    progress: Progress | None


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    active: str | None  # the task that runs or rests unsettled, else the head of the line
    locked_by: str | None  # the task that holds the tenant's lock: the one that runs
    fence: int  # the last one given out for this tenant
    waiting: int  # in the line behind the active task


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    statuses: tuple[Status, ...] = ()
    type: str | None = None
    tenant: str | None = None
    plan: str | None = None
    queue: str | None = None
    error: str | None = None  # a failure's fingerprint
    updated_before: float | None = None
    updated_after: float | None = None

    def matches(self, task: Task) -> bool:
        failure = task.failure
        return (
            (not self.statuses or task.status in self.statuses)
            and self.type in (None, task.type)
            and self.tenant in (None, task.tenant)
            and self.plan in (None, task.plan)
            and self.queue in (None, task.queue)
            and (self.error is None or (failure is not None and failure.fingerprint == self.error))
            and (self.updated_before is None or task.updated_at < self.updated_before)
            and (self.updated_after is None or task.updated_at > self.updated_after)
        )


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. A page may be short and still have a next one: a look is bounded."""

    tasks: tuple[Task, ...]
    cursor: str | None


class Due(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    next_seconds: float | None  # until the next is due; None: nothing waits for a time


class Kept(StrEnum):
    """What can be cleaned up by age."""

    TASKS = "tasks"  # settled ones, with all that belongs to them
    TRIGGERS = "triggers"  # that have ended
    PLANS = "plans"  # settled ones
    CHECKPOINTS = "checkpoints"  # of settled tasks
    TOMBSTONES = "tombstones"
    AUDIT = "audit"
    WORKERS = "workers"  # that were not seen any more


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not agree (see `doctor`)."""

    invariant: str  # "I11"
    task_id: str | None
    says: str
    mended: bool


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the store that decides what a crash may cost, looked at when it is opened, and
    when somebody asks."""

    name: str  # "persistence"
    good: bool
    says: str


class Topic(StrEnum):
    READY = "ready"  # something may be there to claim, or be due sooner than was known
    RESTED = "rested"  # a task has settled or been parked
    DUE = "due"  # a trigger or a plan may have to be looked at sooner than was known


class Store(Protocol):
    durable: bool  # as the last look at its settings found it
    url: str  # how to reach it, without secrets

    @property
    def triggers(self) -> TriggerStore: ...

    @property
    def plans(self) -> PlanStore: ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def detach(self) -> None:
        """The loop that calls will not use the store again; the store stays open for others."""

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        """The id for a new task under which the store will find it again by the id alone."""

    def beside(self, name: str, task_id: str) -> str:
        """The id for a new task that is to live where that one does."""

    # Writes. Each element of a batch is written whole or not at all, and durable when answered.

    async def insert(
        self, batch: Sequence[Submission], *, depth_limit: int
    ) -> Sequence[Insertion]: ...

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        """Hand out what is ready. A repeat of a worker's last request hands out the same again."""

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        """With a transition the tasks that follow from it are inserted, whatever the depth of
        their queue: what has happened cannot be refused."""

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        """False: that lease is lost. Callable from a thread with a loop of its own."""

    async def leave(self, worker: str) -> None:
        """The worker stops for good."""

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        """Take the tasks of lapsed leases back into their queues; how many. Which of them count as
        a crash, `crashes.is_counted` says; without ``count_crashes`` none does."""

    async def promote(self, *, limit: int) -> Due:
        """Move what is due into its queue."""

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        """Delete what ended longer ago than that; tasks, triggers and plans keep at least their
        own ``keep_seconds``, unless ``ignore_keep``."""

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        """Mend what does not agree, unless somebody has within that time; what was found."""

    async def audit(self, entry: Audit) -> None:
        """Write down a refusal, or what was done beside the tasks. What is done to a task, a plan
        or a trigger is written with it."""

    async def seal(self, *, limit: int) -> int:
        """Take what was written down into the chain of audits; how many. A store that writes them
        there at once has nothing to do."""

    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        """Throw a switch, or set it back (``on``: what it stands for goes on). False: it stood so
        already; it is written down all the same.

        While a tenant's HOLD is off, ``claim`` passes its task over, wherever it would come from.
        ``until`` ends a hold: from then on it forbids nothing, another may take its place, and to
        set it back answers False. With ``on`` only a hold that ended then is set back; if it is
        another one, or not over by the store's clock, nothing is done or written down.

        While the INTAKE of a queue is off, ``insert`` answers Shut, unless the key is known, and a
        trigger's ``apply`` NoRoom. While its CLAIMING is off, ``claim`` passes it by; switched on
        again, it signals READY. ``leave`` sets the worker's DRAIN back."""

    async def observe(self, batch: Sequence[Timings]) -> None:
        """Add to what was counted before. A repeat counts twice: these are for looking at."""

    # Reads.

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]: ...
    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]: ...
    async def detail(self, task_id: str) -> Detail | None: ...
    async def checkpoint(self, task_id: str) -> Checkpoint | None: ...
    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page: ...
    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]: ...
    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]: ...
    async def stats(self) -> Stats: ...
    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]: ...

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        """The links behind that number, the oldest first."""

    async def switches(self) -> Sequence[Thrown]:
        """Those that are thrown."""

    async def errors(self, *, limit: int) -> Sequence[ErrorGroup]:
        """Suspended tasks by the fingerprint of their failure, the most frequent first."""

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]: ...
    async def doctor(
        self, *, fix: bool, limit: int, seen: Callable[[int], None] | None = None
    ) -> Sequence[Finding]:
        """Compare everything. ``seen`` is told, from any thread, how many tasks were looked at."""

    async def checks(self) -> Sequence[Check]:
        """Look at the settings again; ``durable`` is then as they are now."""

    # Signals.

    def ticket(self, topic: Topic) -> int:
        """Taken before a look; ``wait`` with it misses nothing that came after."""

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        """Until something of the topic may have changed since the ticket, or the timeout."""
