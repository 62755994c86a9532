"""Submits, lapsed leases, due times and audits: verbs of the port, inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.state import DUE, LOSE
from holdfast.domain.task import Place, Task
from holdfast.domain.transition import (
    Audit,
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    Submission,
)
from holdfast.ports import Due, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.places import enter, entered, moved, set_aside
from holdfast.stores.sqlite.txn import Txn

replace = msgspec.structs.replace


def insert(txn: Txn, batch: Sequence[Submission], depth_limit: int) -> list[Insertion]:
    return [_insert(txn, submission, depth_limit) for submission in batch]


def _insert(txn: Txn, submission: Submission, depth_limit: int) -> Insertion:
    task = submission.task
    if txn.row("task_known", task.id)[0]:
        return Inserted(task.id)  # the same submit, sent again
    if task.key is not None and (first := _first_of(txn, task.tenant, task.key)):
        task_id, digest = first
        return Existing(task_id) if digest == submission.digest else Conflict(task_id)
    if txn.depth(task.queue) >= depth_limit:
        return Full(task.queue)
    task = replace(task, order=txn.next_task())
    ready = line = None
    if submission.held:
        task = replace(task, place=Place.HELD)
    else:
        task, ready, line = entered(txn, task)
    txn.add(task, submission.digest, ready=ready, line=line)
    txn.run("payload_add", task.order, submission.payload)
    txn.log(task.order, task.version, task.id, submission.events)
    if task.key is not None:
        txn.run("key_put", task.tenant or "", task.key, task.id)
    return Inserted(task.id)


def _first_of(txn: Txn, tenant: str | None, key: str) -> tuple[str, str] | None:
    """The task that this key belongs to, with its digest, if its time is not over."""
    owner = txn.row("key_owner", tenant or "", key)
    if owner is None:
        return None
    if found := txn.row("digest_of_task", owner[0]):
        return owner[0], found[0]
    buried = txn.row("digest_of_tombstone", owner[0])
    return (owner[0], buried[0]) if buried and buried[1] > txn.wall else None


def expire(txn: Txn, limit: int, count_crashes: bool) -> int:
    # No worker outlives its machine, and its end is no fault of the task.
    taken = _lose_all(txn, txn.rows("leases_of_other_boots", txn.boot, limit), counted=False)
    lapsed = txn.rows("leases_lapsed", txn.boot, txn.now, max(0, limit - taken))
    return taken + _lose_all(txn, lapsed, counted=count_crashes)


def _lose_all(txn: Txn, rows: list[Any], *, counted: bool) -> int:
    for n, record, until in sorted(rows):
        task = txn.read(n, record, until)
        if task is None:
            set_aside(txn, n)
        else:
            lose(txn, task, counted=counted)
    return len(rows)


def lose(txn: Txn, task: Task, *, counted: bool) -> None:
    """Back to the head of its queue: it has waited once, and its tenant's line waits with it."""
    after = moved(
        txn,
        task,
        LOSE,
        place=Place.READY,
        lease=None,
        worker=task.lease.owner if task.lease else "",
        counted=counted,
        crashes=task.crashes + counted,
        interrupted=True,
    )
    txn.put(task, after, ready=-txn.next_ready())
    txn.topics.add(Topic.READY)


def promote(txn: Txn, limit: int) -> Due:
    found = txn.rows("due_now", txn.now, limit)
    for n, record in found:
        task = txn.read(n, record)
        if task is None:
            set_aside(txn, n)
        else:
            enter(txn, task, moved(txn, task, DUE, place=Place.READY, due=None))
    following = txn.row("due_next")
    return Due(
        count=len(found),
        next_seconds=max(0.0, following[0] - txn.now) if following else None,
    )


def audit(txn: Txn, entry: Audit) -> None:
    write_audit(txn, entry)
    txn.count_refusal(f"{entry.before} {entry.command}")


def write_audit(txn: Txn, entry: Audit) -> None:
    txn.run("audit_add", entry.at, codec.encode(entry))
