"""What has happened to a task: one class per fact.

Events exist exactly for committed transitions, in order and without gaps per task: each
version of a record has at least one. Progress is the exception; it is volatile, has no
version of its own, and is published, not kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import By, Failure


class Event(
    msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="event", rename="camel", gc=False
):
    task_id: str
    version: int  # of the record, after the transition
    at: float


class TaskCreated(Event, frozen=True, kw_only=True):
    type: str
    tenant: str | None = None


class TaskReleased(Event, frozen=True, kw_only=True):
    by: By


class TaskHeldBack(Event, frozen=True, kw_only=True):
    by: By


class TaskStarted(Event, frozen=True, kw_only=True):
    worker: str
    fence: int


class StageStarted(Event, frozen=True, kw_only=True):
    """Committed together with the stage's end; ``at`` is when it began."""

    stage: str
    attempt: int
    run: int


class StageCompleted(Event, frozen=True, kw_only=True):
    stage: str
    run: int
    epoch: int
    duration_seconds: float


class StageFailed(Event, frozen=True, kw_only=True):
    failure: Failure
    run: int


class TaskProgress(Event, frozen=True, kw_only=True):
    fraction: float
    stage: str = ""
    message: str = ""


class CheckpointDiscarded(Event, frozen=True, kw_only=True):
    reason: str


class CheckpointPut(Event, frozen=True, kw_only=True):
    by: By
    checkpoint: int  # its version


class CheckpointRemoved(Event, frozen=True, kw_only=True):
    by: By


class TaskAmended(Event, frozen=True, kw_only=True):
    by: By
    changed: tuple[str, ...]  # payload, data


class PauseRequested(Event, frozen=True, kw_only=True):
    by: By


class CancelRequested(Event, frozen=True, kw_only=True):
    by: By


class PauseWithdrawn(Event, frozen=True, kw_only=True):
    by: By


class TaskPaused(Event, frozen=True, kw_only=True):
    reason: str | None = None
    by: By | None = None  # None: by its holder, at a stage boundary


class TaskResumed(Event, frozen=True, kw_only=True):
    by: By


class TaskRetryScheduled(Event, frozen=True, kw_only=True):
    delay_seconds: float
    failures: int
    outages: int = 0  # in a row; 0: it is tried again after a failure


class TaskSnoozed(Event, frozen=True, kw_only=True):
    """The stage asked to be called again later; not a failure."""

    stage: str
    run: int
    delay_seconds: float


class TaskDue(Event, frozen=True, kw_only=True):
    """The time it waited for has come; it is back in its queue."""


class TaskRetried(Event, frozen=True, kw_only=True):
    by: By
    from_checkpoint: bool


class TaskYielded(Event, frozen=True, kw_only=True):
    """Handed back by a worker that stops or does not know its type; not a failure."""

    worker: str
    reason: str


class TaskCompleted(Event, frozen=True, kw_only=True):
    pass


class TaskFailed(Event, frozen=True, kw_only=True):
    failure: Failure


class TaskCancelled(Event, frozen=True, kw_only=True):
    reason: str | None = None
    by: By | None = None


class TaskDiscarded(Event, frozen=True, kw_only=True):
    by: By


class TaskRollingBack(Event, frozen=True, kw_only=True):
    by: By
    from_stage: str | None = None


class StageUndone(Event, frozen=True, kw_only=True):
    stage: str
    run: int
    had_undo: bool
    duration_seconds: float


class StageUndoFailed(Event, frozen=True, kw_only=True):
    failure: Failure
    run: int


class TaskRolledBack(Event, frozen=True, kw_only=True):
    pass


class TaskRollbackFailed(Event, frozen=True, kw_only=True):
    failure: Failure


class LeaseLost(Event, frozen=True, kw_only=True):
    worker: str
    fence: int
    counted: bool = True


KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}

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
    return type(event).__name__


def made_by_store(name: str, **facts: Any) -> Event:
    """An event of one of the store's own moves; facts it has no field for are left out."""
    kind = KINDS[name]
    return kind(**{field: facts[field] for field in kind.__struct_fields__ if field in facts})
