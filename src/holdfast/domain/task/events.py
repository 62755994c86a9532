"""Events of a task, one class for each kind.

Each committed transition has events, in order and without gaps: every version of a record has at
least one. Progress is the exception: it is volatile, has no version of its own, and is published
but not stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.task import By, Failure


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", rename="camel", gc=False):
    task_id: str
    version: int  # of the record, after the transition
    at: float


class TaskCreated(Event, frozen=True, kw_only=True, tag="TaskCreated"):
    type: str
    tenant: str | None = None


class TaskReleased(Event, frozen=True, kw_only=True, tag="TaskReleased"):
    by: By


class TaskHeldBack(Event, frozen=True, kw_only=True, tag="TaskHeldBack"):
    by: By


class TaskStarted(Event, frozen=True, kw_only=True, tag="TaskStarted"):
    worker: str
    fence: int


class StageStarted(Event, frozen=True, kw_only=True, tag="StageStarted"):
    """A stage began at ``at``; the event is committed together with the stage's end."""

    stage: str
    attempt: int
    run: int


class StageCompleted(Event, frozen=True, kw_only=True, tag="StageCompleted"):
    stage: str
    run: int
    epoch: int
    duration_seconds: float


class StageFailed(Event, frozen=True, kw_only=True, tag="StageFailed"):
    failure: Failure
    run: int


class TaskProgress(Event, frozen=True, kw_only=True, tag="TaskProgress"):
    fraction: float
    stage: str = ""
    message: str = ""


class CheckpointDiscarded(Event, frozen=True, kw_only=True, tag="CheckpointDiscarded"):
    reason: str


class CheckpointPut(Event, frozen=True, kw_only=True, tag="CheckpointPut"):
    by: By
    checkpoint: int  # its version


class CheckpointRemoved(Event, frozen=True, kw_only=True, tag="CheckpointRemoved"):
    by: By


class TaskAmended(Event, frozen=True, kw_only=True, tag="TaskAmended"):
    by: By
    changed: tuple[str, ...]  # payload, data


class PauseRequested(Event, frozen=True, kw_only=True, tag="PauseRequested"):
    by: By


class CancelRequested(Event, frozen=True, kw_only=True, tag="CancelRequested"):
    by: By


class PauseWithdrawn(Event, frozen=True, kw_only=True, tag="PauseWithdrawn"):
    by: By


class TaskPaused(Event, frozen=True, kw_only=True, tag="TaskPaused"):
    reason: str | None = None
    by: By | None = None  # None: the holder paused it at a stage boundary


class TaskResumed(Event, frozen=True, kw_only=True, tag="TaskResumed"):
    by: By


class TaskRetryScheduled(Event, frozen=True, kw_only=True, tag="TaskRetryScheduled"):
    delay_seconds: float
    failures: int
    outages: int = 0  # in a row; 0: the retry follows a failure


class TaskSnoozed(Event, frozen=True, kw_only=True, tag="TaskSnoozed"):
    """The stage asked to be called again later; not a failure."""

    stage: str
    run: int
    delay_seconds: float


class TaskDue(Event, frozen=True, kw_only=True, tag="TaskDue"):
    """The time that the task waited for has come; it is back in its queue."""


class TaskRetried(Event, frozen=True, kw_only=True, tag="TaskRetried"):
    by: By
    from_checkpoint: bool


class TaskYielded(Event, frozen=True, kw_only=True, tag="TaskYielded"):
    """A worker that stops or does not know the type gave the task back; not a failure."""

    worker: str
    reason: str


class TaskCompleted(Event, frozen=True, kw_only=True, tag="TaskCompleted"):
    pass


class TaskFailedEvent(Event, frozen=True, kw_only=True, tag="TaskFailed"):
    failure: Failure


class TaskCancelledEvent(Event, frozen=True, kw_only=True, tag="TaskCancelled"):
    reason: str | None = None
    by: By | None = None


class TaskDiscarded(Event, frozen=True, kw_only=True, tag="TaskDiscarded"):
    by: By


class TaskRollingBack(Event, frozen=True, kw_only=True, tag="TaskRollingBack"):
    by: By
    from_stage: str | None = None


class StageUndone(Event, frozen=True, kw_only=True, tag="StageUndone"):
    stage: str
    run: int
    had_undo: bool
    duration_seconds: float


class StageUndoFailed(Event, frozen=True, kw_only=True, tag="StageUndoFailed"):
    failure: Failure
    run: int


class TaskRolledBackEvent(Event, frozen=True, kw_only=True, tag="TaskRolledBack"):
    pass


class TaskRollbackFailed(Event, frozen=True, kw_only=True, tag="TaskRollbackFailed"):
    failure: Failure


class LeaseLost(Event, frozen=True, kw_only=True, tag="LeaseLost"):
    worker: str
    fence: int
    counted: bool = True


NAMES: dict[type[Event], str] = {
    kind: str(kind.__struct_config__.tag) for kind in Event.__subclasses__()
}
KINDS: dict[str, type[Event]] = {name: kind for kind, name in NAMES.items()}

_encode = msgspec.json.Encoder().encode
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def encode(event: Event) -> bytes:
    return _encode(event)


def decode(name: str, body: bytes) -> Event:
    try:
        return _decoders[name].decode(body)
    except (KeyError, msgspec.DecodeError) as error:
        raise SerialisationError(f"event {name} cannot be read: {error}") from error


def name_of(event: Event) -> str:
    """Return the name that the event has in stores, streams and messages."""
    return NAMES[type(event)]


def made_by_store(name: str, **facts: Any) -> Event:
    """Return an event of one of the store's own moves; facts without a field are left out."""
    kind = KINDS[name]
    return kind(**{field: facts[field] for field in kind.__struct_fields__ if field in facts})
