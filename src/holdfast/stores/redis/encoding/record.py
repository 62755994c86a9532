"""A task as a hash: the fields that the documents name, and one for each other fact.

Fields that a task does not need before it has run are left out until its first claim (see
claim.lua), so that a million waiting tasks are small. One line before the payload also holds the
whole task: the first claim hands that line out and need not read the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, Lease, StageRecord, Task
from holdfast.stores import codec
from holdfast.stores.redis.client.client import Reply, by_name

Fields = dict[str, str]

log = logging.getLogger("holdfast.stores.redis.reads")

FIRST_CLAIMED = 2  # the version that the first claim of a task makes

encode = msgspec.json.Encoder().encode
_read_names = lru_cache(maxsize=1024)(msgspec.json.Decoder(tuple[str, ...]).decode)
decode_failure = msgspec.json.Decoder(Failure).decode
_decode_any = msgspec.json.Decoder().decode


def decimal(seconds: float) -> str:
    """Return the shortest text that is read as the same number; `repr` takes six times as long."""
    return encode(seconds).decode()


def iso(seconds: float) -> str:
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_iso_second(whole)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _iso_second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat()[:-6]


def day(seconds: float) -> str:
    return _iso_second(int(seconds) // 86_400 * 86_400)[:10]


def from_iso(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def write_flag(value: bool) -> str:
    return "true" if value else "false"


class Field(msgspec.Struct, frozen=True):
    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _text(value: str) -> str:
    return value


def write_json(value: object) -> str:
    return encode(value).decode()


@lru_cache(maxsize=1024)
def stage_names(stages: tuple[str, ...]) -> str:
    return write_json(stages)


# These values are left out of the record, whatever the defaults of the code may become.
KEEP_SECONDS = 30 * 86_400.0
_SILENT: dict[str, Any] = {"queue": "default", "keep_seconds": KEEP_SECONDS, "retry_max": 3}

# These never change after the submit.
_FIXED = {"type": Field("type", _text, _text), "created_at": Field("createdAt", iso, from_iso)}
_FIXED_OR_EMPTY = {"tenant": Field("tenantId", _text, _text), "plan": Field("planId", _text, _text)}
_FIXED_OPTIONAL = {
    "queue": Field("queue", _text, _text),
    "keep_seconds": Field("keepSeconds", decimal, float),
    "key": Field("key", _text, _text),
    "trace_id": Field("traceId", _text, _text),
    "user": Field("user", write_json, _decode_any),
    "callback": Field("callback", _text, _text),
    "effects": Field("effects", _text, _text),
    "workflow": Field("workflow", write_flag, read_flag),
    "hold": Field("hold", write_flag, read_flag),
}
# These are changed by decisions.
_KEPT = {
    "status": Field("status", str, Status),
    "status_since": Field("statusSince", decimal, float),
    "version": Field("version", str, int),
    # Those of the code when the task last ran.
    "stages": Field("stageNames", stage_names, _read_names),
}
_COMPLETED = {  # the first claim adds these
    "id": Field("taskId", _text, _text),
    "updated_at": Field("updatedAt", iso, from_iso),
    "last_completed": Field("lastCompletedStageIndex", str, int),
    "pause_requested": Field("pauseRequested", write_flag, read_flag),
}
_OPTIONAL = {
    "retry_max": Field("retryMax", str, int),
    "settled_at": Field("settledAt", decimal, float),
    "run": Field("run", str, int),
    "epoch": Field("epoch", str, int),
    "next_undo": Field("nextUndo", str, int),
    "cancel_requested": Field("cancelRequested", write_flag, read_flag),
    "reason": Field("reason", _text, _text),
    "failures": Field("failures", str, int),
    "crashes": Field("crashes", str, int),
    "lapses": Field("lapses", str, int),
    "forced": Field("forced", write_flag, read_flag),
    "interrupted": Field("interrupted", write_flag, read_flag),
    "unknown_since": Field("unknownSince", decimal, float),
    "outages": Field("outages", str, int),
    "outage_since": Field("outageSince", decimal, float),
    "ran_by": Field("ranBy", _text, _text),
    "failure": Field("failure", write_json, decode_failure),
}
# These are the store's own.
_PLACED = {
    "place": Field("place", str, Place),
    "order": Field("order", str, int),
    "due": Field("due", decimal, float),
    "fence": Field("fence", str, int),  # only if no lease contains it
}
_ALL = _FIXED | _FIXED_OR_EMPTY | _FIXED_OPTIONAL | _KEPT | _COMPLETED | _OPTIONAL | _PLACED
_MAY_BE_EMPTY = frozenset({"reason"})

DEFAULTS: Mapping[str, Any] = {
    field.name: field.default
    for field in msgspec.structs.fields(Task)
    if field.default is not msgspec.NODEFAULT
} | _SILENT


def _non_defaults(task: Task, fields: Mapping[str, Field]) -> Fields:
    """Return the fields whose values are not the default."""
    return {
        field.name: field.write(value)
        for name, field in fields.items()
        if (value := getattr(task, name)) != DEFAULTS[name]
    }


def first_record(task: Task) -> Fields:
    """Return the record of a task that waits for the first time."""
    fields = waiting(task)
    more = full(task)
    del more["taskId"]
    if task.updated_at == task.created_at:
        del more["updatedAt"]
    for name in ("last_completed", "pause_requested"):
        if getattr(task, name) == DEFAULTS[name]:
            del more[_COMPLETED[name].name]
    return dict(zip(fields[::2], fields[1::2], strict=True)) | more


def waiting(task: Task) -> list[str]:
    """Return the record of a task that is as a submit makes it, as names and values."""
    fields = [
        *("type", task.type, "tenantId", task.tenant or "", "planId", task.plan or ""),
        *("createdAt", iso(task.created_at), "status", task.status),
        *("statusSince", decimal(task.status_since), "version", str(task.version)),
        *("stageNames", stage_names(task.stages)),
    ]
    if _seldom(task) != _AS_EVER:
        fields += submitted_fields(task, SELDOM)
    return fields


def submitted_fields(task: Task, names: Iterable[str]) -> list[str]:
    """Return those of the named facts of a submit that are not the default, as names and values."""
    fields: list[str] = []
    for name in names:
        if (value := getattr(task, name)) != DEFAULTS[name]:
            field = _SUBMITTED[name]
            fields += (field.name, field.write(value))
    return fields


# The retry limit belongs to the stage; until a decision changes it, it is that of the submit.
_SUBMITTED = _FIXED_OPTIONAL | {"retry_max": _OPTIONAL["retry_max"]}
SELDOM = tuple(_SUBMITTED)  # the facts of a submit that are most often the default
_seldom = attrgetter(*SELDOM)
_AS_EVER = tuple(DEFAULTS[name] for name in SELDOM)


def full(task: Task) -> Fields:
    """Return all fields that decisions may have changed."""
    fields = {field.name: field.write(getattr(task, name)) for name, field in _KEPT.items()}
    fields |= {field.name: field.write(getattr(task, name)) for name, field in _COMPLETED.items()}
    fields |= _non_defaults(task, _OPTIONAL)
    if task.settled_at == task.status_since:
        fields.pop("settledAt", None)  # left out if it equals statusSince
    if task.failure is not None:
        fields["error"] = task.failure.fingerprint
    if task.suspended:
        fields["suspendedAt"] = decimal(task.updated_at)
    return fields


def changed_fields(before: Task, after: Task) -> tuple[list[str], list[str]]:
    """Return the names and values that a transition writes, and the names that it takes away.

    The stages are always written: the record follows the code's (see `Executor`), and the decision
    was made with the code's already.
    """
    fields = [
        *("stageNames", stage_names(after.stages), "version", str(after.version)),
        *("updatedAt", iso(after.updated_at)),
    ]
    if after.last_completed != before.last_completed:
        fields += ("lastCompletedStageIndex", str(after.last_completed))
    if after.status_since != before.status_since or after.status is not before.status:
        fields += ("status", after.status, "statusSince", decimal(after.status_since))
    if after.ran_by != before.ran_by and after.ran_by is not None:
        fields += ("ranBy", after.ran_by)
    gone = list[str]()
    if after.settled_at != before.settled_at:
        if after.settled_at is None:
            gone.append("settledAt")
        elif after.settled_at != after.status_since:
            fields += ("settledAt", decimal(after.settled_at))
    if not has_same_rare_facts(before, after):
        _add_rare(before, after, fields, gone)
    return fields, gone


def _add_rare(before: Task, after: Task, fields: list[str], gone: list[str]) -> None:
    codec.check_task(after)
    for name, was, value in zip(_RARE, _rarely(before), _rarely(after), strict=True):
        if value != was:
            field = _ALL[name]
            if name in _OPTIONAL and value == DEFAULTS[name]:
                gone.append(field.name)
            else:
                fields += (field.name, field.write(value))
    if after.failure != before.failure:
        if after.failure is not None:
            fields += ("error", after.failure.fingerprint)
        else:
            gone.append("error")
    if after.suspended:
        fields += ("suspendedAt", decimal(after.updated_at))
    elif before.suspended:
        gone.append("suspendedAt")


_OFTEN = ("settled_at", "ran_by")
_RARE = [*(name for name in _OPTIONAL if name not in _OFTEN), "pause_requested"]
_rarely = attrgetter(*_RARE)


def has_same_rare_facts(before: Task, after: Task) -> bool:
    """Return whether a transition changes none of the fields that are rarely written."""
    return _rarely(after) == _rarely(before) and not (after.suspended or before.suspended)


def grave(task: Task) -> str:
    """Return the name of a settled task in the list of the settled, as grave.lua makes it."""
    error = task.failure.fingerprint if task.failure else ""
    facts = task.id, task.tenant or "", task.plan or "", task.status, task.queue, error
    return "|".join((*facts, day(task.created_at), task.key or ""))


def name_value_list(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def texts(pairs: list[bytes]) -> Fields:
    """Return a reply of HGETALL as text; a record with other bytes cannot be read."""
    try:
        decoded = [text.decode() for text in pairs]
    except UnicodeDecodeError as error:
        raise SerialisationError(f"record cannot be read: {error}") from error
    return dict(zip(decoded[::2], decoded[1::2], strict=True))


def decode(task_id: str, fields: Mapping[str, str], until: float | None = None) -> Task:
    """Return the task of a record; ``until`` is the end of its lease, from the lease index."""
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
    return _build(task_id, fields, values, until)


def _build(
    task_id: str, fields: Mapping[str, str], values: dict[str, Any], until: float | None
) -> Task:
    values = _SILENT | values
    values.setdefault("updated_at", values.get("created_at"))
    if values["id"] != task_id:
        raise SerialisationError(f"task {task_id}: its record is that of {values['id']}")
    if values.get("place") is Place.SETTLED:
        values.setdefault("settled_at", values.get("status_since"))
    if lease_id := fields.get("leaseId"):
        values["fence"], _ = lease_facts(task_id, lease_id)
        if values.get("place") is Place.LEASED:
            values["lease"] = Lease(
                owner=fields.get("leaseOwner", ""),
                fence=values["fence"],
                id=lease_id,
                until=until if until is not None else 0.0,
            )
    missing = [field.name for name, field in (_FIXED | _KEPT).items() if name not in values]
    if missing:
        raise SerialisationError(f"task {task_id}: its record lacks {', '.join(missing)}")
    return Task(**values)


# -- leases


def lease_facts(task_id: str, lease_id: str) -> tuple[int, int]:
    """Return the fence, and the version that the claim made (claim.lua makes the id of them)."""
    try:
        _, _, fence, version = lease_id.split(":")
        return int(fence, 16), int(version)
    except ValueError:
        raise SerialisationError(f"task {task_id}: field leaseId cannot be read") from None


# -- what belongs to a task


def encode_stage(stage: StageRecord) -> tuple[str, str]:
    """Return the field and its value: a line of facts, then the result as it is."""
    facts = [stage.name, stage.duration_seconds, stage.run, stage.epoch]
    result = stage.result + codec.UNDO_MARKS[stage.undo]
    return str(stage.index), f"{write_json(facts)}\n{result.decode()}"


def decode_stages(pairs: list[bytes], fields: Mapping[str, str]) -> tuple[StageRecord, ...]:
    """Return the stages in order; the record itself may hold the only stage of a task."""
    if not pairs and not fields.get("stage0"):
        return ()
    stages = [
        decode_stage(index, body) for index, body in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    if only := fields.get("stage0"):
        stages.append(decode_stage(b"0", only.encode()))
    return tuple(sorted(stages, key=lambda stage: stage.index))


_decode_facts = msgspec.json.Decoder(tuple[str, float, int, int]).decode


def decode_stage(index: bytes, body: bytes) -> StageRecord:
    facts, _, result = body.partition(b"\n")
    try:
        name, duration, run, epoch = _decode_facts(facts)
        result, undo = codec.read_undo(result)
        return StageRecord(
            index=int(index),
            name=name,
            result=result,
            duration_seconds=duration,
            run=run,
            epoch=epoch,
            undo=undo,
        )
    except (ValueError, msgspec.DecodeError) as error:
        raise SerialisationError(f"stage {index!r} cannot be read: {error}") from error


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


def readable(task_id: str, reply: Reply) -> Task | None:
    """Return the task of a reply, or None if it cannot be read, which `doctor` reports."""
    try:
        if "wrong" in reply:  # the server's message about the record
            raise SerialisationError(reply["wrong"].decode())
        until = reply.get("lease_until")
        fields = texts(reply["fields"])
        return decode(task_id, fields, float(until) if until is not None else None)
    except SerialisationError as error:
        log.warning("task %s is unreadable; see `holdfast doctor`: %s", task_id, error)
        return None


def loaded_task(task_id: str, reply: Any) -> Task | None:
    """Return the task of a reply of load.lua."""
    return readable(task_id, by_name(reply)) if reply is not None else None


def saves(task: Task) -> int:
    """Return 1 if the task counts among the checkpoints of unsettled tasks, else 0."""
    return int(task.last_completed >= 0 and not task.settled)
