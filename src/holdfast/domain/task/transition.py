"""Transitions: a decision returns one, and a store writes it."""

from __future__ import annotations

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.events import Event
from holdfast.domain.task.placement import Next
from holdfast.domain.task.task import StageRecord, Task


class Transition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write, which a store makes completely or not at all.

    A store applies it only to the version that was read and, with ``lease`` set, only while that
    lease is on the record: the record is then the one that its holder saw, so ``before`` is right.
    Without ``lease`` it is an operator's: on a leased record it may only STAY, and the store's own
    fields of ``before`` may be out of date.
    """

    before: Task
    after: Task
    request: str  # a repeat of the same request gets the first answer
    next: Next
    events: tuple[Event, ...]
    lease: str | None = None
    delay_seconds: float = 0.0
    checkpoint: Checkpoint | None = None
    drop_checkpoint: bool = False
    stage: StageRecord | None = None
    drop_stages: bool = False
    result: bytes | None = None
    data: bytes | None = None  # customData, stored beside the record
    payload: bytes | None = None  # replaces the submitted one, whose digest stays
    not_if_moved_on: bool = False  # refuse when newer work has run for the tenant
    not_if_busy: bool = False  # refuse when the task would wait in its tenant's line
    not_without_checkpoint: bool = False  # refuse when there is none to continue from
    audit: Audit | None = None
    follows: tuple[Submission, ...] = ()  # tasks that the store inserts in the same step

    @property
    def task_id(self) -> str:
        return self.after.id

    @property
    def expects(self) -> int:
        return self.before.version


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    task: Task
    payload: bytes  # JSON
    digest: str  # of type and payload: the same key with another digest is a conflict
    events: tuple[Event, ...]
    held: bool = False


class Applied(msgspec.Struct, frozen=True, gc=False):
    task: Task


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The answer to a transition over another version or lease; ``task`` is the record as it is."""

    task: Task | None


class MovedOn(msgspec.Struct, frozen=True, gc=False):
    """The answer to a transition that was refused because newer work has run for the tenant."""

    task: Task


class Busy(msgspec.Struct, frozen=True, gc=False):
    """The answer to a transition that was refused because the tenant's line is closed."""

    task: Task


class NoCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """The answer to a transition that needs a checkpoint where there is none."""

    task: Task


Outcome = Applied | Stale | MovedOn | Busy | NoCheckpoint


class Inserted(msgspec.Struct, frozen=True, gc=False):
    task_id: str


class Existing(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submission whose key was used before, with the same payload."""

    task_id: str


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submission whose key was used before, with another payload."""

    task_id: str


class Full(msgspec.Struct, frozen=True, gc=False):
    queue: str


class IntakeClosed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submission while the intake of the queue is paused."""

    queue: str


Insertion = Inserted | Existing | Conflict | Full | IntakeClosed
