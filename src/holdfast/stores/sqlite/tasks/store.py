"""The task part of the SQLite store: every write goes to the one writer.

The functions below the class apply transitions: each is compared with the stored record, and then
written as a whole, or answered with the record. Submissions are in `queue.py`, leases in
`claim.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.placement import PLACE_AFTER, Next, Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    Insertion,
    MovedOn,
    NoCheckpoint,
    Outcome,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import Beat, Claimed, Due, Renewal, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.file.open_parts import RequireOpen
from holdfast.stores.sqlite.tasks import claim as claim_ops
from holdfast.stores.sqlite.tasks import queue
from holdfast.stores.sqlite.tasks.queue import EncodedSubmission, ExistingTasks, insert_follow_ups
from holdfast.stores.sqlite.tasks.records import (
    PLACES,
    TaskPosition,
    mutable_json,
    pack_events,
    pack_stage,
    record_row,
)
from holdfast.stores.sqlite.transaction import Txn

TOMBSTONE_SECONDS = 24 * 3600

STAY, LEASED = Next.STAY, Place.LEASED

replace = msgspec.structs.replace


class SqliteTasks:
    def __init__(self, require_open: RequireOpen) -> None:
        self._parts = require_open
        self._empty_claims: dict[str, str] = {}

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        new = [queue.encode(submission) for submission in batch]
        work = partial(queue.insert, batch=new, depth_limit=depth_limit)
        return await self._parts().writer.do(work, weight=len(batch))

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        claim_request = claim_ops.ClaimRequest(
            worker=worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
        )
        work = partial(claim_ops.claim, claim_request=claim_request, empty=self._empty_claims)
        return await self._parts().writer.do(work, weight=limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        writes = [encode(transition) for transition in batch]
        weight = len(writes) + sum(len(write.follows) for write in writes)
        return await self._parts().writer.do(partial(apply, batch=writes), weight=weight)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        work = partial(claim_ops.renew, beat=beat, batch=batch, lease_seconds=lease_seconds)
        return await self._parts().writer.do(work, weight=len(batch))

    async def leave(self, worker: str) -> None:
        await self._parts().writer.do(partial(claim_ops.leave, worker=worker))
        self._empty_claims.pop(worker, None)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        work = partial(
            queue.expire, limit=limit, count_crashes=count_crashes, alone_from=alone_from
        )
        return await self._parts().writer.do(work, weight=limit)

    async def promote(self, *, limit: int) -> Due:
        return await self._parts().writer.do(partial(queue.promote, limit=limit), weight=limit)


# -- transitions


class EncodedTransition(msgspec.Struct, frozen=True, gc=False):
    """A transition, encoded before the writer's time is spent on it."""

    transition: Transition
    mutable: msgspec.Raw
    checkpoint: str | None
    follows: tuple[EncodedSubmission, ...] = ()


def encode(transition: Transition) -> EncodedTransition:
    checkpoint = transition.checkpoint
    return EncodedTransition(
        transition,
        mutable_json(transition.after),
        None if checkpoint is None else ckpt.encode(checkpoint).decode(),
        tuple(map(queue.encode, transition.follows)),
    )


def apply(txn: Txn, batch: Sequence[EncodedTransition]) -> list[Outcome]:
    ids = [write.transition.after.id for write in batch]
    rows = txn.positions(ids)
    follows = [follow_up for write in batch for follow_up in write.follows]
    existing = ExistingTasks(txn, follows) if follows else None
    txn.load_tenants(_tenants_left(batch), lines=True)
    pairs = zip(batch, ids, strict=True)
    return [_apply(txn, write, rows.get(id), existing) for write, id in pairs]


def _tenants_left(batch: Sequence[EncodedTransition]) -> set[str]:
    """Return the tenants whose lines may advance."""
    return {
        name
        for write in batch
        if (name := write.transition.after.tenant) is not None and write.transition.next is not STAY
    }


def _apply(
    txn: Txn, write: EncodedTransition, row: TaskPosition | None, existing: ExistingTasks | None
) -> Outcome:
    transition = write.transition
    if row is not None and row.n in txn.written:
        row = txn.positions((row.id,)).get(row.id)
    if row is None or not _may_write(row, transition):
        return _answer_refused(txn, row, transition)
    if transition.not_without_checkpoint and row.checkpoint is None:
        return NoCheckpoint(_record(txn, row) or transition.before)
    if transition.not_if_moved_on and txn.moved_on(transition.before.tenant, row.fence):
        return MovedOn(_record(txn, row) or transition.before)
    if transition.not_if_busy and txn.must_wait(transition.after.tenant, row.n):
        return Busy(_record(txn, row) or transition.before)
    after = _write_transition(txn, row, write)
    if existing is not None:
        insert_follow_ups(txn, write.follows, existing)
    return Applied(after)


def _write_transition(txn: Txn, row: TaskPosition, write: EncodedTransition) -> Task:
    _write_bodies(txn, row, write)
    if write.transition.next is STAY:
        return _stay(txn, row, write)
    after = _move(txn, row, write)
    if write.transition.next is Next.GONE:
        delete(txn, after)
        return write.transition.after
    return after


