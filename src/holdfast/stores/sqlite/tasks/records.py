"""A task as its record and as its rows.

`head` is the record as it was submitted, and can be read by itself. `rest` has the fields that
decisions change, and columns have what the store itself changes or searches for. A lease overrides
them: to hand a task out, the store writes nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import START, Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Lease, StageRecord, Task
from holdfast.stores import codec

log = logging.getLogger("holdfast.stores.sqlite.reads")

astuple = msgspec.structs.astuple
replace = msgspec.structs.replace

STATUSES = {str(status): status for status in Status}
PLACES = {str(place): place for place in Place}

_FIELDS = msgspec.structs.fields(Task)
_FIRST, _LAST = ([f.name for f in _FIELDS].index(name) for name in ("run", "failure"))
_CHANGING = _FIELDS[_FIRST : _LAST + 1]
# A field that is not written has this value, whatever the defaults of a later `Task` may be.
_UNSAID: dict[str, Any] = {
    "run": 1, "epoch": 1, "last_completed": -1, "next_undo": -1, "pause_requested": False,
    "cancel_requested": False, "reason": None, "failures": 0, "crashes": 0, "lapses": 0,
    "forced": False, "interrupted": False, "unknown_since": None, "outages": 0,
    "outage_since": None, "ran_by": None, "failure": None,
}  # fmt: skip
Mutable = msgspec.defstruct(
    "Mutable", [(field.name, field.type, _UNSAID[field.name]) for field in _CHANGING],
    omit_defaults=True, frozen=True, gc=False,
)  # fmt: skip
_decode_mutable = msgspec.json.Decoder(Mutable).decode
_decode_task = msgspec.json.Decoder(Task).decode
_NAMES = Mutable.__struct_fields__
# A head leaves out empty fields, fields that decisions have not changed yet, and columns.
LEFT_OUT = {f.name: f.default for f in _FIELDS if f.default is None or f.default is False}
LEFT_OUT |= _UNSAID | {"version": 1, "place": Place.READY, "order": 0, "fence": 0}
_Submitted = msgspec.defstruct(
    "_Submitted", [(field.name, Any, LEFT_OUT.get(field.name, msgspec.UNSET)) for field in _FIELDS],
    omit_defaults=True, gc=False,
)  # fmt: skip


class TaskPosition(NamedTuple):
    """The place and the lease of a task: all that a write has to be compared with."""

    id: str
    n: int
    queue: str
    version: int
    place: str
    ready: int | None
    due: float | None
    fence: int
    settled_at: float | None
    lease_version: int | None
    lease_at: float
    lease_id: str | None
    owner: str
    lease_fence: int
    until: float
    checkpoint: int | None = None

    @property
    def present(self) -> int:
        """Return the task's version, including the one that handing it out has made."""
        handed_out = self.lease_version
        return self.version if handed_out is None or handed_out < self.version else handed_out

    @property
    def started(self) -> tuple[float, str, int] | None:
        """Return the facts of handing the task out, until a write has stored them."""
        if self.lease_version is None or self.lease_version <= self.version:
            return None
        return self.lease_at, self.owner, self.lease_fence

    @property
    def lease(self) -> Lease | None:
        if self.lease_id is None:
            return None
        return Lease(owner=self.owner, fence=self.lease_fence, id=self.lease_id, until=self.until)


class RecordRow(NamedTuple):
    """A row of `records`: a task's position and its record."""

    position: TaskPosition
    submitted: str
    status: str
    since: float
    at: float
    mutable: str | None


def record_row(values: Sequence[Any]) -> RecordRow:
    return RecordRow(TaskPosition(*values[:15]), *values[15:])


def task_of(row: RecordRow) -> Task:
    """Return the task as it is, or raise SerialisationError."""
    position, status, since, at = row.position, STATUSES.get(row.status), row.since, row.at
    place, lease = PLACES.get(position.place), position.lease
    if status is None or place is None:
        raise SerialisationError(f"task {position.id!r} is {row.status!r} and {position.place!r}")
    if lease is not None:
        before, status, place = status, START.to.get(status, status), Place.LEASED
        since = since if status is before else position.lease_at
        at = at if position.started is None else position.lease_at
    return stored_task(
        row.submitted,
        row.mutable,
        status=status,
        status_since=since,
        updated_at=at,
        settled_at=position.settled_at,
        version=position.present,
        place=place,
        order=position.n,
        due=position.due,
        lease=lease,
        fence=lease.fence if lease else position.fence,
    )


