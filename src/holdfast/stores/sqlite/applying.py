"""One transition: compared, then written whole, or answered with what is there instead."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.domain.task import Place, Task
from holdfast.domain.transition import Applied, MovedOn, Next, Outcome, Stale, Transition
from holdfast.ports import Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.places import enter, moved_on, rest, take_out
from holdfast.stores.sqlite.txn import Txn
from holdfast.stores.sqlite.verbs import write_audit

TOMBSTONE_SECONDS = 24 * 3600

replace = msgspec.structs.replace


class Write(msgspec.Struct, frozen=True):
    """A transition and its checkpoint, encoded before the writer's time is spent on it."""

    transition: Transition
    checkpoint: bytes | None


def apply(txn: Txn, batch: Sequence[Write]) -> list[Outcome]:
    return [_apply(txn, write) for write in batch]


def _apply(txn: Txn, write: Write) -> Outcome:
    transition = write.transition
    task = txn.find(transition.task_id)
    if _was_applied(txn, task, transition):
        return Applied(task or transition.after)
    if task is None or not _may_write(task, transition):
        return Stale(task)
    if transition.not_if_moved_on and moved_on(txn, task):
        return MovedOn(task)
    if not _write_checkpoint(txn, task, write):
        return Stale(task)
    _write_bodies(txn, task, transition)
    txn.count_move(task, transition.after)
    after = _put(txn, task, transition)
    if transition.next is Next.GONE:
        delete(txn, after)
        return Applied(transition.after)
    return Applied(after)


def _was_applied(txn: Txn, task: Task | None, transition: Transition) -> bool:
    if task is None:
        found = txn.row("tombstone_request", transition.task_id)
    elif task.version == transition.expects:
        return False  # its version is yet to come
    else:
        found = txn.row("event_request", task.order, transition.after.version)
    return found is not None and found[0] == transition.request


def _may_write(task: Task, transition: Transition) -> bool:
    if task.version != transition.expects:
        return False
    if transition.lease is None:
        return task.lease is None or transition.next is Next.STAY
    return task.lease is not None and task.lease.id == transition.lease


def _write_checkpoint(txn: Txn, task: Task, write: Write) -> bool:
    """The first write of a transition. False: one as new is there, and nothing was written."""
    transition = write.transition
    if transition.drop_checkpoint:
        txn.run("checkpoint_delete", task.order)
    if transition.checkpoint is None:
        return True
    txn.run("checkpoint_put", task.order, transition.checkpoint.version, write.checkpoint)
    return txn.db.changes() > 0


def _write_bodies(txn: Txn, task: Task, transition: Transition) -> None:
    n, stage = task.order, transition.stage
    if transition.drop_stages:
        txn.run("stages_delete", n)
        txn.run("outcome_forget_data", n)
    if stage is not None:
        txn.run(
            "stage_put",
            n,
            stage.index,
            stage.name,
            stage.result,
            stage.duration_seconds,
            stage.run,
            stage.epoch,
        )
    if transition.result is not None or transition.data is not None:
        txn.run("outcome_put", n, transition.result, transition.data)
    if transition.audit is not None:
        write_audit(txn, transition.audit)
    if transition.after.settled_at != task.settled_at and not transition.drop_checkpoint:
        txn.run("checkpoint_settled", transition.after.settled_at, n)
    txn.log(n, transition.after.version, transition.request, transition.events)


def _put(txn: Txn, before: Task, transition: Transition) -> Task:
    """Write the record and put it in its place."""
    after = replace(transition.after, order=before.order, fence=before.fence)
    if transition.next is Next.STAY:
        after = replace(after, place=before.place, lease=before.lease, due=before.due)
        txn.stay(before, after)
        return after
    take_out(txn, before)
    after = replace(after, lease=None, due=None)
    match transition.next:
        case Next.READY:
            return enter(txn, before, after)
        case Next.LATER:
            due = round(txn.now + transition.delay_seconds, 6)
            txn.topics.add(Topic.READY)
            return rest(txn, before, replace(after, place=Place.LATER, due=due))
        case Next.PARKED:
            return rest(txn, before, replace(after, place=Place.PARKED))
        case _:
            return rest(txn, before, replace(after, place=Place.SETTLED))


def delete(txn: Txn, task: Task) -> None:
    """The record and all that belongs to it; while its key still answers, a tombstone stays."""
    n, until = task.order, (task.settled_at or 0.0) + TOMBSTONE_SECONDS
    if until > txn.wall:
        request = txn.row("event_last_request", n) or ("",)
        result, _ = txn.row("outcome_get", n) or (None, None)
        txn.run("tombstone_put", n, task.key, request[0], until, result, codec.encode_task(task))
    elif task.key is not None:
        txn.run("key_delete", task.tenant or "", task.key, task.id)
    for table in ("task", "payload", "outcome", "checkpoint", "stages", "events"):
        txn.run(f"{table}_delete", n)
    txn.count_place(task, -1)
