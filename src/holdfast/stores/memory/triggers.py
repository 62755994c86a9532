"""Triggers in memory: every read scans all records; every write holds the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.domain.task.placement import STOPPED
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger.trigger import (
    LEASE,
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerWrite,
    with_last_task,
)
from holdfast.ports import DueTriggers, Switch, Topic, TriggerPage
from holdfast.stores import codec, findings
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.triggers import StoredTriggers, TriggerFilter


class MemoryTriggers(StoredTriggers):
    def __init__(self, state: MemoryState) -> None:
        self._state, self._lock = state, state.lock

    # -- writes

    def _put(self, trigger: Trigger) -> None:
        self._state.triggers[trigger.id] = trigger
        if trigger.trigger_at is not None:
            self._state.signals.notify(Topic.DUE)

    async def _claim_due(
        self, owner: str, upto: float | None, limit: int, lease_seconds: float
    ) -> DueTriggers:
        with self._lock:
            by = self._state.clock.now() if upto is None else upto
            due = [t for at, t in self._free() if t.owner is not None or at <= by]
            leased = [self._lease(trigger, owner, lease_seconds) for trigger in due[:limit]]
            wait = next_due_seconds(self._state)
            seconds = None if wait is None else max(0.0, wait)
            return DueTriggers(triggers=tuple(leased), next_seconds=seconds)

    async def _claim_one(self, trigger_id: str, owner: str, lease_seconds: float) -> DueTriggers:
        leased: tuple[Trigger, ...] = ()
        with self._lock:
            trigger = self._state.triggers.get(trigger_id)
            if trigger is not None and self._may_lease(trigger, owner):
                leased = (self._lease(trigger, owner, lease_seconds),)
        return DueTriggers(triggers=leased, next_seconds=None)

    def _may_lease(self, trigger: Trigger, owner: str) -> bool:
        return _waits(trigger) and (trigger.owner == owner or not self._is_leased(trigger))

    def _lease(self, trigger: Trigger, owner: str, lease_seconds: float) -> Trigger:
        lapsed = trigger.owner is not None and not self._is_leased(trigger)
        leased = replace(
            trigger,
            status=LEASE[trigger.status],
            version=trigger.version + 1,
            retry_count=trigger.retry_count + lapsed,
            owner=owner,
            lease_until=self._state.now() + lease_seconds,
            updated_at=self._state.clock.now(),
        )
        self._state.triggers[trigger.id] = leased
        return leased

    def _is_leased(self, trigger: Trigger) -> bool:
        return trigger.lease_until is not None and trigger.lease_until > self._state.now()

    def _free(self) -> list[tuple[float, Trigger]]:
        """Return the triggers that wait for a time and that nobody works on, the earliest first."""
        free = [
            (trigger.trigger_at, trigger)
            for trigger in self._state.triggers.values()
            if trigger.trigger_at is not None and _waits(trigger) and not self._is_leased(trigger)
        ]
        return sorted(free, key=lambda pair: (pair[0], pair[1].id))

    def _check(self, change: TriggerChange) -> None:
        super()._check(change)
        if change.write is not TriggerWrite.REMOVE:
            codec.check(f"trigger {change.after.id!r}", change.after, codec.decode_trigger)
            for submission in change.submissions:
                codec.check_task(submission.task)

    async def _compare_and_write(
        self, batch: Sequence[TriggerChange], depth_limit: int
    ) -> list[TriggerOutcome]:
        with self._lock:
            return [self._apply(change, depth_limit) for change in batch]

    def _apply(self, change: TriggerChange, depth_limit: int) -> TriggerOutcome:
        there, after = self._state.triggers.get(change.after.id), change.after
        if (there.version if there else 0) != change.before.version:
            if there and (there.version, there.request) == (after.version, after.request):
                return Changed(there)
            return TriggerStale(there)
        if change.unless_unfinished and self._is_unfinished(change.unless_unfinished):
            return Overlapping(change.unless_unfinished)
        if full := self._full(change.submissions, depth_limit):
            return NoRoom(full)
        tasks = [self._state.insert(submission, depth_limit) for submission in change.submissions]
        after = with_last_task(change, tasks)
        self._put(after)
        if change.audit is not None:
            self._state.note(change.audit)
        return Changed(after, tuple(tasks))

    async def _write_over(self, change: TriggerChange) -> TriggerOutcome:
        with self._lock:
            there, after = self._state.triggers.get(change.after.id), change.after
            if change.write is TriggerWrite.REMOVE:
                if there is None:
                    return TriggerStale(None)
                del self._state.triggers[after.id]
                return Changed(there)
            after = replace(after, version=(there or after).version + 1)
            self._put(after)
            return Changed(after)

    def _is_unfinished(self, task_id: str) -> bool:
        task = self._state.tasks.get(task_id)
        return task is not None and task.place not in STOPPED

    def _full(self, submissions: Sequence[Submission], depth_limit: int) -> str | None:
        """Return the queue that cannot take all of its tasks."""
        new = Counter(s.task.queue for s in submissions if self._state.is_new(s.task))
        depth, is_off = self._state.depth, self._state.is_off
        return next(
            (
                queue
                for queue, n in new.items()
                if depth(queue) + n > depth_limit or is_off(Switch.INTAKE, queue)
            ),
            None,
        )

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        with self._lock:
            return self._state.triggers.get(trigger_id)

    async def _find_due(self, due_by: float, limit: int) -> list[Trigger]:
        with self._lock:
            return [trigger for at, trigger in self._free() if at <= due_by][:limit]

    async def _find_page(self, where: TriggerFilter, limit: int, cursor: str | None) -> TriggerPage:
        with self._lock:
            matching = [
                trigger
                for trigger_id, trigger in sorted(self._state.triggers.items())
                if trigger_id > (cursor or "") and where.matches(trigger)
            ]
            page = tuple(matching[:limit])
            more = len(matching) > limit
            return TriggerPage(triggers=page, cursor=page[-1].id if more else None)


def _waits(trigger: Trigger) -> bool:
    return trigger.status in LEASE and trigger.trigger_at is not None


def _faults(trigger: Trigger) -> Iterator[str]:
    name, owner = f"trigger {trigger.id}", trigger.owner
    whose = f"the owner {owner}" if owner is not None else "no owner"
    if missing := findings.missing_fire_time(trigger):
        yield missing
    if (owner is None) != (trigger.lease_until is None):
        yield f"{name} has {whose}, and a lease until {trigger.lease_until or 'no time'}"
    if (owner is not None) != (trigger.status in LEASE.values()):
        yield f"{name} is {trigger.status}, but has {whose}"


def next_due_seconds(state: MemoryState) -> float | None:
    """Return the seconds until the first trigger is due; below 0: it is late. Times go by the wall
    clock, leases by the store's."""
    wall, now = state.clock.now(), state.now()
    waits = [t for t in state.triggers.values() if _waits(t)]
    times = [t.trigger_at - wall for t in waits if t.trigger_at is not None and t.owner is None]
    times += [t.lease_until - now for t in waits if t.lease_until is not None]
    return min(times, default=None)


def examine(state: MemoryState) -> Iterator[str]:
    """Yield a message for each fact of a trigger that does not agree with another."""
    for trigger in state.triggers.values():
        yield from _faults(trigger)
