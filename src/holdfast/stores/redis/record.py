"""A task as a hash: the fields that the documents name, and one for each other fact.

What a task that has never run can do without is left out until its first claim (see claim.lua), so
that a million waiting tasks are small. Fields that most records lack are named in the field
``optional``: the next write takes them away without having to know what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.domain import events as ev
from holdfast.domain.checkpoint import Checkpoint
from holdfast.domain.errors import SerialisationError
from holdfast.domain.state import Status
from holdfast.domain.task import Failure, Lease, Place, Progress, StageRecord, Task
from holdfast.stores import codec

Fields = dict[str, str]

encode = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_failure = msgspec.json.Decoder(Failure).decode
_decode_any = msgspec.json.Decoder().decode


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def day(seconds: float) -> str:
    return iso(seconds)[:10]


def _from_iso(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _told(value: bool) -> str:
    return "true" if value else "false"


class _Field(msgspec.Struct, frozen=True):
    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _text(value: str) -> str:
    return value


def _json(value: object) -> str:
    return encode(value).decode()


# What never changes after the submit.
_BORN = {
    "type": _Field("type", _text, _text),
    "queue": _Field("queue", _text, _text),
    "keep_seconds": _Field("keepSeconds", repr, float),
    "created_at": _Field("createdAt", iso, _from_iso),
}
_BORN_OPTIONAL = {
    "tenant": _Field("tenantId", _text, _text),
    "plan": _Field("planId", _text, _text),
    "key": _Field("key", _text, _text),
    "trace_id": _Field("traceId", _text, _text),
    "user": _Field("user", _json, _decode_any),
    "workflow": _Field("workflow", _told, _flag),
    "hold": _Field("hold", _told, _flag),
}
# What decisions change.
_KEPT = {
    "status": _Field("status", str, Status),
    "status_since": _Field("statusSince", repr, float),
    "version": _Field("version", str, int),
    "stages": _Field("stageNames", _json, _decode_names),  # the code's, when it last ran
    "retry_max": _Field("retryMax", str, int),
}
_COMPLETED = {  # by the first claim
    "id": _Field("taskId", _text, _text),
    "updated_at": _Field("updatedAt", iso, _from_iso),
    "last_completed": _Field("lastCompletedStageIndex", str, int),
    "pause_requested": _Field("pauseRequested", _told, _flag),
}
_OPTIONAL = {
    "settled_at": _Field("settledAt", repr, float),
    "run": _Field("run", str, int),
    "epoch": _Field("epoch", str, int),
    "next_undo": _Field("nextUndo", str, int),
    "cancel_requested": _Field("cancelRequested", _told, _flag),
    "reason": _Field("reason", _text, _text),
    "failures": _Field("failures", str, int),
    "crashes": _Field("crashes", str, int),
    "forced": _Field("forced", _told, _flag),
    "interrupted": _Field("interrupted", _told, _flag),
    "unknown_since": _Field("unknownSince", repr, float),
    "failure": _Field("failure", _json, _decode_failure),
}
# The store's own.
_PLACED = {
    "place": _Field("place", str, Place),
    "order": _Field("order", str, int),
    "due": _Field("due", repr, float),
    "fence": _Field("fence", str, int),
}
_ALL = _BORN | _BORN_OPTIONAL | _KEPT | _COMPLETED | _OPTIONAL | _PLACED
_MAY_BE_EMPTY = frozenset({"reason"})

_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default
    for field in msgspec.structs.fields(Task)
    if field.default is not msgspec.NODEFAULT
}


def _given(task: Task, fields: Mapping[str, _Field]) -> Fields:
    """Those that say something else than the default."""
    return {
        field.name: field.write(value)
        for name, field in fields.items()
        if (value := getattr(task, name)) != _DEFAULTS[name]
    }


def newborn(task: Task) -> Fields:
    """The record of a task that waits for the first time."""
    fields = {field.name: field.write(getattr(task, name)) for name, field in _BORN.items()}
    fields |= _given(task, _BORN_OPTIONAL) | changed(task)
    del fields["taskId"]
    if task.updated_at == task.created_at:
        del fields["updatedAt"]
    for name in ("last_completed", "pause_requested"):
        if getattr(task, name) == _DEFAULTS[name]:
            del fields[_COMPLETED[name].name]
    return fields


def changed(task: Task) -> Fields:
    """What a transition writes."""
    fields = {field.name: field.write(getattr(task, name)) for name, field in _KEPT.items()}
    fields |= {field.name: field.write(getattr(task, name)) for name, field in _COMPLETED.items()}
    optional = _given(task, _OPTIONAL)
    if task.failure is not None:
        optional["error"] = task.failure.fingerprint
    if task.suspended:
        optional["suspendedAt"] = repr(task.updated_at)
    if optional:
        fields |= optional | {"optional": " ".join(optional)}
    return fields


def flat(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def texts(pairs: list[bytes]) -> Fields:
    """A reply of HGETALL as text; what is no text cannot be read."""
    try:
        decoded = [text.decode() for text in pairs]
    except UnicodeDecodeError as error:
        raise SerialisationError(f"record cannot be read: {error}") from error
    return dict(zip(decoded[::2], decoded[1::2], strict=True))


def decode(task_id: str, fields: Mapping[str, str], until: float | None = None) -> Task:
    """``until``: the end of its lease, which only the lease index knows."""
    values: dict[str, Any] = {"id": task_id}
    for name, field in _ALL.items():
        text = fields.get(field.name)
        if text is None or (text == "" and name not in _MAY_BE_EMPTY):
            continue
        try:
            values[name] = field.read(text)
        except (ValueError, msgspec.DecodeError) as error:
            raise SerialisationError(
                f"task {task_id}: field {field.name} cannot be read: {error}"
            ) from error
    return _built(task_id, fields, values, until)


def _built(
    task_id: str, fields: Mapping[str, str], values: dict[str, Any], until: float | None
) -> Task:
    values.setdefault("updated_at", values.get("created_at"))
    if values["id"] != task_id:
        raise SerialisationError(f"task {task_id}: its record is that of {values['id']}")
    if lease_id := fields.get("leaseId"):
        values["lease"] = Lease(
            owner=fields.get("leaseOwner", ""),
            fence=values.get("fence", 0),
            id=lease_id,
            until=until if until is not None else 0.0,
        )
    missing = [field.name for name, field in (_BORN | _KEPT).items() if name not in values]
    if missing:
        raise SerialisationError(f"task {task_id}: its record lacks {', '.join(missing)}")
    return Task(**values)


# -- what belongs to a task


def encode_stage(stage: StageRecord) -> tuple[str, str]:
    """The field and its value: a line of facts, then the result as it is."""
    facts = [stage.name, stage.duration_seconds, stage.run, stage.epoch]
    return str(stage.index), f"{_json(facts)}\n{stage.result.decode()}"


def decode_stages(pairs: list[bytes]) -> tuple[StageRecord, ...]:
    found = (_stage(index, body) for index, body in zip(pairs[::2], pairs[1::2], strict=True))
    return tuple(sorted(found, key=lambda stage: stage.index))


_decode_facts = msgspec.json.Decoder(tuple[str, float, int, int]).decode


def _stage(index: bytes, body: bytes) -> StageRecord:
    facts, _, result = body.partition(b"\n")
    try:
        name, duration, run, epoch = _decode_facts(facts)
        return StageRecord(
            index=int(index),
            name=name,
            result=result,
            duration_seconds=duration,
            run=run,
            epoch=epoch,
        )
    except (ValueError, msgspec.DecodeError) as error:
        raise SerialisationError(f"stage {index!r} cannot be read: {error}") from error


def created(task: Task) -> tuple[ev.Event, ...]:
    """The events of the first version, where they say no more than the record does."""
    return (
        ev.TaskCreated(
            task_id=task.id,
            version=1,
            at=task.created_at,
            type=task.type,
            tenant=task.tenant,
        ),
    )


_MADE_BY_STORE = {
    "TaskStarted": ("worker", "fence"),
    "LeaseLost": ("worker", "fence", "counted"),
    "TaskDue": (),
}


def decode_events(task_id: str, element: bytes) -> list[ev.Event]:
    """One element of a task's list of events: those of one version."""
    try:
        version, _, body = element.split(b"\n", 2)
        if body.startswith(b"["):
            return list(codec.decode_events(body))
        name, at, *facts = body.decode().split("\n")
        said: dict[str, Any] = dict(zip(_MADE_BY_STORE[name], facts, strict=True))
        if "fence" in said:
            said["fence"] = int(said["fence"])
        if "counted" in said:
            said["counted"] = said["counted"] == "1"
        return [ev.made_by_store(name, task_id=task_id, version=int(version), at=float(at), **said)]
    except (ValueError, KeyError) as error:
        raise SerialisationError(f"task {task_id}: an event cannot be read: {error}") from error


def decode_progress(text: str) -> Progress:
    return codec.decode_progress(text.encode())


def checkpoint_meta(checkpoint: Checkpoint) -> list[str]:
    return [
        "version",
        str(checkpoint.version),
        "executorInstance",
        checkpoint.executor_instance,
        "lastCompletedStageIndex",
        str(checkpoint.last_completed_stage_index),
        "timestamp",
        checkpoint.timestamp.isoformat(),
    ]