def readable(row: RecordRow) -> Task | None:
    """Return the task, or None where it cannot be read; `doctor` reports it."""
    try:
        return task_of(row)
    except SerialisationError as error:
        log.warning("task %s is unreadable; see `holdfast doctor`: %s", row.position.id, error)
        return None


def stored_task(submitted: str | bytes, mutable: str | None, **columns: Any) -> Task:
    """Build a task from what was submitted, what decisions have changed since, and its columns."""
    try:
        task = _decode_task(submitted)
        if mutable is not None:
            columns |= zip(_NAMES, astuple(_decode_mutable(mutable)), strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise SerialisationError(f"Task cannot be read: {error}") from error
    return replace(task, **columns)


def counted_as(place: str, status: str, leased: int) -> tuple[str, str]:
    """Return the place and status that a task counts as: a lease overrides the row."""
    if not leased:
        return place, status
    before = STATUSES.get(status)
    return Place.LEASED, (START.to.get(before, before) if before else status)


def indexed_columns(task: Task) -> tuple[float | None, float | None, str | None]:
    """Return the columns `keep_until`, `suspended_at` and `error`, which follow from the record."""
    settled_at, failure = task.settled_at, task.failure
    return (
        None if settled_at is None else settled_at + task.keep_seconds,
        task.updated_at if task.suspended else None,
        None if failure is None else failure.fingerprint,
    )


def mutable_json(task: Task) -> msgspec.Raw:
    """Encode the part of a record that decisions change."""
    mutable = Mutable(*astuple(task)[_FIRST : _LAST + 1])
    return msgspec.Raw(checked_json(mutable, f"task {task.id!r}", _decode_mutable))


def submitted_json(task: Task) -> msgspec.Raw:
    """Encode a record as it is submitted."""
    submitted = _Submitted(*astuple(task))
    return msgspec.Raw(checked_json(submitted, f"task {task.id!r}", _decode_task))


def checked_json(record: msgspec.Struct, name: str, decode: Callable[[bytes], object]) -> bytes:
    """Encode a record; refuse one that could be written and never read again."""
    try:
        body = codec.encode(record)
        decode(body)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise SerialisationError(f"{name} cannot be written: {error}") from error
    return body


# -- events, without the task and the version, which the row has

_FACTS = {kind: (name, attrgetter(*kind.__struct_fields__[2:])) for name, kind in ev.KINDS.items()}


def pack_events(events: Iterable[ev.Event]) -> list[tuple[str, Any]]:
    return [(name, facts(e)) for e in events for name, facts in (_FACTS[type(e)],)]


def unpack_events(task_id: str, version: int, body: str) -> Iterator[ev.Event]:
    try:
        for name, facts in msgspec.json.decode(body, type=list[tuple[str, Any]]):
            kind = ev.KINDS[name]
            values = facts if isinstance(facts, list) else (facts,)
            named = dict(zip(kind.__struct_encode_fields__[2:], values, strict=False))
            named |= {"taskId": task_id, "version": version}
            yield msgspec.convert(named, kind)
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise SerialisationError(f"events of version {version} cannot be read: {error}") from error


def started_event(task_id: str, version: int, at: float, worker: str, fence: int) -> ev.Event:
    return ev.made_by_store(
        START.event, task_id=task_id, version=version, at=at, worker=worker, fence=fence
    )


# -- results and data of stages


def pack_stage(stage: StageRecord) -> tuple[Any, ...]:
    return stage.index, stage.name, stage.duration_seconds, stage.run, stage.epoch


class StageBodies(NamedTuple):
    """The stored results of stages, the task's result, and its data."""

    stages: tuple[StageRecord, ...] = ()
    result: bytes | None = None
    data: bytes | None = None


def bodies_of(rows: Iterable[tuple[str | None, ...]]) -> StageBodies:
    """Return the bodies that a task's writes stored; a later one replaces an earlier one."""
    stages: dict[int, StageRecord] = {}
    task_result, last_data = None, None
    for stage, result, outcome, data in rows:
        if stage is not None:
            index, name, seconds, run, epoch = msgspec.json.decode(stage)
            body, undo = codec.read_undo((result or "").encode())
            stages[index] = StageRecord(
                index=index, name=name, result=body,
                duration_seconds=seconds, run=run, epoch=epoch, undo=undo,
            )  # fmt: skip
        task_result, last_data = outcome or task_result, data or last_data
    return StageBodies(
        tuple(stages[index] for index in sorted(stages)),
        None if task_result is None else task_result.encode(),
        None if last_data is None else last_data.encode(),
    )