def _may_write(row: TaskPosition, transition: Transition) -> bool:
    if row.present != transition.before.version or row.place not in PLACES:
        return False
    newest, last = transition.checkpoint, row.checkpoint
    is_newer = newest is None or last is None or newest.version > last
    if not is_newer and not transition.drop_checkpoint:
        return False
    if transition.lease is None:
        return row.lease_id is None or transition.next is STAY
    return row.lease_id == transition.lease


def _answer_refused(txn: Txn, row: TaskPosition | None, transition: Transition) -> Outcome:
    """Answer a repeated write as the first was answered, and any other as stale."""
    if row is None:
        last_request, task = txn.row("tombstone_request", transition.task_id), None
    else:
        last_request = txn.row("journal_request", row.n, transition.after.version)
        task = _record(txn, row)
    if last_request is not None and last_request[0] == transition.request:
        return Applied(task or transition.after)
    return Stale(task)


def _record(txn: Txn, row: TaskPosition) -> Task | None:
    return txn.read(record_row(txn.row("record_at", row.n)))


def _write_bodies(txn: Txn, row: TaskPosition, write: EncodedTransition) -> None:
    transition, n = write.transition, row.n
    if row.checkpoint is not None:
        if transition.drop_checkpoint:
            txn.add("checkpoint_delete", n)
        elif transition.after.settled_at != row.settled_at:
            txn.add("checkpoint_settled", (n, transition.after.settled_at))
    if transition.checkpoint is not None:
        txn.add("checkpoint_put", (n, transition.checkpoint.version, write.checkpoint))
    if transition.drop_stages:
        txn.run("stages_forget", n)
    if transition.payload is not None:
        txn.run("task_payload", transition.payload.decode(), n)
    if transition.audit is not None:
        txn.write_audit(transition.audit)
    stage, result, data = transition.stage, transition.result, transition.data
    version, request, events = transition.after.version, transition.request, transition.events
    left = left_result = outcome = kept = None
    size = 0
    if stage is not None:
        marked = stage.result + codec.UNDO_MARKS[stage.undo]
        left, left_result, size = pack_stage(stage), marked.decode(), len(marked)
    if result is not None:
        outcome, size = result.decode(), size + len(result)
    if data is not None:
        kept, size = data.decode(), size + len(data)
    started, facts = row.started, pack_events(events)
    entry = n, version, request, started, facts, left, left_result, outcome, kept
    txn.add("journal_add", entry, size)
    if data is not None:
        txn.add("data_replaced", (n, version))


def _stay(txn: Txn, row: TaskPosition, write: EncodedTransition) -> Task:
    before, after, lease = write.transition.before, write.transition.after, row.lease
    _write_submitted(txn, row.n, before, after)
    if lease is None:
        place, fence = PLACES[row.place], row.fence
    else:
        place, fence = LEASED, lease.fence
    after = replace(after, order=row.n, fence=fence, place=place, lease=lease, due=row.due)
    txn.stay(before, after, write.mutable)
    return after


def _move(txn: Txn, row: TaskPosition, write: EncodedTransition) -> Task:
    """Write the record and put it in its new place."""
    transition, n = write.transition, row.n
    before, after = transition.before, transition.after
    _write_submitted(txn, n, before, after)
    txn.leave_place(row, after.tenant)
    due = ready = line = None
    if transition.next is Next.READY:
        place, ready, line = txn.enter(after.tenant, n)
    else:
        place = PLACE_AFTER[transition.next]
        if place is Place.LATER:
            due = round(txn.now + transition.delay_seconds, 6)
            txn.topics.add(Topic.READY)
    if row.lease_id is None:
        left, fence = PLACES[row.place], row.fence
    else:
        left, fence = LEASED, row.lease_fence
    after = replace(after, order=n, fence=fence, place=place, lease=None, due=due)
    txn.put(before, left, after, write.mutable, ready=ready, line=line)
    if ready is None and line is None:
        txn.release_line(after)
    return after


def _write_submitted(txn: Txn, n: int, before: Task, after: Task) -> None:
    """Write the submitted part anew if a deploy has changed the stages or the retries."""
    if after.stages != before.stages or after.retry_max != before.retry_max:
        txn.add("task_head", (n, msgspec.Raw(codec.encode_task(after))))


def delete(txn: Txn, task: Task) -> None:
    """Delete a record and all that belongs to it; leave a tombstone while its key still answers."""
    n, until = task.order, (task.settled_at or 0.0) + TOMBSTONE_SECONDS
    if until > txn.wall:
        txn.add("tombstone_put", (n, task.key, until, msgspec.Raw(codec.encode_task(task))))
    elif task.key is not None:
        txn.run("key_delete", task.tenant or "", task.key, task.id)
    for table in ("task", "state", "checkpoint", "journal"):
        txn.add(f"{table}_delete", n)
    txn.count(task.queue, task.place, task.status, -1)
