"""Exceptions as records: type, message and traceback as text, and what kind of thing it was."""

from __future__ import annotations

import traceback

from holdfast.domain.errors import (
    CheckpointTooLarge,
    InvalidPayload,
    Permanent,
    SerialisationError,
    StageTimeout,
)
from holdfast.domain.task import Failure, Kind, Task

MESSAGE_LIMIT_CHARS = 2_000
TRACEBACK_LIMIT_CHARS = 16_000

_KINDS: tuple[tuple[type[BaseException], Kind], ...] = (
    (StageTimeout, Kind.TIMEOUT),
    (Permanent, Kind.PERMANENT),
    (InvalidPayload, Kind.SERIALISATION),
    (SerialisationError, Kind.SERIALISATION),
    (CheckpointTooLarge, Kind.SERIALISATION),
)


def describe(error: BaseException, task: Task, stage: str, *, now: float) -> Failure:
    text = "".join(traceback.format_exception(error))
    return Failure(
        kind=next((kind for cls, kind in _KINDS if isinstance(error, cls)), Kind.STAGE),
        error=_qualified(type(error)),
        message=clean(_text_of(error))[:MESSAGE_LIMIT_CHARS],
        stage=stage,
        attempt=task.attempt,
        at=now,
        traceback=clean(text)[-TRACEBACK_LIMIT_CHARS:],
    )


def stated(kind: Kind, message: str, task: Task, *, now: float) -> Failure:
    """A failure that no exception stands for."""
    return Failure(
        kind=kind,
        error=kind.value,
        message=message[:MESSAGE_LIMIT_CHARS],
        stage=task.at_stage or task.stages[-1],
        attempt=task.attempt,
        at=now,
    )


def summary(error: BaseException) -> str:
    """In a line, where no traceback is kept."""
    return clean(f"{_qualified(type(error))}: {_text_of(error)}")[:MESSAGE_LIMIT_CHARS]


def _qualified(cls: type[BaseException]) -> str:
    module = cls.__module__
    if module.startswith("holdfast."):
        module = "holdfast"  # where users know it from
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def _text_of(error: BaseException) -> str:
    """An error whose own text cannot be made is a failure like any other."""
    try:
        return str(error)
    except Exception as second:
        return f"its text cannot be had: {type(second).__name__}"


def clean(text: str) -> str:
    """A lone surrogate in a message must not make the failure itself impossible to write."""
    return text.encode(errors="backslashreplace").decode()
