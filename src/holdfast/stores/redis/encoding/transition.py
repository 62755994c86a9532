"""A transition as it is packed for apply.lua, and the outcome in its answer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError, StoreError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    MovedOn,
    NoCheckpoint,
    Outcome,
    Stale,
    Transition,
)
from holdfast.stores import codec
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.client import pack
from holdfast.stores.redis.encoding import event_log, record
from holdfast.stores.redis.encoding.record import saves
from holdfast.stores.redis.encoding.submission import as_text, packed_follows

replace = msgspec.structs.replace

INLINE_BYTES = 64  # a longer value would cost a hash its compact form, so it gets its own key
_PLACES = {place.encode(): place for place in Place}
_SETTLED = Next.SETTLED.encode()


class _Was(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """The facts of a record that its holder knows and the script may need."""

    status: str
    type: str
    entry: str = ""
    queue: str = "default"
    fence: str | None = None  # this and the next two are needed only for a task of a tenant
    order: str | None = None
    tenant_id: str | None = None
    key: str | None = None
    error: str | None = None
    plan_id: str | None = None
    created_at: str | None = None
    holds: bool = False


class _Transition(msgspec.Struct, omit_defaults=True, gc=False):
    """A transition for apply.lua."""

    id: str
    expects: str
    version: str
    request: str
    next: str
    status: str
    fields: list[str]
    dwelt: float  # seconds in the status before
    elements: list[str] | None = None  # new elements of its list of events
    was: _Was | None = None
    lease: str | None = None
    gone: list[str] | None = None
    error: str | None = None
    suspended_at: str | None = None
    not_if_moved_on: bool = False
    not_if_busy: bool = False
    not_without_checkpoint: bool = False
    checkpoints: str | None = None  # "drop": delete it; "none": there cannot be one
    checkpoint: str | None = None
    checkpoint_version: str | None = None
    checkpoint_meta: list[str] | None = None
    drop_stages: bool = False
    stage: tuple[str, str] | None = None
    result: str | None = None
    data: str | None = None
    payload: str | None = None
    audit: str | None = None
    delay: str | None = None
    settled_at: str | None = None
    grave: str | None = None  # its name in the list of the settled
    till: str | None = None  # the end of its retention
    seconds: str | None = None  # for how long its record stays at least
    saves: int = 0  # checkpoints of unsettled tasks: one more, or one less
    follows: list[msgspec.Raw] | None = None


def packed_transition(transition: Transition, tombstone_seconds: int) -> bytes:
    before, after, lease = transition.before, transition.after, transition.before.lease
    if before.fence:
        fields, gone = record.changed_fields(before, after)
    else:  # a task that has never run has a short record, which is completed
        fields, gone = (
            record.name_value_list(record.full(after)),
            record.changed_fields(before, after)[1],
        )
    version = str(after.version)
    packed = _Transition(
        id=after.id,
        expects=str(before.version),
        version=version,
        request=transition.request,
        next=transition.next,
        status=after.status,
        fields=fields,
        dwelt=after.updated_at - before.status_since,
        lease=transition.lease,
        error=after.failure.fingerprint if after.failure else None,
        suspended_at=record.decimal(after.updated_at) if after.suspended else None,
        not_if_moved_on=transition.not_if_moved_on,
        not_if_busy=transition.not_if_busy,
        not_without_checkpoint=transition.not_without_checkpoint,
        drop_stages=transition.drop_stages,
        audit=codec.encode(transition.audit).decode() if transition.audit else None,
        saves=saves(after) - saves(before),
    )
    if lease is not None and transition.lease == lease.id:
        packed.was = _known_record(before, lease, transition.next)
    if transition.next is Next.LATER:
        packed.delay = record.decimal(transition.delay_seconds)
    if after.settled_at is not None:
        packed.settled_at = record.decimal(after.settled_at)
        packed.grave = record.grave(after)
        packed.till = f"{after.settled_at + after.keep_seconds:.6f}"
        packed.seconds = str(ceil(max(after.keep_seconds, tombstone_seconds)))
    _add_bodies(packed, transition, gone)
    _add_events(packed, transition)
    if gone:
        packed.gone = gone
    if transition.follows:
        packed.follows = packed_follows(transition.follows)
    return pack(packed)


def _known_record(task: Task, lease: Lease, following: Next) -> _Was:
    was = _Was(
        status=task.status,
        type=task.type,
        entry=lease.id.partition(":")[0],
        queue=task.queue,
        key=task.key,
        error=task.failure.fingerprint if task.failure else None,
    )
    if task.tenant is not None:
        was.tenant_id, was.holds = task.tenant, task.hold
        was.order, was.fence = str(task.order), str(task.fence)
    if following is Next.GONE:
        was.plan_id, was.created_at = task.plan, record.iso(task.created_at)
    return was


def _add_bodies(packed: _Transition, transition: Transition, gone: list[str]) -> None:
    """Add checkpoint, stage, result, payload and data; small ones become fields of the record."""
    after, checkpoint, stage = transition.after, transition.checkpoint, transition.stage
    if transition.drop_stages:
        gone += ("stage0", "data")
    if transition.drop_checkpoint:
        first = transition.before.version == record.FIRST_CLAIMED and len(after.stages) == 1
        packed.checkpoints = "none" if first and transition.lease else "drop"
    if checkpoint is not None:
        packed.checkpoint = as_text(after, ckpt.encode(checkpoint))
        packed.checkpoint_version = str(checkpoint.version)
        packed.checkpoint_meta = record.checkpoint_meta(checkpoint)
    if stage is not None:
        index, body = record.encode_stage(stage)
        if len(after.stages) > 1 or not _inline(packed, gone, "stage0", body):
            packed.stage = index, body
    if transition.result is not None:
        result = as_text(after, transition.result)
        if not _inline(packed, gone, "result", result):
            packed.result = result
    if transition.payload is not None:
        packed.payload = as_text(after, transition.payload)
    if transition.data is not None:
        data = as_text(after, transition.data)
        if not _inline(packed, gone, "data", data):
            packed.data = data


def _add_events(packed: _Transition, transition: Transition) -> None:
    before, lease = transition.before, transition.before.lease
    whole = packed.was is not None and transition.next is Next.SETTLED and "stage0" in packed.fields
    if whole and (ran := straight_run(transition)):
        packed.fields += ("ran", ran)
        return
    events = event_log.encode_events(transition.events)
    packed.elements = [f"{packed.version}\n{transition.request}\n{events}"]
    if (
        lease is not None
        and packed.was is not None
        and event_log.is_start_implied(before, lease.id)
    ):
        packed.elements.insert(0, event_log.start_element(before, lease.owner))


def is_inline(text: str) -> bool:
    """Return whether a body is a field of the record, and not a key of its own."""
    return len(text) <= INLINE_BYTES and text.isascii()


def _inline(packed: _Transition, gone: list[str], name: str, text: str) -> bool:
    if not is_inline(text):
        gone.append(name)
        return False
    packed.fields += (name, text)
    return True


def straight_run(transition: Transition) -> str | None:
    """Return when a task that ran straight through was started, and when its only stage was.

    Together with the lease and the stage in its record, this is all that its events say.
    """
    before, events = transition.before, transition.events
    if before.version != record.FIRST_CLAIMED or len(before.stages) != 1 or len(events) != 3:
        return None
    began, _, completed = events
    if type(began) is not ev.StageStarted or type(completed) is not ev.TaskCompleted:
        return None
    return f"{record.decimal(before.updated_at)} {record.decimal(began.at)}"


def outcome_of(transition: Transition, answer: bytes | Sequence[Any]) -> Outcome | StoreError:
    if answer == _SETTLED:
        return Applied(replace(transition.after, place=Place.SETTLED, due=None, lease=None))
    try:
        return _outcome(transition, *answer)
    except (SerialisationError, faults.CommandDenied) as error:
        return error


_REFUSED: dict[bytes, type[MovedOn | Busy | NoCheckpoint]] = {
    b"moved-on": MovedOn,
    b"busy": Busy,
    b"no-checkpoint": NoCheckpoint,
}


def _outcome(transition: Transition, word: bytes, *facts: Any) -> Outcome:
    after = transition.after
    match word:
        case b"applied":
            place, due, order = facts
            due_at = float(due) if due else None
            number = int(order) if order else after.order  # none: its holder knows the record
            moved = replace(after, place=_PLACES[place], due=due_at, order=number, lease=None)
            return Applied(moved)
        case b"stayed" if facts[0] is None:  # only the end of the lease may be new to its holder
            return Applied(_until(after, facts[1]))
        case b"gone":
            return Applied(after)
        case b"unreadable":
            message = facts[0].decode(errors="replace")
            if faults.is_denial(message):  # no fault of the record
                raise faults.CommandDenied(f"task {after.id}: {message}; {faults.ACL_HELP}")
            raise SerialisationError(f"task {after.id}: {message}")
        case b"stayed" | b"repeated":
            return Applied(_shown_task(after.id, facts[0]))
        case b"moved-on" | b"busy" | b"no-checkpoint":
            return _REFUSED[word](_shown_task(after.id, facts[0]))
        case _:
            return Stale(_shown_task(after.id, facts[0]) if facts[0] else None)


def _until(task: Task, ends: bytes | None) -> Task:
    lease = task.lease
    if lease is None or ends is None or lease.until == (until := float(ends)):
        return task
    return replace(task, lease=replace(lease, until=until))


def _shown_task(task_id: str, shown: Any) -> Task:
    fields, until = shown
    return record.decode(task_id, record.texts(fields), float(until) if until else None)
