"""Records as the stores write them: JSON, and whatever cannot be read is a SerialisationError."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.errors import InvalidInput, SerialisationError
from holdfast.domain.plan.plan import Plan, PlanTasks
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import events as ev
from holdfast.domain.task.task import Progress, Task
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Beat, Peek, SwitchSetting

S = TypeVar("S")
T = TypeVar("T")

log = logging.getLogger("holdfast.stores.codec")

encode = msgspec.json.Encoder().encode


def _default(value: object) -> object:
    return value if value is None or value is False else msgspec.UNSET


# A task without its empty fields: nearly half of a record says None or False. The other defaults
# are policy, may change with the code, and are always written.
_Record = msgspec.defstruct(
    "_Record",
    [(field.name, Any, _default(field.default)) for field in msgspec.structs.fields(Task)],
    omit_defaults=True,
)


def encode_task(task: Task) -> bytes:
    return encode(_Record(*msgspec.structs.astuple(task)))


def check(
    name: str, record: T, decode: Callable[[bytes], T], encode: Callable[[T], bytes] = encode
) -> None:
    """Refuse what could be written and never read again: constructors check no types."""
    try:
        body = encode(record)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise SerialisationError(f"{name} cannot be written: {error}") from error
    decode(body)


def check_task(task: Task) -> None:
    check(f"task {task.id!r}", task, decode_task, encode_task)


class _Named(msgspec.Struct, frozen=True):
    event: str


def _reader(kind: type[T], name: str) -> Callable[[bytes], T]:
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes) -> T:
        try:
            return decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise SerialisationError(f"{name} cannot be read: {error}") from error

    return read


decode_task = _reader(Task, "Task")
decode_beat = _reader(Beat, "Beat")
decode_audit = _reader(Audit, "Audit")
decode_thrown = _reader(SwitchSetting, "SwitchSetting")
decode_progress = _reader(Progress, "Progress")
decode_trigger = _reader(Trigger, "Trigger")
decode_plan = _reader(Plan, "Plan")
decode_plan_tasks = _reader(PlanTasks, "PlanTasks")
_decode_list = _reader(list[msgspec.Raw], "list")
_decode_name = _reader(_Named, "_Named")


def or_none(decode: Callable[[S], T], body: S) -> T | None:
    """Return the decoded record; None: it cannot be read, which is logged."""
    try:
        return decode(body)
    except SerialisationError as error:
        log.warning("%s", error)
        return None


def read_plan_cursor(cursor: str) -> tuple[float, str]:
    """Return when the last plan of a page was made, and its id."""
    created_at, _, plan_id = cursor.partition(" ")
    try:
        return float(created_at), plan_id
    except ValueError:
        raise InvalidInput(f"{cursor!r} is not a cursor of plans") from None


def peek_at(task: Task, result: bytes | None) -> Peek:
    return Peek(
        task_id=task.id, status=task.status, result=result, failure=task.failure, reason=task.reason
    )


# An older process must be able to read what is kept of a stage, and its readers take no further
# facts: so whether the stage had an undo is told by white space behind the JSON of its result.
UNDO_MARKS = {True: b" ", False: b"\t", None: b""}
_UNDO_READ = {mark: had for had, mark in UNDO_MARKS.items() if mark}


def read_undo(body: bytes) -> tuple[bytes, bool | None]:
    """Return the result of a stage and whether it had an undo; None: its writer did not say."""
    had = _UNDO_READ.get(body[-1:])
    return (body, None) if had is None else (body[:-1], had)


def custom_data(checkpoint: bytes) -> bytes | None:
    """Return what the stages kept in a checkpoint; None: nothing that can be read."""
    try:
        data = ckpt.decode(checkpoint).custom_data
    except SerialisationError:
        return None
    return encode(data) if data else None


def decode_events(body: bytes) -> Iterable[ev.Event]:
    for raw in _decode_list(body):
        yield ev.decode(_decode_name(bytes(raw)).event, bytes(raw))
