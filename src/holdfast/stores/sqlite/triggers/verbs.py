"""The writes on triggers: verbs of their port, inside a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.domain.task.placement import STOPPED, Place
from holdfast.domain.trigger.trigger import (
    LEASE,
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    with_last_task,
)
from holdfast.ports import DueTriggers, Switch, Topic
from holdfast.stores.sqlite.plan_trigger_leases import lease_end, next_seconds
from holdfast.stores.sqlite.tasks.queue import EncodedSubmission, ExistingTasks, insert_one
from holdfast.stores.sqlite.tasks.queue import encode as encode_submission
from holdfast.stores.sqlite.transaction import Txn, json_list
from holdfast.stores.sqlite.triggers.rows import body_of, columns_of, readable

EVER = float("inf")
# The row of a running task still has the place ready; only the lease shows that it runs.
UNFINISHED = frozenset(Place) - STOPPED

replace = msgspec.structs.replace


class Lent(msgspec.Struct, frozen=True):
    """The owner of a trigger's lease, and its length."""

    owner: str
    lease_seconds: float


def save(txn: Txn, trigger: Trigger) -> Trigger:
    row = txn.row("trigger_of", trigger.id)
    version = row[0] if row else trigger.version
    saved = replace(trigger, version=version + 1)
    put_all(txn, [(saved, body_of(saved))])
    return saved


def put_all(txn: Txn, written: Sequence[tuple[Trigger, str]]) -> None:
    """Write the triggers; wake the services that sleep longer than the first of them may wait."""
    rows = [(columns_of(trigger, txn.boot), body) for trigger, body in written]
    times = [columns.at for columns, _ in rows if columns.at is not None]
    if times:
        first = txn.row("triggers_first")
        # A service sleeps at most until the first fire time of all, so a later one wakes nobody.
        if first is None or min(times) < first[0]:
            txn.topics.add(Topic.DUE)
    txn.run_each("trigger_put", [(*columns, body) for columns, body in rows])


def remove(txn: Txn, trigger_id: str) -> bool:
    txn.run("trigger_remove", trigger_id)
    return txn.db.changes() > 0


# -- leases


def lend_one(txn: Txn, trigger_id: str, lent: Lent) -> DueTriggers:
    """Lease the trigger, unless it waits for no time or somebody else has its lease."""
    _, boot, until, body = txn.row("trigger_of", trigger_id) or (0, None, None, None)
    trigger = None if body is None else readable(trigger_id, body)
    has_lapsed = until is not None and (boot, until) <= (txn.boot, txn.now)
    if (
        trigger is None
        or trigger.status not in LEASE
        or trigger.trigger_at is None
        or (until is not None and not has_lapsed and trigger.owner != lent.owner)
    ):
        return DueTriggers(triggers=(), next_seconds=None)
    leased = _lend(txn, [(trigger, has_lapsed and boot == txn.boot)], lent)
    return DueTriggers(triggers=tuple(leased), next_seconds=None)


def lend_due(txn: Txn, lent: Lent, upto: float | None, limit: int) -> DueTriggers:
    free = _free(txn, txn.wall if upto is None else upto, limit)
    return DueTriggers(
        triggers=tuple(_lend(txn, free, lent)),
        next_seconds=next_seconds(
            txn, txn.row("triggers_first"), txn.row("triggers_first_lease"), now=txn.wall
        ),
    )


def _free(txn: Txn, upto: float, limit: int) -> list[tuple[Trigger, bool]]:
    """Return the triggers that are due or whose lease has lapsed, earliest first.

    The second value says whether the lapse counts as a failed attempt: not after a new start of the
    machine.
    """
    lapsed = txn.rows("triggers_lapsed", txn.boot, txn.now, EVER, limit)
    rows = [(at, id, body, boot == txn.boot) for id, at, boot, body in lapsed]
    rows += [(at, id, body, False) for id, at, body in txn.rows("triggers_due", upto, limit)]
    free = []
    for _, trigger_id, body, failed in sorted(rows)[:limit]:
        trigger = readable(trigger_id, body)
        if trigger is None or trigger.status not in LEASE:
            txn.run("trigger_set_aside", trigger_id)  # otherwise each claim would read it again
        else:
            free.append((trigger, failed))
    return free


