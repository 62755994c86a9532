"""A submission as it is packed for insert.lua, and the task that its first claim hands out.

As long as a task has only been submitted, one line before its payload holds all of it. The first
claim hands that line out and need not read the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError, StoreError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import START, Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import (
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    IntakeClosed,
    Submission,
)
from holdfast.ports import Claimed
from holdfast.stores import codec
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.client import pack
from holdfast.stores.redis.encoding import record
from holdfast.stores.redis.encoding.event_log import encode_events
from holdfast.stores.redis.encoding.record import DEFAULTS, saves

DIGEST_CHARS = 32  # 128 bits tell two payloads apart


class _Submission(msgspec.Struct, omit_defaults=True, gc=False):
    """A submission for insert.lua: without absent facts, and with JSON as text."""

    id: str
    type: str
    queue: str
    status: str
    version: str
    day: str
    fields: list[str]
    payload: str
    tenant: str | None = None
    plan: str | None = None
    key: str | None = None
    digest: str | None = None
    error: str | None = None
    suspended_at: str | None = None
    held: bool = False
    events: str | None = None
    saves: int = 0  # checkpoints of unsettled tasks: one more


def packed_submission(submission: Submission) -> bytes:
    task, events = submission.task, submission.events
    try:
        line = submitted_text_of(task)
        if not line:
            codec.check_task(task)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise SerialisationError(f"task {task.id!r} cannot be written: {error}") from error
    return pack(
        _Submission(
            id=task.id,
            type=task.type,
            queue=task.queue,
            digest=submission.digest[:DIGEST_CHARS] if task.key is not None else None,
            status=task.status,
            version=str(task.version),
            day=record.day(task.created_at),
            fields=record.waiting(task)
            if line
            else record.name_value_list(record.first_record(task)),
            payload=as_text(task, b"%b\n%b" % (line, submission.payload)),
            tenant=task.tenant,
            plan=task.plan,
            key=task.key,
            error=task.failure.fingerprint if task.failure else None,
            suspended_at=record.decimal(task.updated_at) if task.suspended else None,
            held=submission.held,
            events=None if events == created_events(task) else encode_events(events),
            saves=saves(task),
        )
    )


def packed_follows(submissions: Sequence[Submission]) -> list[msgspec.Raw] | None:
    """Pack the follow-up tasks, or return None if there are none, which is the usual case."""
    return [msgspec.Raw(packed_submission(submission)) for submission in submissions] or None


def as_text(task: Task, body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise SerialisationError(f"task {task.id!r} cannot be written: {error}") from error


def created_events(task: Task) -> tuple[ev.Event, ...]:
    """Return the usual events of the first version, which say no more than the record does."""
    return (
        ev.TaskCreated(
            task_id=task.id, version=1, at=task.created_at, type=task.type, tenant=task.tenant
        ),
    )


_INSERTIONS: dict[bytes, Callable[[str], Insertion]] = {
    b"inserted": Inserted,
    b"existing": Existing,
    b"conflict": Conflict,
    b"full": Full,
    b"shut": IntakeClosed,
}


def insertion_of(word: bytes, name: str, where: str) -> Insertion | StoreError:
    if word == b"foreign":
        return faults.foreign([name], where)
    return _INSERTIONS[word](name)


# -- the line before the payload


class _SubmittedTask(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A task as it was submitted; the facts that are most often the default come last."""

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


_facts = attrgetter(*_SubmittedTask.__struct_fields__)
_AS_EVER = tuple(field.default for field in msgspec.structs.fields(_SubmittedTask))
LEAST = 3  # facts that every line has

_decode_submitted = msgspec.json.Decoder(_SubmittedTask).decode
_LATER = slice(*map(Task.__struct_fields__.index, ("settled_at", "place")))
_NOTHING = tuple(DEFAULTS[name] for name in Task.__struct_fields__[_LATER])


def is_as_submitted(task: Task) -> bool:
    """Return whether the task is as a submit makes it."""
    nothing = msgspec.structs.astuple(task)[_LATER] == _NOTHING
    return nothing and task.created_at == task.updated_at == task.status_since


def submitted_text_of(task: Task) -> bytes:
    """Return the task as one line, or nothing if it is not as a submit makes it."""
    if not is_as_submitted(task):
        return b""
    facts = list(_facts(task))
    facts[1] = round(task.created_at, 6)  # as in the record
    while len(facts) > LEAST and facts[-1] == _AS_EVER[len(facts) - 1]:
        facts.pop()
    line = record.encode(facts)
    _read_submitted(task.id, line)  # constructors check no types
    return line


def _read_submitted(task_id: str, line: bytes) -> _SubmittedTask:
    try:
        return _decode_submitted(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SerialisationError(f"task {task_id}: its line cannot be read: {error}") from error


_KINDS_MAX = 1024  # kinds of tasks whose model is kept
_KIND = ("type", "stages", "queue", "workflow", "hold", "keep_seconds", "status")
_kind = attrgetter(*_KIND)


@lru_cache(maxsize=_KINDS_MAX)
def _first_claimed_model(kind: tuple[Any, ...]) -> Task:
    """Return a task with what is the same for all of a kind: a copy of it costs far less."""
    facts = dict(zip(_KIND, kind, strict=True))
    return Task(
        **facts | {"status": START.to[facts["status"]]},
        id="",
        created_at=0.0,
        status_since=0.0,
        updated_at=0.0,
        version=record.FIRST_CLAIMED,
        place=Place.LEASED,
    )


def first_claimed(task_id: str, line: bytes, *, lease: Lease, order: int, wall: float) -> Task:
    """Return the task as its first claim has made it."""
    of = _read_submitted(task_id, line)
    model = _first_claimed_model(_kind(of))
    return msgspec.structs.replace(
        model,
        id=task_id,
        tenant=of.tenant,
        plan=of.plan,
        key=of.key,
        trace_id=of.trace_id,
        user=of.user,
        callback=of.callback,
        effects=of.effects,
        retry_max=of.retry_max,
        created_at=of.created_at,
        status_since=wall if model.status is not of.status else of.created_at,
        updated_at=wall,
        order=order,
        lease=lease,
        fence=lease.fence,
    )


class ClaimLease(msgspec.Struct, frozen=True, gc=False):
    """The facts that the leases of one claim have in common."""

    owner: str
    until: float
    wall: float


def first_claimed_of(parts: Sequence[bytes], lease: ClaimLease) -> Claimed:
    """Return a task that is handed out for the first time, as it was submitted."""
    id_, body, lease_id, order = parts
    task_id = id_.decode()
    line, _, payload = body.partition(b"\n")
    name = lease_id.decode()
    fence, _ = record.lease_facts(task_id, name)
    held = Lease(owner=lease.owner, fence=fence, id=name, until=lease.until)
    task = first_claimed(task_id, line, lease=held, order=int(order), wall=lease.wall)
    return Claimed(
        task=task, payload=payload, checkpoint=None, data=None, stages=(), moved_on=False
    )
