"""A trigger's change and the tasks that it makes: compared, then written in one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.domain.task.placement import STOPPED, Place
from holdfast.domain.trigger.trigger import (
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    with_last_task,
)
from holdfast.ports import Switch
from holdfast.stores.sqlite.tasks.queue import EncodedSubmission, ExistingTasks, insert_one
from holdfast.stores.sqlite.tasks.queue import encode as encode_submission
from holdfast.stores.sqlite.transaction import Txn, listed
from holdfast.stores.sqlite.triggers.rows import body_of, readable
from holdfast.stores.sqlite.triggers.verbs import put_all

# What runs is in a lease, and its row says where it was before: ready.
UNFINISHED = frozenset(Place) - STOPPED


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
    firing = TriggerBatch(txn, batch, depth_limit)
    outcomes = [firing.apply(write) for write in batch]
    put_all(txn, firing.written)
    return outcomes


class TriggerBatch:
    """A batch, and all that has to be known for it, read at once."""

    def __init__(self, txn: Txn, batch: Sequence[EncodedTriggerChange], depth_limit: int) -> None:
        self._txn, self._depth_limit = txn, depth_limit
        ids = [write.change.after.id for write in batch]
        self._triggers: dict[str, Trigger | None] = {
            id: readable(id, body) for id, _, body in txn.rows("triggers_of", listed(ids))
        }
        tasks = [u for write in batch if (u := write.change.unless_unfinished) is not None]
        self._unfinished: set[str] = set()
        if tasks:
            found = txn.rows("unfinished_among", listed(tasks), listed(UNFINISHED))
            self._unfinished.update(task_id for (task_id,) in found)
        self._there = ExistingTasks(txn, [task for write in batch for task in write.tasks])
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
        """0: there is none; None: it cannot be read, and nobody writes over it."""
        stored = self._triggers.get(trigger_id)
        if stored is None:
            return None if trigger_id in self._triggers else 0
        return stored.version

    def _without_room(self, tasks: Sequence[EncodedSubmission]) -> str | None:
        """A queue that cannot take all of them."""
        found = [encoded.submission.task for encoded in tasks]
        needed = Counter(task.queue for task in found if self._there.is_new(task))
        return next((queue for queue, n in needed.items() if not self._takes(queue, n)), None)

    def _takes(self, queue: str, number: int) -> bool:
        is_shut = queue in self._txn.switched_off(Switch.INTAKE)
        return not is_shut and self._txn.depth(queue) + number <= self._depth_limit

    def _write(self, write: EncodedTriggerChange) -> Changed:
        audit = write.change.audit
        submitted = (encoded.submission.task for encoded in write.tasks)
        self._unfinished.update(task.id for task in submitted if self._there.is_new(task))
        tasks = [insert_one(self._txn, n, self._depth_limit, self._there) for n in write.tasks]
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