def _lend(txn: Txn, free: Iterable[tuple[Trigger, bool]], lent: Lent) -> list[Trigger]:
    until = lease_end(txn, lent.lease_seconds)
    leased = [
        replace(
            trigger,
            status=LEASE[trigger.status],
            version=trigger.version + 1,
            retry_count=trigger.retry_count + failed,
            updated_at=txn.wall,
            owner=lent.owner,
            lease_until=until,
        )
        for trigger, failed in free
    ]
    if leased:
        rows = [(t.id, t.version, t.status, body_of(t)) for t in leased]
        txn.run("triggers_lease", json_list(rows), txn.boot, until)
    return leased


# -- changes, and the tasks that they make


class EncodedTriggerChange(msgspec.Struct, frozen=True, gc=False):
    """A change, encoded before the writer's time is spent on it."""

    change: TriggerChange
    body: str
    tasks: tuple[EncodedSubmission, ...]


def encode(change: TriggerChange) -> EncodedTriggerChange:
    return EncodedTriggerChange(
        change, body_of(change.after), tuple(map(encode_submission, change.submissions))
    )


def apply(
    txn: Txn, batch: Sequence[EncodedTriggerChange], depth_limit: int
) -> list[TriggerOutcome]:
    """Compare each change, and write it with its tasks in one step."""
    changes = TriggerBatch(txn, batch, depth_limit)
    outcomes = [changes.apply(write) for write in batch]
    put_all(txn, changes.written)
    return outcomes


class TriggerBatch:
    """A batch of changes, and the rows that they are compared with, read at once."""

    def __init__(self, txn: Txn, batch: Sequence[EncodedTriggerChange], depth_limit: int) -> None:
        self._txn, self._depth_limit = txn, depth_limit
        ids = [write.change.after.id for write in batch]
        self._triggers: dict[str, Trigger | None] = {
            id: readable(id, body) for id, _, body in txn.rows("triggers_of", json_list(ids))
        }
        tasks = [u for write in batch if (u := write.change.unless_unfinished) is not None]
        self._unfinished: set[str] = set()
        if tasks:
            rows = txn.rows("unfinished_among", json_list(tasks), json_list(UNFINISHED))
            self._unfinished.update(task_id for (task_id,) in rows)
        self._existing = ExistingTasks(txn, [task for write in batch for task in write.tasks])
        self.written: list[tuple[Trigger, str]] = []

    def apply(self, write: EncodedTriggerChange) -> TriggerOutcome:
        change, after = write.change, write.change.after
        stored = self._triggers.get(after.id)
        if change.before.version != self._version(after.id):
            return _answer_refused(stored, after)
        if change.unless_unfinished in self._unfinished:
            return Overlapping(str(change.unless_unfinished))
        full = self._without_room(write.tasks)
        if full is not None:
            return NoRoom(full)
        return self._write(write)

    def _version(self, trigger_id: str) -> int | None:
        """Return the stored version: 0 if there is none, None if it is unreadable and stays."""
        stored = self._triggers.get(trigger_id)
        if stored is None:
            return None if trigger_id in self._triggers else 0
        return stored.version

    def _without_room(self, tasks: Sequence[EncodedSubmission]) -> str | None:
        """Return a queue that cannot take all of the tasks."""
        submitted = [encoded.submission.task for encoded in tasks]
        needed = Counter(task.queue for task in submitted if self._existing.is_new(task))
        for queue, count in needed.items():
            is_shut = queue in self._txn.switched_off(Switch.INTAKE)
            if is_shut or self._txn.depth(queue) + count > self._depth_limit:
                return queue
        return None

    def _write(self, write: EncodedTriggerChange) -> Changed:
        audit = write.change.audit
        submitted = (encoded.submission.task for encoded in write.tasks)
        self._unfinished.update(task.id for task in submitted if self._existing.is_new(task))
        tasks = [insert_one(self._txn, n, self._depth_limit, self._existing) for n in write.tasks]
        after = with_last_task(write.change, tasks)
        self._triggers[after.id] = after
        body = write.body if after is write.change.after else body_of(after)
        self.written.append((after, body))
        if audit is not None:
            self._txn.write_audit(audit)
        return Changed(after, tuple(tasks))


def _answer_refused(stored: Trigger | None, after: Trigger) -> TriggerOutcome:
    """Answer a repeated write as the first was answered, and any other as stale."""
    if stored and (stored.version, stored.request) == (after.version, after.request):
        return Changed(stored)
    return TriggerStale(stored)
