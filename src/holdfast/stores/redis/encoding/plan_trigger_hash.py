"""Triggers and plans as hashes of plain fields, without the fields that are None.

Times that the documents name are written in ISO format, to the microsecond. So the caller gets the
record back as it will be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import (
    HaltRule,
    MemberState,
    OnHalt,
    Plan,
    PlanStatus,
    PlanTasks,
    TenantConflict,
)
from holdfast.domain.task.task import Lease
from holdfast.domain.trigger.schedule import Schedule
from holdfast.domain.trigger.trigger import Misfire, Overlap, Trigger, TriggerStatus
from holdfast.stores.redis.encoding.record import (
    Field,
    Fields,
    from_iso,
    iso,
    name_value_list,
    read_flag,
    texts,
    write_flag,
    write_json,
)

_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode

CANNOT_BE_WRITTEN = (
    *(AttributeError, TypeError, ValueError, OverflowError, OSError),
    msgspec.MsgspecError,
)


def _json(name: str, kind: Any) -> Field:
    return Field(name, write_json, msgspec.json.Decoder(kind).decode)


def _text(name: str) -> Field:
    return Field(name, lambda value: "" + value, str)


def _enum(name: str, kind: Callable[[str], Any]) -> Field:
    return Field(name, lambda value: str(kind(value)), kind)


def _time(name: str) -> Field:
    return Field(name, iso, from_iso)


def _number(name: str) -> Field:
    return Field(name, lambda value: repr(float(value)), float)


def _count(name: str) -> Field:
    return Field(name, lambda value: str(int(value)), int)


def _flag(name: str) -> Field:
    return Field(name, write_flag, read_flag)


TRIGGER: Mapping[str, Field] = {
    "id": _text("id"),
    "target": _text("target"),
    "payload": Field("payload", lambda raw: bytes(raw).decode(), _decode_raw),
    "tenant": _text("tenant"),
    "queue": _text("queue"),
    "user": _json("user", Any),
    "misfire": _enum("misfire", Misfire),
    "catch_up_max": _count("catchUpMax"),
    "grace_seconds": _number("graceSeconds"),
    "overlap": _enum("overlap", Overlap),
    "jitter_seconds": _number("jitterSeconds"),
    "declared": _flag("declared"),
    "keep_seconds": _number("keepSeconds"),
    "created_at": _time("createdAt"),
    "status": _enum("status", TriggerStatus),
    "version": _count("version"),
    "fire_time": _number("fireTime"),
    "trigger_at": _time("triggerAt"),
    "updated_at": _time("updatedAt"),
    "ended_at": _number("endedAt"),
    "retry_count": _count("retryCount"),
    "unknown_since": _number("unknownSince"),
    "last_fire_time": _number("lastFireTime"),
    "last_task": _text("lastTask"),
    "fired": _count("fired"),
    "missed": _count("missed"),
    "reason": _text("reason"),
    "request": _text("request"),
    "asked": _text("asked"),
    "owner": _text("owner"),
    "lease_until": _number("leaseUntil"),
}
_SCHEDULE = ("kind", "at", "seconds", "start", "expression", "tz")

PLAN: Mapping[str, Field] = {
    "id": _text("planId"),
    "total": _count("total"),
    "digest": _text("digest"),
    "max_concurrency": _count("maxConcurrency"),
    "waves": _json("waves", tuple[int, ...]),
    "soak_seconds": _number("soakSeconds"),
    "halt_on": _json("haltOn", HaltRule),
    "on_halt": _enum("onHalt", OnHalt),
    "conflict": _enum("conflict", TenantConflict),
    "keep_seconds": _number("keepSeconds"),
    "created_at": _time("createdAt"),
    "status": _enum("status", PlanStatus),
    "status_since": _number("statusSince"),
    "updated_at": _time("updatedAt"),
    "started_at": _number("startedAt"),
    "settled_at": _number("settledAt"),
    "version": _count("version"),
    "wave": _count("wave"),
    "wave_ran": _flag("waveRan"),
    "soaks_since": _number("soaksSince"),
    "counts": _json("counts", tuple[dict[MemberState, int], ...]),
    "forgiven": _count("forgiven"),
    "undo_from": _count("undoFrom"),
    "undo_upto": _count("undoUpto"),
    "undo_forced": _flag("undoForced"),
    "cancel_requested": _flag("cancelRequested"),
    "progress": _number("progress"),
    "reason": _text("reason"),
    "request": _text("request"),
    "asked": _text("asked"),
}
# These fields are the store's own: only the scripts write them.
_LEASE = ("leaseOwner", "leaseId", "leaseUntil", "fence")
PLAN_NAMES = (*(field.name for field in PLAN.values()), *_LEASE)  # without the list of its tasks
TASKS, TENANTS = _json("taskIds", tuple[str, ...]), _json("tenants", tuple[str | None, ...])


_ALWAYS_OF_A_TRIGGER = ("id", "target", "created_at", "status", "version", "updated_at")
_ALWAYS_OF_A_PLAN = (
    *("id", "total", "digest", "waves", "created_at", "status", "status_since", "updated_at"),
    *("version", "counts"),
)


class Written(msgspec.Struct, frozen=True):
    """The names and values that go into a hash, and the names that are taken out."""

    fields: list[str]
    gone: list[str]


def write_trigger(trigger: Trigger) -> tuple[Trigger, Written]:
    """Check the types, and return the trigger as it will be read and the fields to write."""
    try:
        fields = _non_defaults(trigger, TRIGGER)
        schedule = msgspec.to_builtins(trigger.schedule)
        fields |= {name: str(value) for name, value in schedule.items()}
        written = _as_written(fields, (*(field.name for field in TRIGGER.values()), *_SCHEDULE))
        return read_trigger(trigger.id, fields), written
    except (*CANNOT_BE_WRITTEN, SerialisationError) as error:
        raise SerialisationError(f"trigger {trigger.id!r} cannot be written: {error}") from error


def trigger_of(trigger_id: str, pairs: list[bytes]) -> Trigger:
    """Return the trigger in a reply of HGETALL."""
    return read_trigger(trigger_id, _texts(f"trigger {trigger_id}", pairs))


def read_trigger(trigger_id: str, fields: Mapping[str, str]) -> Trigger:
    what = f"trigger {trigger_id}"
    values = _values(what, fields, TRIGGER, _ALWAYS_OF_A_TRIGGER)
    schedule_fields = {name: fields[name] for name in _SCHEDULE if name in fields}
    try:
        schedule = msgspec.convert(schedule_fields, Schedule, strict=False)
    except msgspec.ValidationError as error:
        raise SerialisationError(f"{what}: its schedule cannot be read: {error}") from error
    values = {"fire_time": None, "trigger_at": None, "schedule": schedule} | values
    trigger = Trigger(**values)
    if trigger.id != trigger_id:
        raise SerialisationError(f"{what}: its record is that of {trigger.id}")
    return trigger


def write_plan(plan: Plan) -> Written:
    try:
        fields = _non_defaults(plan, PLAN)
        read_plan(plan.id, fields)
        return _as_written(fields, [field.name for field in PLAN.values()])
    except (*CANNOT_BE_WRITTEN, SerialisationError) as error:
        raise SerialisationError(f"plan {plan.id!r} cannot be written: {error}") from error


def plan_of(plan_id: str, values: Sequence[bytes | None]) -> Plan:
    """Return the plan in a reply of HMGET with `PLAN_NAMES`."""
    named = zip(PLAN_NAMES, values, strict=True)
    pairs = [(name.encode(), value) for name, value in named if value is not None]
    return read_plan(plan_id, _texts(f"plan {plan_id}", [word for pair in pairs for word in pair]))


def read_plan(plan_id: str, fields: Mapping[str, str]) -> Plan:
    what = f"plan {plan_id}"
    values = _values(what, fields, PLAN, _ALWAYS_OF_A_PLAN)
    owner, lease_id, until, fence = (fields.get(name) for name in _LEASE)
    try:
        values["fence"] = int(fence or 0)
        if lease_id:
            values["lease"] = Lease(
                owner=owner or "", fence=values["fence"], id=lease_id, until=float(until or 0)
            )
    except ValueError as error:
        raise SerialisationError(f"{what}: its lease cannot be read: {error}") from error
    plan = Plan(**values)
    if plan.id != plan_id:
        raise SerialisationError(f"{what}: its record is that of {plan.id}")
    if len(plan.counts) != len(plan.waves):
        raise SerialisationError(f"{what}: it has {len(plan.waves)} waves, and counts of others")
    return plan


def write_tasks(tasks: PlanTasks) -> list[str]:
    return [TASKS.name, TASKS.write(tasks.ids), TENANTS.name, TENANTS.write(tasks.tenants)]


def read_tasks(plan_id: str, ids: bytes, tenants: bytes) -> PlanTasks:
    try:
        return PlanTasks(ids=TASKS.read(ids.decode()), tenants=TENANTS.read(tenants.decode()))
    except (ValueError, msgspec.DecodeError) as error:
        raise SerialisationError(f"plan {plan_id}: its tasks cannot be read: {error}") from error


def _texts(what: str, pairs: list[bytes]) -> Fields:
    try:
        return texts(pairs)
    except SerialisationError as error:
        raise SerialisationError(f"{what}: {error}") from error


def _non_defaults(record: object, table: Mapping[str, Field]) -> Fields:
    return {
        field.name: field.write(value)
        for name, field in table.items()
        if (value := getattr(record, name)) is not None
    }


def _as_written(fields: Fields, names: Sequence[str]) -> Written:
    flat = name_value_list(fields)
    "".join(flat).encode()  # a lone surrogate cannot be written
    return Written(flat, [name for name in names if name not in fields])


def _values(
    what: str, fields: Mapping[str, str], table: Mapping[str, Field], always: Sequence[str]
) -> dict[str, Any]:
    """Return the values of a record; the names in ``always`` must be among them."""
    values: dict[str, Any] = {}
    for name, field in table.items():
        if (text := fields.get(field.name)) is None:
            continue
        try:
            values[name] = field.read(text)
        except (ValueError, OverflowError, msgspec.DecodeError) as error:
            raise SerialisationError(
                f"{what}: field {field.name} cannot be read: {error}"
            ) from error
    missing = [table[name].name for name in always if name not in values]
    if missing:
        raise SerialisationError(f"{what}: its record lacks {', '.join(missing)}")
    return values
