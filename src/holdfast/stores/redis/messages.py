"""What the scripts are told, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain import checkpoint as ckpt
from holdfast.domain.errors import SerialisationError, StoreError
from holdfast.domain.task import Place, Task
from holdfast.domain.transition import (
    Applied,
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    MovedOn,
    Next,
    Outcome,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import Claimed, Renewal
from holdfast.stores import codec
from holdfast.stores.redis import faults, record

pack = msgspec.msgpack.Encoder().encode


# -- to the scripts


def _packed(facts: dict[str, Any]) -> bytes:
    """As the scripts can unpack it: no absent facts, and bytes (which are JSON) as text."""
    try:
        return pack(
            {
                name: value.decode() if isinstance(value, bytes) else value
                for name, value in facts.items()
                if value is not None
            }
        )
    except UnicodeDecodeError as error:
        raise SerialisationError(f"task {facts['id']!r} cannot be written: {error}") from error


def packed_submission(submission: Submission) -> bytes:
    task = submission.task
    said = submission.events
    facts: dict[str, Any] = {
        "id": task.id,
        "type": task.type,
        "queue": task.queue,
        "tenant": task.tenant,
        "plan": task.plan,
        "key": task.key,
        "digest": submission.digest,
        "status": task.status,
        "error": task.failure.fingerprint if task.failure else None,
        "suspended_at": repr(task.updated_at) if task.suspended else None,
        "version": str(task.version),
        "day": record.day(task.created_at),
        "fields": record.flat(record.newborn(task)),
        "payload": submission.payload,
        "held": submission.held,
        "events": None if said == record.created(task) else codec.encode(said),
    }
    return _packed(facts)


def packed_transition(transition: Transition) -> bytes:
    after, checkpoint = transition.after, transition.checkpoint
    facts: dict[str, Any] = {
        "id": after.id,
        "expects": str(transition.expects),
        "version": str(after.version),
        "request": transition.request,
        "lease": transition.lease,
        "next": transition.next,
        "at": repr(after.updated_at),
        "status": after.status,
        "fields": record.flat(record.changed(after)),
        "events": codec.encode(transition.events),
        "error": after.failure.fingerprint if after.failure else None,
        "suspended_at": repr(after.updated_at) if after.suspended else None,
        "not_if_moved_on": transition.not_if_moved_on or None,
        "drop_checkpoint": transition.drop_checkpoint or None,
        "drop_stages": transition.drop_stages or None,
        "result": transition.result,
        "data": transition.data,
        "audit": codec.encode(transition.audit) if transition.audit else None,
        "stage": record.encode_stage(transition.stage) if transition.stage else None,
    }
    if transition.next is Next.LATER:
        facts["delay"] = repr(transition.delay_seconds)
    if after.settled_at is not None:
        facts |= {"settled_at": repr(after.settled_at), "keep": repr(after.keep_seconds)}
    if checkpoint is not None:
        facts |= {
            "checkpoint": ckpt.encode(checkpoint),
            "checkpoint_version": str(checkpoint.version),
            "checkpoint_meta": record.checkpoint_meta(checkpoint),
        }
    return _packed(facts)


def packed_renewal(renewal: Renewal) -> tuple[str, str, bytes]:
    said = codec.encode(renewal.progress) if renewal.progress is not None else b""
    return renewal.task_id, renewal.lease_id, said


# -- from the scripts


_INSERTIONS: dict[bytes, Callable[[str], Insertion]] = {
    b"inserted": Inserted,
    b"existing": Existing,
    b"conflict": Conflict,
    b"full": Full,
}


def insertion_of(word: bytes, name: str, where: str) -> Insertion | StoreError:
    if word == b"foreign":
        return faults.foreign([name], where)
    return _INSERTIONS[word](name)


def claimed_of(
    task_id: str, fields: list[bytes], until: float, newer_ran: int, bodies: list[Any]
) -> Claimed:
    task = record.decode(task_id, record.texts(fields), until)
    payload, checkpoint, data, stages = [*bodies, None, None, None][:4]
    if payload is None:
        raise SerialisationError(f"task {task.id}: its payload is gone")
    return Claimed(
        task=task,
        payload=payload,
        checkpoint=checkpoint,
        data=data,
        stages=record.decode_stages(stages or []),
        moved_on=bool(newer_ran),
    )


def outcome_of(transition: Transition, answer: Sequence[Any]) -> Outcome | StoreError:
    try:
        return _outcome(transition, *answer)
    except SerialisationError as error:
        return error


def _outcome(transition: Transition, word: bytes, *facts: Any) -> Outcome:
    after = transition.after
    match word:
        case b"applied":
            place, order, due, fence = facts
            return Applied(
                msgspec.structs.replace(
                    after,
                    place=Place(place.decode()),
                    order=int(order),
                    due=float(due) if due else None,
                    fence=int(fence),
                    lease=None,
                )
            )
        case b"gone":
            return Applied(after)
        case b"unreadable":
            raise SerialisationError(f"task {after.id}: {facts[0].decode()}")
        case b"stayed" | b"repeated":
            return Applied(_shown(after.id, facts[0]))
        case b"moved-on":
            return MovedOn(_shown(after.id, facts[0]))
        case _:
            return Stale(_shown(after.id, facts[0]) if facts[0] else None)


def _shown(task_id: str, shown: Any) -> Task:
    fields, until = shown
    return record.decode(task_id, record.texts(fields), float(until) if until else None)
