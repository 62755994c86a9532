"""The save game between two stages: what it holds, how it is read, when it is still good."""

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

# What earlier writers called these fields.
_ALIASES = {
    "completedStages": "completedStageNames",
    "contextData": "customData",
    "savedAt": "timestamp",
}


SUSPEND, RESTART = "suspend", "restart"  # what a type does with a checkpoint that is no good


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
    # What the code said of such checkpoints when it saved this one; left out where it said nothing.
    on_invalid: str | msgspec.UnsetType = msgspec.UNSET
    max_age_seconds: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def restarts(self) -> bool:
        """Return whether the type starts over where the checkpoint is no good."""
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
    """Read the time of a failure; earlier writers wrote a number."""
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
        raw = msgspec.json.decode(body, type=dict[str, Any])
        told = _with_present_names(raw)
        _read_failures(told)
        found = msgspec.convert(told, Checkpoint, strict=True)
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise SerialisationError(f"checkpoint cannot be read: {error}") from error
    if (
        len(body) > DATA_LIMIT_BYTES
        and (size := len(_encode(found.custom_data))) > DATA_LIMIT_BYTES
    ):
        said = f"customData has {size} bytes of JSON; at most {DATA_LIMIT_BYTES} are allowed"
        raise SerialisationError(f"checkpoint cannot be read: {said}")
    if found.timestamp.tzinfo is None:
        return msgspec.structs.replace(found, timestamp=found.timestamp.replace(tzinfo=UTC))
    return found


def _with_present_names(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields by their present names, without those that are null."""
    told = {name: value for name, value in raw.items() if value is not None}
    for old, new in _ALIASES.items():
        if old in told:
            told.setdefault(new, told.pop(old))
    if isinstance(saved := told.get("timestamp"), list):
        told["timestamp"] = _moment(msgspec.convert(saved, list[int]))
    return told


def _moment(numbers: list[int]) -> datetime:
    """A LocalDateTime as Jackson writes it: year, month, day, hour, minute, second, nanosecond."""
    year, month, day, hour, minute, second, nanosecond = [*numbers, 0, 0, 0, 0, 0, 0, 0][:7]
    return datetime(year, month, day, hour, minute, second, nanosecond // 1000, tzinfo=UTC)


def judge(
    checkpoint: Checkpoint, stages: Sequence[str], *, now: float, max_age_seconds: float | None
) -> tuple[CheckpointVerdict, str]:
    """Is it good for a task whose code now has these stages? And why not."""
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
    policy: Policy | None = None,
) -> Checkpoint:
    """Return the checkpoint after the stage at ``index``.

    ``took_seconds``: of that stage, if it has just been completed; ``policy``: what its type says
    of its checkpoints, None: as the one before.
    """
    durations = before.stage_durations if before else {}
    if took_seconds is not None:
        durations = {**durations, stages[index]: round(took_seconds * 1000)}
    on_invalid: str | msgspec.UnsetType = msgspec.UNSET
    max_age: float | msgspec.UnsetType = msgspec.UNSET
    if policy is None:
        if before is not None:
            on_invalid, max_age = before.on_invalid, before.max_age_seconds
    else:
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
