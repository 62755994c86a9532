"""The failure records of exceptions: type, message, traceback as text, and the kind of failure."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import traceback

from holdfast.domain.error_text import clean, leaves_of, qualified_name, text_of
from holdfast.domain.errors import (
    CheckpointTooLarge,
    InvalidPayload,
    Permanent,
    SerialisationError,
    StageTimeout,
    StoreError,
)
from holdfast.domain.task.task import Failure, FailureKind, Task

log = logging.getLogger("holdfast.executor")

MESSAGE_LIMIT_CHARS = 2_000
TRACEBACK_LIMIT_CHARS = 16_000
FRAMES_LIMIT = 200  # the innermost ones, of each error
CAUSES_LIMIT = 50
PIECE_LIMIT_CHARS = 4_000  # of a line with its message: a huge one must not hide the frames

_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (StageTimeout, FailureKind.TIMEOUT),
    (Permanent, FailureKind.PERMANENT),
    (InvalidPayload, FailureKind.SERIALISATION),
    (SerialisationError, FailureKind.SERIALISATION),
    (CheckpointTooLarge, FailureKind.SERIALISATION),
    (StoreError, FailureKind.PERSISTENCE),
    (asyncio.CancelledError, FailureKind.CANCELLED),
    (concurrent.futures.CancelledError, FailureKind.CANCELLED),
)


def describe(error: BaseException, task: Task, stage: str, *, now: float) -> Failure:
    cause = type(deciding(error))
    return Failure(
        kind=next((kind for cls, kind in _KINDS if issubclass(cause, cls)), FailureKind.STAGE),
        error=qualified_name(type(error)),
        message=text_of(error, MESSAGE_LIMIT_CHARS),
        stage=stage,
        attempt=task.attempt,
        at=now,
        traceback=clean(_traceback_of(error))[-TRACEBACK_LIMIT_CHARS:],
    )


def deciding(error: BaseException) -> BaseException:
    """Return the error that decides what follows: of a group its only one, or a permanent one."""
    leaves = leaves_of(error)
    permanent = (leaf for leaf in leaves if issubclass(type(leaf), Permanent))
    return next(permanent, leaves[0] if len(leaves) == 1 else error)


def stated_failure(kind: FailureKind, message: str, task: Task, *, now: float) -> Failure:
    """Return a failure that no exception stands for."""
    return Failure(
        kind=kind,
        error=kind.value,
        message=message[:MESSAGE_LIMIT_CHARS],
        stage=task.at_stage or task.stages[-1],
        attempt=task.attempt,
        at=now,
    )


def summary(error: BaseException) -> str:
    """Return the error in a line, where no traceback is kept."""
    text = f"{qualified_name(type(error))}: {text_of(error, MESSAGE_LIMIT_CHARS)}"
    return text[:MESSAGE_LIMIT_CHARS]


def _traceback_of(error: BaseException) -> str:
    """Render a traceback, also where the error, its causes or their types raise on being asked."""
    try:
        if not _has_many_causes(error):
            rendered = traceback.TracebackException.from_exception(error, limit=-FRAMES_LIMIT)
            return "".join(map(_cut, rendered.format()))
    except BaseException:
        log.debug("the traceback of %s cannot be rendered", qualified_name(type(error)))
    where = BaseException.__dict__["__traceback__"].__get__(error)
    frames = traceback.format_tb(where, limit=-FRAMES_LIMIT)
    return "".join(("Traceback (most recent call last):\n", *frames, summary(error), "\n"))


def _cut(piece: str) -> str:
    left = len(piece) - PIECE_LIMIT_CHARS
    return piece if left <= 0 else f"{piece[:PIECE_LIMIT_CHARS]}… ({left} characters more)\n"


def _has_many_causes(error: BaseException) -> bool:
    seen = set[int]()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        if len(seen) == CAUSES_LIMIT:
            return True
        seen.add(id(following))
        following = following.__cause__ or following.__context__
    return False
