"""Triggers in memory, beside the tasks: every look scans, every step is one under the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.task.placement import STOPPED
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger.trigger import (
    LEASE,
    PENDING,
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerStatus,
    with_last_task,
)
from holdfast.ports import DueTriggers, Switch, Topic, TriggerPage
from holdfast.stores import codec
from holdfast.stores.memory.state import check

if TYPE_CHECKING:
    from holdfast.stores.memory.store import MemoryStore


class MemoryTriggers:
    def __init__(self, store: MemoryStore) -> None:
        self._store, self._clock, self._lock = store, store._clock, store._lock
        self._triggers: dict[str, Trigger] = {}
        self._numbers = count(1)

    def home(self, name: str, *, tenant: str | None) -> str:
        del tenant
        return name

    # -- writes

    async def save(self, trigger: Trigger) -> Trigger:
        if trigger.id:
            names.check("trigger", trigger.id)
        _check(trigger)
        with self._lock:
            trigger_id = trigger.id or self._new_id(trigger.tenant)
            there = self._triggers.get(trigger_id, trigger)
            saved = replace(trigger, id=trigger_id, version=there.version + 1)
            self._put(saved)
            return saved

    def _new_id(self, tenant: str | None) -> str:
        ids = (self.home(f"trigger-{n}", tenant=tenant) for n in self._numbers)
        return next(found for found in ids if found not in self._triggers)

    def _put(self, trigger: Trigger) -> None:
        self._triggers[trigger.id] = trigger
        if trigger.trigger_at is not None:
            self._store._signals.notify(Topic.DUE)

    async def remove(self, trigger_id: str) -> bool:
        with self._lock:
            return self._triggers.pop(trigger_id, None) is not None

    async def acquire_lease(
        self, trigger_id: str, owner: str, *, lease_seconds: float = 30.0
    ) -> Trigger | None:
        with self._lock:
            trigger = self._triggers.get(trigger_id)
            if trigger is None or not _waits(trigger):
                return None
            if trigger.owner != owner and self._leased(trigger):
                return None
            return self._lease(trigger, owner, lease_seconds)

    async def find_due_with_lease(
        self,
        owner: str,
        *,
        upto: float | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        with self._lock:
            wall = self._clock.now()
            due = [
                trigger
                for at, trigger in self._free()
                if trigger.owner is not None or at <= (wall if upto is None else upto)
            ]
            leased = [self._lease(trigger, owner, lease_seconds) for trigger in due[:limit]]
            return DueTriggers(triggers=tuple(leased), next_seconds=self._next_seconds())

    def _lease(self, trigger: Trigger, owner: str, lease_seconds: float) -> Trigger:
        lapsed = trigger.owner is not None and not self._leased(trigger)
        leased = replace(
            trigger,
            status=LEASE[trigger.status],
            version=trigger.version + 1,
            retry_count=trigger.retry_count + lapsed,
            owner=owner,
            lease_until=self._store._now() + lease_seconds,
            updated_at=self._clock.now(),
        )
        self._triggers[trigger.id] = leased
        return leased

    def _leased(self, trigger: Trigger) -> bool:
        return trigger.lease_until is not None and trigger.lease_until > self._store._now()

    def _free(self) -> list[tuple[float, Trigger]]:
        """Those that wait for a time and that nobody works on, the earliest first."""
        found = [
            (trigger.trigger_at, trigger)
            for trigger in self._triggers.values()
            if trigger.trigger_at is not None and _waits(trigger) and not self._leased(trigger)
        ]
        return sorted(found, key=lambda pair: (pair[0], pair[1].id))

    def _next_seconds(self) -> float | None:
        wait = self.wait()
        return None if wait is None else max(0.0, wait)

    def wait(self) -> float | None:
        """Below 0: somebody should have looked. Times go by the wall, leases by our clock."""
        wall, now = self._clock.now(), self._store._now()
        waits = [t for t in self._triggers.values() if _waits(t)]
        times = [t.trigger_at - wall for t in waits if t.trigger_at is not None and t.owner is None]
        times += [t.lease_until - now for t in waits if t.lease_until is not None]
        return min(times, default=None)

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        for change in batch:
            if change.before.version == 0:
                names.check("trigger", change.after.id)
            _check(change.after)
            for submission in change.submissions:
                codec.check_task(submission.task)
        with self._lock:
            return [self._apply(change, depth_limit) for change in batch]

    def _apply(self, change: TriggerChange, depth_limit: int) -> TriggerOutcome:
        there, after = self._triggers.get(change.after.id), change.after
        if (there.version if there else 0) != change.before.version:
            if there and (there.version, there.request) == (after.version, after.request):
                return Changed(there)
            return TriggerStale(there)
        if change.unless_unfinished and self._unfinished(change.unless_unfinished):
            return Overlapping(change.unless_unfinished)
        if full := self._full(change.submissions, depth_limit):
            return NoRoom(full)
        tasks = [self._store._insert(submission, depth_limit) for submission in change.submissions]
        after = with_last_task(change, tasks)
        self._put(after)
        if change.audit is not None:
            self._store._note(change.audit)
        return Changed(after, tuple(tasks))

    def _unfinished(self, task_id: str) -> bool:
        task = self._store._tasks.get(task_id)
        return task is not None and task.place not in STOPPED

    def _full(self, submissions: Sequence[Submission], depth_limit: int) -> str | None:
        """The queue that cannot take all of them."""
        new = Counter(s.task.queue for s in submissions if self._store._is_new(s.task))
        depth, is_off = self._store._depth, self._store._is_off
        return next(
            (
                queue
                for queue, n in new.items()
                if depth(queue) + n > depth_limit or is_off(Switch.INTAKE, queue)
            ),
            None,
        )

    async def prune(
        self,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        with self._lock:
            now = self._clock.now()
            old = [
                t.id
                for t in self._triggers.values()
                if t.ended_at is not None
                and t.ended_at < now - older_than_seconds
                and (ignore_keep or t.ended_at + t.keep_seconds <= now)
            ][:limit]
            for trigger_id in () if dry_run else old:
                del self._triggers[trigger_id]
            return len(old)

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        with self._lock:
            return self._triggers.get(trigger_id)

    async def find_due(self, upto: float, *, limit: int = 100) -> Sequence[Trigger]:
        with self._lock:
            return [trigger for at, trigger in self._free() if at <= upto][:limit]

    async def find_all_pending(self, *, limit: int = 100, cursor: str | None = None) -> TriggerPage:
        return await self.find_all(statuses=tuple(PENDING), limit=limit, cursor=cursor)

    async def find_all(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        declared: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        after = "" if cursor is None else names.check("trigger", cursor)
        with self._lock:
            found = [
                trigger
                for trigger_id, trigger in sorted(self._triggers.items())
                if trigger_id > after
                and (not statuses or trigger.status in statuses)
                and tenant in (None, trigger.tenant)
                and (trigger.declared or not declared)
            ]
            more = len(found) > limit
            page = tuple(found[:limit])
            return TriggerPage(triggers=page, cursor=page[-1].id if more else None)

    def examine(self) -> list[tuple[str, str]]:
        """What does not agree: of which trigger, and what."""
        return [
            (trigger.id, says) for trigger in self._triggers.values() for says in _faults(trigger)
        ]


def _check(trigger: Trigger) -> None:
    check(f"trigger {trigger.id!r}", trigger, codec.decode_trigger)


def _waits(trigger: Trigger) -> bool:
    return trigger.status in LEASE and trigger.trigger_at is not None


def _faults(trigger: Trigger) -> list[str]:
    said, whose = [], f"{trigger.owner}'s" if trigger.owner else "nobody's"
    if trigger.status in LEASE and trigger.trigger_at is None:
        said.append(f"is {trigger.status} and waits for no time")
    if (trigger.owner is None) != (trigger.lease_until is None):
        said.append(f"is {whose} until {trigger.lease_until}")
    if (trigger.owner is not None) != (trigger.status in LEASE.values()):
        said.append(f"is {trigger.status} and {whose}")
    return said
