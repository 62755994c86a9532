"""The verbs for submissions, lapsed leases and due times, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.domain.task.crashes import is_counted
from holdfast.domain.task.placement import DUE, LOSE, Place
from holdfast.domain.task.task import Progress, Task
from holdfast.domain.task.transition import (
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    IntakeClosed,
    Submission,
)
from holdfast.ports import Due, Switch, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.tasks.placement import enter, set_aside, store_moved
from holdfast.stores.sqlite.tasks.records import (
    TaskPosition,
    mutable_json,
    pack_events,
    record_row,
    submitted_json,
)
from holdfast.stores.sqlite.transaction import Txn, json_list

Key = tuple[str, str]  # tenant, key

TAKEN_BACK = 1 << 52  # above every number in a queue that earlier versions gave out


class EncodedSubmission(msgspec.Struct, frozen=True, gc=False):
    """A submission and its record, encoded before the writer's time is spent on it."""

    submission: Submission
    submitted: msgspec.Raw


def encode(submission: Submission) -> EncodedSubmission:
    return EncodedSubmission(submission, submitted_json(submission.task))


def insert(txn: Txn, batch: Sequence[EncodedSubmission], depth_limit: int) -> list[Insertion]:
    existing = ExistingTasks(txn, batch)
    return [insert_one(txn, encoded, depth_limit, existing) for encoded in batch]


class ExistingTasks:
    """The tasks and keys of a batch that exist already, read for all of it at once."""

    def __init__(self, txn: Txn, batch: Sequence[EncodedSubmission]) -> None:
        tasks = [encoded.submission.task for encoded in batch]
        ids = [task.id for task in tasks]
        known = txn.rows("tasks_known", json_list(ids)) if ids else ()
        self.ids = {task_id for (task_id,) in known}
        keys = [(t.tenant or "", t.key) for t in tasks if t.key is not None]
        owned = txn.rows("keys_owned", json_list(keys), txn.wall) if keys else ()
        # The tasks that own these keys, with their digests, as long as the keys are kept.
        self.owners: dict[Key, tuple[str, str]] = {
            (tenant, key): (task_id, digest) for tenant, key, task_id, digest in owned
        }
        txn.load_tenants({task.tenant for task in tasks if task.tenant is not None})

    def is_new(self, task: Task) -> bool:
        has_owner = task.key is not None and (task.tenant or "", task.key) in self.owners
        return task.id not in self.ids and not has_owner


def insert_one(
    txn: Txn, encoded: EncodedSubmission, depth_limit: int, existing: ExistingTasks
) -> Insertion:
    submission = encoded.submission
    task = submission.task
    if task.id in existing.ids:
        return Inserted(task.id)  # a repeated submit
    key = None if task.key is None else (task.tenant or "", task.key)
    if key is not None and (owner := existing.owners.get(key)) is not None:
        first, digest = owner
        return Existing(first) if digest == submission.digest else Conflict(first)
    if task.queue in txn.switched_off(Switch.INTAKE):
        return IntakeClosed(task.queue)
    if txn.depth(task.queue) >= depth_limit:
        return Full(task.queue)
    _accept(txn, encoded, existing)
    return Inserted(task.id)


def insert_follow_ups(
    txn: Txn, batch: Sequence[EncodedSubmission], existing: ExistingTasks
) -> None:
    """Insert follow-up tasks, which neither a full queue nor a switch can refuse."""
    for encoded in batch:
        if existing.is_new(encoded.submission.task):
            _accept(txn, encoded, existing)


def _accept(txn: Txn, encoded: EncodedSubmission, existing: ExistingTasks) -> None:
    submission, task = encoded.submission, encoded.submission.task
    existing.ids.add(task.id)
    if task.key is not None:
        key = task.tenant or "", task.key
        existing.owners[key] = task.id, submission.digest
        txn.add("key_put", (*key, task.id))
    n = txn.next_task()
    place, ready, line = Place.HELD, None, None
    if not submission.held:
        place, ready, line = txn.enter(task.tenant, n)
    txn.add(
        "task_add",
        (
            n,
            None if task.key is None else submission.digest,
            encoded.submitted,
            pack_events(submission.events),
            submission.payload.decode(),
        ),
        size=len(submission.payload),
    )
    txn.add(
        "state_add",
        (
            n,
            task.id,
            task.tenant,
            task.plan,
            task.queue,
            task.type,
            int(task.hold),
            task.version,
            task.status,
            task.status_since,
            task.updated_at,
            place,
            ready,
            line,
            task.failure.fingerprint if task.failure else None,
        ),
    )
    if ready is not None:
        txn.add("ready_add", (task.queue, ready, n))
    txn.count(task.queue, place, task.status, 1)


def expire(txn: Txn, limit: int, count_crashes: bool, alone_from: int) -> int:
    # No worker survives a restart of its machine, which does not count against the task.
    taken = _lose_all(txn, txn.rows("leases_of_other_boots", txn.boot, limit), None)
    lapsed = txn.rows("leases_lapsed", txn.boot, txn.now, max(0, limit - taken))
    return taken + _lose_all(txn, lapsed, alone_from if count_crashes else None)


def _lose_all(txn: Txn, leases: Iterable[tuple[int]], alone_from: int | None) -> int:
    """Take back the leases; without ``alone_from``, no lapse counts as a crash."""
    numbers = sorted(n for (n,) in leases)
    rows = txn.rows("records_at", json_list(numbers)) if numbers else ()
    for row in map(record_row, rows):
        task = txn.read(row)
        if task is None:
            set_aside(txn, row.position.n)
        else:
            noted = None if alone_from is None else _noted_progress(txn, row.position.n)
            counted = is_counted(task, noted, alone_from=alone_from or 0)
            lose(txn, task, row.position, counted=counted)
    return len(rows)


def _noted_progress(txn: Txn, n: int) -> Progress | None:
    """Return the progress that the lease holder stored for its stage."""
    row = txn.row("progress_get", n)
    return codec.or_none(codec.decode_progress, row[0]) if row and row[0] else None


def lose(txn: Txn, task: Task, row: TaskPosition, *, counted: bool) -> None:
    """Put a task whose lease was lost before all ready ones, because it has already waited."""
    after = store_moved(
        txn,
        task,
        row,
        LOSE,
        lease=None,
        worker=task.lease.owner if task.lease else "",
        counted=counted,
        crashes=task.crashes + counted,
        lapses=task.lapses + 1,
        interrupted=True,
        ran_by=task.lease.owner if task.lease else task.ran_by,
    )
    txn.leave_place(row, task.tenant)
    txn.put(task, task.place, after, mutable_json(after), ready=-TAKEN_BACK - task.order)
    txn.topics.add(Topic.READY)


def promote(txn: Txn, limit: int) -> Due:
    rows = txn.rows("due_now", txn.now, limit)
    for row in map(record_row, rows):
        task = txn.read(row)
        if task is None:
            set_aside(txn, row.position.n)
        else:
            enter(txn, task, store_moved(txn, task, row.position, DUE, due=None))
    following = txn.row("due_next")
    return Due(
        count=len(rows), next_seconds=max(0.0, following[0] - txn.now) if following else None
    )
