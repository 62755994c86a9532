"""The record of a task, and the facts that belong to it.

Records have ``gc=False``: they hold JSON and each other, never in a cycle, so the garbage collector
need not track the thousands of them that a busy worker makes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import LEGAL, SETTLED, SUSPENDED, TABLE, Command, Status, step

BACKWARD = (Status.ROLLING_BACK, Status.ROLLBACK_FAILED)  # a rollback needs no checkpoint

E = TypeVar("E")

replace = msgspec.structs.replace


class FailureKind(StrEnum):
    """The kind of a failure."""

    STAGE = "stage"
    OUTAGE = "outage"
    PERMANENT = "permanent"
    TIMEOUT = "timeout"
    SERIALISATION = "serialisation"
    PERSISTENCE = "persistence"  # the store did not take or give what a stage asked of it
    CANCELLED = "cancelled"  # the stage's function was cancelled, and not by a person
    POISON = "poison"
    UNKNOWN_TYPE = "unknown-type"
    DEFINITION_CHANGED = "definition-changed"
    INVALID_CHECKPOINT = "invalid-checkpoint"
    TENANT_MOVED_ON = "tenant-moved-on"


class Failure(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A failure as text: it must outlive the code that raised it."""

    kind: FailureKind
    error: str  # the exception's type
    message: str
    stage: str
    attempt: int
    at: float
    traceback: str = ""

    @property
    def summary(self) -> str:
        return f"{self.error}: {self.message}" if self.message else self.error

    @property
    def fingerprint(self) -> str:
        """Return the id of the error group: from kind, type and stage, not from the message."""
        return hashlib.blake2s(
            f"{self.kind}\n{self.error}\n{self.stage}".encode(), digest_size=6
        ).hexdigest()


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    owner: str
    fence: int
    id: str
    until: float  # by the store's clock


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The person or program that asked, from where and why."""

    actor: str
    origin: str = ""
    reason: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: str
    type: str
    tenant: str | None = None
    plan: str | None = None
    queue: str = "default"
    key: str | None = None
    trace_id: str | None = None
    user: Any = None  # plain JSON: the person or account that the work is for
    callback: str | None = None  # the address that receives the outcome
    effects: str | None = None  # replaces the id in ctx.key, for a type with effects="key"
    stages: tuple[str, ...]
    workflow: bool = False
    hold: bool = False  # its tenant's line stays closed while it rests unsettled
    keep_seconds: float = 30 * 86_400.0
    retry_max: int = 3
    created_at: float

    status: Status
    status_since: float
    updated_at: float
    settled_at: float | None = None
    version: int = 1
    run: int = 1
    epoch: int = 1
    last_completed: int = -1
    next_undo: int = -1  # while rolling back: the stage to undo next
    pause_requested: bool = False
    cancel_requested: bool = False
    reason: str | None = None  # a person's, for the present status or the pending request
    failures: int = 0  # consecutive, at the present stage, in this run
    crashes: int = 0  # leases lost in a row at the present stage, as far as they count
    lapses: int = 0  # the same, counted or not
    forced: bool = False  # a person let it run despite newer work of its tenant
    interrupted: bool = False  # the present stage was begun and has not ended
    unknown_since: float | None = None  # when it first met a worker that does not know its type
    outages: int = 0  # in a row, at the present stage or undo; not among the failures
    outage_since: float | None = None  # the first of that row
    ran_by: str | None = None  # the worker that ran it last
    failure: Failure | None = None

    # The store's own: decisions read these and never set them.
    place: Place = Place.READY
    order: int = 0  # among the tasks of its tenant and queue
    due: float | None = None  # by the store's clock
    lease: Lease | None = None
    fence: int = 0  # the last one given out for this task

    @property
    def settled(self) -> bool:
        return self.status in SETTLED

    @property
    def suspended(self) -> bool:
        return self.status in SUSPENDED

    @property
    def at_stage(self) -> str | None:
        """Return the stage that runs now, or that runs next."""
        index = self.last_completed + 1
        return self.stages[index] if index < len(self.stages) else None

    @property
    def begun(self) -> bool:
        """Return whether the present stage has begun since the last commit, maybe with effects."""
        return self.interrupted or self.failures > 0 or self.crashes > 0

    @property
    def attempt(self) -> int:
        return self.failures + max(self.crashes, self.lapses) + 1

    @property
    def continues_from_checkpoint(self) -> bool:
        """Return whether the task would continue from a checkpoint if a worker claimed it."""
        if self.last_completed < 0 or self.settled or self.place is Place.LEASED:
            return False
        return self.status not in BACKWARD

    @property
    def legal(self) -> tuple[Command, ...]:
        """Return the commands that an operator may ask for now."""
        return tuple(command for command in LEGAL[self.status] if self.can(command))

    def can(self, command: Command) -> bool:
        """Return whether a command is legal now; some depend on earlier requests."""
        if command is Command.PAUSE and self.cancel_requested:
            return False
        if command is Command.RESUME and self.status is Status.RUNNING:
            return self.pause_requested
        return command in TABLE[self.status]


def apply_command(task: Task, command: Command, *, now: float, **changes: Any) -> Task:
    """Return the record after ``command``, or raise IllegalTransition."""
    status = TABLE[task.status].get(command) or step(task.status, command)  # step raises
    version = task.version + 1
    if changes:
        task = replace(task, **changes)
    if status is task.status:
        return replace(task, version=version, updated_at=now)
    return replace(
        task,
        version=version,
        updated_at=now,
        status=status,
        status_since=now,
        settled_at=now if status in SETTLED else None,
    )


def fact(kind: Callable[..., E], task: Task, at: float, **facts: Any) -> E:
    """Return an event of the transition that is being decided."""
    return kind(task_id=task.id, version=task.version + 1, at=at, **facts)


class StageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The record of a committed stage."""

    index: int
    name: str
    result: bytes  # JSON
    duration_seconds: float
    run: int
    epoch: int
    undo: bool | None = None  # whether it had an undo then; None: an older writer did not say


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The progress that a running stage reported last, and its worker's notes. It is volatile."""

    fraction: float  # of the stage
    message: str = ""
    stage: str = ""
    at: float = 0.0
    begun: str = ""  # the task's `crashes.position` when the stage was called
    alone: bool = False  # nothing else ran in that process
