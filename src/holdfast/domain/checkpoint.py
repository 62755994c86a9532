"""The save game between two stages: what it holds, how it is read, when it is still good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.domain.errors import CheckpointTooLarge, SerialisationError
from holdfast.domain.task import Failure

DATA_LIMIT_BYTES = 64 * 1024
FAILURES_KEPT = 10

# What earlier writers called these fields.
_ALIASES = {
    "completedStages": "completedStageNames",
    "contextData": "customData",
    "savedAt": "timestamp",
}


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    last_completed_stage_index: int
    completed_stage_names: tuple[str, ...]
    custom_data: dict[str, Any] = {}
    timestamp: datetime
    version: int = 1
    executor_instance: str = ""
    stage_durations: dict[str, int] = {}  # ms
    failure_history: tuple[Failure, ...] = ()


_encode = msgspec.json.Encoder().encode


class Verdict(StrEnum):
    GOOD = "good"
    INVALID = "invalid"  # discard it and start at stage 0
    CHANGED = "changed"  # the code's stages are no longer those that ran


def encode(checkpoint: Checkpoint) -> bytes:
    if checkpoint.custom_data:
        size = len(_encode(checkpoint.custom_data))
        if size > DATA_LIMIT_BYTES:
            raise CheckpointTooLarge(size, DATA_LIMIT_BYTES)
    if not checkpoint.failure_history:
        return _encode(checkpoint)
    raw = msgspec.to_builtins(checkpoint)
    for failure in raw["failureHistory"]:
        failure["at"] = _iso(failure["at"])
    return _encode(raw)


def _iso(at: float) -> str:
    """As the other times of a checkpoint are written."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds(at: Any) -> Any:
    """Of a failure; earlier writers wrote a number."""
    if not isinstance(at, str):
        return at
    found = datetime.fromisoformat(at)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _read_failures(raw: dict[str, Any]) -> None:
    history = raw.get("failureHistory")
    for failure in history if isinstance(history, list) else ():
        if isinstance(failure, dict) and "at" in failure:
            failure["at"] = _seconds(failure["at"])


def decode(body: bytes) -> Checkpoint:
    try:
        raw = msgspec.json.decode(body, type=dict[str, Any])
        for old, new in _ALIASES.items():
            if old in raw:
                raw.setdefault(new, raw.pop(old))
        _read_failures(raw)
        found = msgspec.convert(raw, Checkpoint, strict=True)
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise SerialisationError(f"checkpoint cannot be read: {error}") from error
    if found.timestamp.tzinfo is None:
        return msgspec.structs.replace(found, timestamp=found.timestamp.replace(tzinfo=UTC))
    return found


def judge(
    checkpoint: Checkpoint, stages: Sequence[str], *, now: float, ttl_seconds: float
) -> tuple[Verdict, str]:
    """Is it good for a task whose code now has these stages? And why not."""
    index, names = checkpoint.last_completed_stage_index, checkpoint.completed_stage_names
    if not 0 <= index < len(stages):
        return Verdict.INVALID, f"index {index} is not among {len(stages)} stages"
    if len(names) != index + 1:
        return Verdict.INVALID, f"{len(names)} names do not fit index {index}"
    if is_outlived(checkpoint, now=now, ttl_seconds=ttl_seconds):
        return Verdict.INVALID, f"saved {checkpoint.timestamp.isoformat()}, past its time to live"
    unknown = [name for name in names if name not in stages]
    if unknown:
        return Verdict.INVALID, f"stage {unknown[0]!r} is unknown to the present code"
    if tuple(stages[: index + 1]) != names:
        return Verdict.CHANGED, "the completed stages are no longer the first ones in the code"
    return Verdict.GOOD, ""


def is_outlived(checkpoint: Checkpoint, *, now: float, ttl_seconds: float) -> bool:
    return now - checkpoint.timestamp.timestamp() > ttl_seconds


def remember(history: Sequence[Failure], failure: Failure) -> tuple[Failure, ...]:
    """Only the last failures are kept here; their tracebacks live in the events."""
    short = msgspec.structs.replace(failure, traceback="")
    return (*history, short)[-FAILURES_KEPT:]


def save(
    before: Checkpoint | None,
    *,
    stages: Sequence[str],
    index: int,
    data: Mapping[str, Any],
    now: float,
    owner: str,
    took_seconds: float | None = None,
) -> Checkpoint:
    """``took_seconds``: of the stage at ``index``, if it has just been completed."""
    durations = before.stage_durations if before else {}
    if took_seconds is not None:
        durations = {**durations, stages[index]: round(took_seconds * 1000)}
    return Checkpoint(
        last_completed_stage_index=index,
        completed_stage_names=tuple(stages[: index + 1]),
        custom_data=dict(data),
        timestamp=datetime.fromtimestamp(now, UTC),
        version=before.version + 1 if before else 1,
        executor_instance=owner,
        stage_durations=durations,
        failure_history=before.failure_history if before else (),
    )
