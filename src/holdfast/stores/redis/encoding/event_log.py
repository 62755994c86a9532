"""The elements of a task's list of events: one for each version, with the request that made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import START
from holdfast.domain.task.task import Task
from holdfast.stores.redis.encoding import record

_MADE_BY_STORE = {
    "TaskStarted": ("worker", "fence"),
    "LeaseLost": ("worker", "fence", "counted"),
    "TaskDue": (),
}


# An event as its task's list stores it: without the task and the version, which the list has.
_SHORT = {
    kind: msgspec.defstruct(
        name,
        [(f.name, f.type, f.default) for f in msgspec.structs.fields(kind)[2:]],
        array_like=True,
        gc=False,
        tag=name,
        tag_field="event",
    )
    for name, kind in ev.KINDS.items()
}
_KIND_OF = {short: kind for kind, short in _SHORT.items()}
_decode_short: Callable[[bytes], list[msgspec.Struct]] = msgspec.json.Decoder(
    list[Union[tuple(_SHORT.values())]]  # type: ignore[misc]  # noqa: UP007
).decode


def encode_events(events: Sequence[ev.Event]) -> str:
    short = [_SHORT[type(event)](*msgspec.structs.astuple(event)[2:]) for event in events]
    return record.encode(short).decode()


def _straight(task_id: str, version: int, facts: str) -> list[ev.Event]:
    """Return the events of a straight run, by when its stage began and ended, and the stage."""
    began_at, ended_at, stage = facts.split("\n", 2)
    kept = record.decode_stage(b"0", stage.encode())
    of: dict[str, Any] = {"task_id": task_id, "version": version}
    return [
        ev.StageStarted(**of, at=float(began_at), stage=kept.name, attempt=1, run=kept.run),
        ev.StageCompleted(
            **of,
            at=float(ended_at),
            stage=kept.name,
            run=kept.run,
            epoch=kept.epoch,
            duration_seconds=kept.duration_seconds,
        ),
        ev.TaskCompleted(**of, at=float(ended_at)),
    ]


def decode_events(task_id: str, element: bytes) -> list[ev.Event]:
    """Return the events in one element of a task's list: those of one version."""
    try:
        version, _, body = element.split(b"\n", 2)
        if body.startswith(b"ran\n"):
            return _straight(task_id, int(version), body[4:].decode())
        if body.startswith(b"["):
            return [
                _KIND_OF[type(short)](
                    task_id=task_id, version=int(version), **msgspec.structs.asdict(short)
                )
                for short in _decode_short(body)
            ]
        name, at, *facts = body.decode().split("\n")
        values: dict[str, Any] = dict(zip(_MADE_BY_STORE[name], facts, strict=True))
        if "fence" in values:
            values["fence"] = int(values["fence"])
        if "counted" in values:
            values["counted"] = values["counted"] == "1"
        moment = record.from_iso(at) if at.endswith("Z") else float(at)
        return [ev.made_by_store(name, task_id=task_id, version=int(version), at=moment, **values)]
    except (ValueError, KeyError, msgspec.DecodeError) as error:
        raise SerialisationError(f"task {task_id}: an event cannot be read: {error}") from error


def is_start_implied(task: Task, lease_id: str) -> bool:
    """Return whether only the lease shows that the task was started."""
    return lease_id.rpartition(":")[2] == str(task.version)


def start_element(task: Task, owner: str) -> str:
    """Return the element for the start of a task, as tasks/shared/event_log.lua makes it."""
    facts = str(task.version), "", START.event, record.iso(task.updated_at), owner, str(task.fence)
    return "\n".join(facts)


def implied_events(task: Task, fields: Mapping[str, str]) -> list[ev.Event]:
    """Return the events that only the record implies, and the list does not contain."""
    if ran := fields.get("ran"):
        start, _, began = ran.partition(" ")
        facts = "\n".join((began, record.decimal(task.status_since), fields.get("stage0", "")))
        start_element = _start_event(task, fields, record.FIRST_CLAIMED, float(start))
        return [start_element, *_straight(task.id, task.version, facts)]
    if is_start_implied(task, fields.get("leaseId", "")):
        return [_start_event(task, fields, task.version, task.updated_at)]
    return []


def _start_event(task: Task, fields: Mapping[str, str], version: int, at: float) -> ev.Event:
    return ev.made_by_store(
        START.event,
        task_id=task.id,
        version=version,
        at=at,
        worker=fields.get("leaseOwner") or fields.get("ranBy", ""),
        fence=task.fence,
    )
