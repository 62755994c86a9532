"""A task as it was born, in one line before its payload: what its first claim hands out."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.placement import START, Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Lease, Task
from holdfast.stores.redis.encoding.record import DEFAULTS

encode = msgspec.json.Encoder().encode


class _Born(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is most often as ever comes last: it is left out."""

    type: str
    created_at: float
    stages: tuple[str, ...]
    tenant: str | None = None
    key: str | None = None
    workflow: bool = False
    hold: bool = False
    queue: str = DEFAULTS["queue"]
    plan: str | None = None
    trace_id: str | None = None
    user: Any = None
    keep_seconds: float = DEFAULTS["keep_seconds"]
    retry_max: int = DEFAULTS["retry_max"]
    status: Status = Status.PENDING
    callback: str | None = None
    effects: str | None = None


FIRST_CLAIMED = 2  # the version that the first claim of a task as it was born makes

_facts = attrgetter(*_Born.__struct_fields__)
_AS_EVER = tuple(field.default for field in msgspec.structs.fields(_Born))
LEAST = 3  # facts of a line

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
    facts = list(_facts(task))
    facts[1] = round(task.created_at, 6)  # as the record says it
    while len(facts) > LEAST and facts[-1] == _AS_EVER[len(facts) - 1]:
        facts.pop()
    line = encode(facts)
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
        callback=of.callback,
        effects=of.effects,
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
