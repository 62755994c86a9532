"""A task as it was born, in one line before its payload: what its first claim hands out."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.state import START, Status
from holdfast.domain.task import Lease, Place, Task
from holdfast.stores.redis.record import DEFAULTS

encode = msgspec.json.Encoder().encode


class _Born(msgspec.Struct, array_like=True, frozen=True, gc=False):
    type: str
    status: Status
    created_at: float
    stages: tuple[str, ...]
    tenant: str | None
    plan: str | None
    queue: str
    key: str | None
    trace_id: str | None
    user: Any
    workflow: bool
    hold: bool
    keep_seconds: float
    retry_max: int


FIRST_CLAIMED = 2  # the version that the first claim of a task as it was born makes

_decode_born = msgspec.json.Decoder(_Born).decode
_LATER = slice(*map(Task.__struct_fields__.index, ("settled_at", "place")))
_NOTHING = tuple(DEFAULTS[name] for name in Task.__struct_fields__[_LATER])


def is_just_born(task: Task) -> bool:
    """As a submit makes it."""
    nothing = msgspec.structs.astuple(task)[_LATER] == _NOTHING
    return nothing and task.created_at == task.updated_at == task.status_since


def line_of(task: Task) -> bytes:
    """One line, which can be read again, or none if there is more to be told."""
    if not is_just_born(task):
        return b""
    line = encode(
        _Born(
            task.type,
            task.status,
            round(task.created_at, 6),  # as the record says it
            task.stages,
            task.tenant,
            task.plan,
            task.queue,
            task.key,
            task.trace_id,
            task.user,
            task.workflow,
            task.hold,
            task.keep_seconds,
            task.retry_max,
        )
    )
    _read_born(task.id, line)  # constructors check no types
    return line


def _read_born(task_id: str, line: bytes) -> _Born:
    try:
        return _decode_born(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SerialisationError(f"task {task_id}: its line cannot be read: {error}") from error


def first_claimed(task_id: str, line: bytes, *, lease: Lease, order: int, wall: float) -> Task:
    """The record as its first claim has made it."""
    of = _read_born(task_id, line)
    status = START.to[of.status]
    return Task(
        id=task_id,
        type=of.type,
        tenant=of.tenant,
        plan=of.plan,
        queue=of.queue,
        key=of.key,
        trace_id=of.trace_id,
        user=of.user,
        stages=of.stages,
        workflow=of.workflow,
        hold=of.hold,
        keep_seconds=of.keep_seconds,
        retry_max=of.retry_max,
        created_at=of.created_at,
        status=status,
        status_since=wall if status is not of.status else of.created_at,
        updated_at=wall,
        version=FIRST_CLAIMED,
        place=Place.LEASED,
        order=order,
        lease=lease,
        fence=lease.fence,
    )
