"""Checkpoints: what they hold, how they are read, and when they are still valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.domain.durations import format_duration
from holdfast.domain.errors import CheckpointTooLarge, SerialisationError
from holdfast.domain.task.task import Failure

DATA_LIMIT_BYTES = 64 * 1024
FAILURES_KEPT = 10

# The names that earlier writers gave to these fields.
_ALIASES = {
    "completedStages": "completedStageNames",
    "contextData": "customData",
    "savedAt": "timestamp",
}


SUSPEND, RESTART = "suspend", "restart"  # what a type does with an invalid checkpoint


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a type for its checkpoints."""

    on_invalid: str = SUSPEND
    max_age_seconds: float | None = None


DEFAULT = Policy()


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    last_completed_stage_index: int
    completed_stage_names: tuple[str, ...]
    custom_data: dict[str, Any] = {}
    timestamp: datetime
    version: int = 1
    executor_instance: str = ""
    stage_durations: dict[str, int] = {}  # ms
    failure_history: tuple[Failure, ...] = ()
    # The policy of the code when it saved this checkpoint; left out where there was none.
    on_invalid: str | msgspec.UnsetType = msgspec.UNSET
    max_age_seconds: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def restarts(self) -> bool:
        """Return whether the type starts over when the checkpoint is invalid."""
        return self.on_invalid == RESTART


_encode = msgspec.json.Encoder().encode


class CheckpointVerdict(StrEnum):
    GOOD = "good"
    INVALID = "invalid"
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
    """Write a time as the other times of a checkpoint are written."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds(at: Any) -> Any:
    """Return the time of a failure in seconds; earlier writers wrote a number."""
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
    """Return the checkpoint in a JSON text of ours, of the document's or of an earlier writer."""
    try:
        fields = _with_present_names(msgspec.json.decode(body, type=dict[str, Any]))
        _read_failures(fields)
        checkpoint = msgspec.convert(fields, Checkpoint, strict=True)
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise SerialisationError(f"checkpoint cannot be read: {error}") from error
    size = len(_encode(checkpoint.custom_data)) if len(body) > DATA_LIMIT_BYTES else 0
    if size > DATA_LIMIT_BYTES:
        why = f"customData has {size} bytes of JSON; at most {DATA_LIMIT_BYTES} are allowed"
        raise SerialisationError(f"checkpoint cannot be read: {why}")
    if checkpoint.timestamp.tzinfo is None:
        saved = checkpoint.timestamp.replace(tzinfo=UTC)
        return msgspec.structs.replace(checkpoint, timestamp=saved)
    return checkpoint


def _with_present_names(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by their present names, without those that are null."""
    fields = {name: value for name, value in raw.items() if value is not None}
    for old, new in _ALIASES.items():
        if old in fields:
            fields.setdefault(new, fields.pop(old))
    if isinstance(saved := fields.get("timestamp"), list):
        fields["timestamp"] = _moment(msgspec.convert(saved, list[int]))
    return fields


def _moment(numbers: list[int]) -> datetime:
    """Read a LocalDateTime as Jackson writes it: year, month, day, hour … nanosecond."""
    year, month, day, hour, minute, second, nanosecond = [*numbers, 0, 0, 0, 0, 0, 0, 0][:7]
    return datetime(year, month, day, hour, minute, second, nanosecond // 1000, tzinfo=UTC)


def judge(
    checkpoint: Checkpoint, stages: Sequence[str], *, now: float, max_age_seconds: float | None
) -> tuple[CheckpointVerdict, str]:
    """Judge a checkpoint for code with these stages; return the verdict and its reason."""
    index, names = checkpoint.last_completed_stage_index, checkpoint.completed_stage_names
    if not 0 <= index < len(stages):
        return CheckpointVerdict.INVALID, f"index {index} is not among {len(stages)} stages"
    if len(names) != index + 1:
        return CheckpointVerdict.INVALID, f"{len(names)} names do not fit index {index}"
    if max_age_seconds is not None and now - checkpoint.timestamp.timestamp() > max_age_seconds:
        saved, age = checkpoint.timestamp.isoformat(), format_duration(max_age_seconds)
        return CheckpointVerdict.INVALID, f"saved {saved}, older than checkpoint_max_age ({age})"
    unknown = [name for name in names if name not in stages]
    if unknown:
        return CheckpointVerdict.INVALID, f"stage {unknown[0]!r} is unknown to the present code"
    if tuple(stages[: index + 1]) != names:
        return (
            CheckpointVerdict.CHANGED,
            "the completed stages are no longer the first ones in the code",
        )
    return CheckpointVerdict.GOOD, ""


def remember(history: Sequence[Failure], failure: Failure) -> tuple[Failure, ...]:
    """Return the history with this failure; it keeps the last ones, without their tracebacks."""
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
    policy: Policy | None = None,
) -> Checkpoint:
    """Return the checkpoint after the stage at ``index``.

    ``took_seconds``: the duration of that stage, if it has just been completed; ``policy``: the
    policy of its type, None: that of the checkpoint before.
    """
    durations = before.stage_durations if before else {}
    if took_seconds is not None:
        durations = {**durations, stages[index]: round(took_seconds * 1000)}
    on_invalid: str | msgspec.UnsetType = msgspec.UNSET
    max_age: float | msgspec.UnsetType = msgspec.UNSET
    if policy is None and before is not None:
        on_invalid, max_age = before.on_invalid, before.max_age_seconds
    elif policy is not None:
        on_invalid = RESTART if policy.on_invalid == RESTART else msgspec.UNSET
        max_age = msgspec.UNSET if policy.max_age_seconds is None else policy.max_age_seconds
    return Checkpoint(
        last_completed_stage_index=index,
        completed_stage_names=tuple(stages[: index + 1]),
        custom_data=dict(data),
        timestamp=datetime.fromtimestamp(now, UTC),
        version=before.version + 1 if before else 1,
        executor_instance=owner,
        stage_durations=durations,
        failure_history=before.failure_history if before else (),
        on_invalid=on_invalid,
        max_age_seconds=max_age,
    )
