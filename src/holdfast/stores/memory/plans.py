"""Plans in memory: every read scans all records; every write holds the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import (
    WAITING,
    Member,
    MemberState,
    Plan,
    PlanApplied,
    PlanChange,
    PlanNext,
    PlanOutcome,
    PlanStale,
    PlanStatus,
    PlanTasks,
)
from holdfast.domain.task.task import Lease
from holdfast.ports import DuePlans, PlanPage, Topic
from holdfast.stores import codec, findings
from holdfast.stores.memory.state import MemoryState, PlanShelf


class MemoryPlans:
    def __init__(self, state: MemoryState) -> None:
        self._state, self._lock = state, state.lock

    # -- writes

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        names.check("plan", plan.id)
        _check(plan)
        codec.check(f"the tasks of plan {plan.id}", tasks, codec.decode_plan_tasks)
        with self._lock:
            shelf = self._state.plans.setdefault(
                plan.id, PlanShelf(plan=plan, tasks=tasks, events=list(events))
            )
            return shelf.plan

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        with self._lock:
            now = self._state.now()
            due = [shelf for at, shelf in self._waiting() if at <= now][:limit]
            plans = tuple(self._hand_out(shelf, owner, now + lease_seconds) for shelf in due)
            left = self._waiting()
            return DuePlans(plans=plans, next_seconds=max(0.0, left[0][0] - now) if left else None)

    def _waiting(self) -> list[tuple[float, PlanShelf]]:
        found = [
            (shelf.due, shelf) for shelf in self._state.plans.values() if shelf.due is not None
        ]
        return sorted(found, key=lambda pair: (pair[0], pair[1].plan.id))

    def _hand_out(self, shelf: PlanShelf, owner: str, until: float) -> Plan:
        self._state.fence += 1
        fence = self._state.fence
        lease = Lease(owner=owner, fence=fence, id=f"{owner}.{fence}", until=until)
        shelf.plan = replace(shelf.plan, lease=lease, fence=fence)
        shelf.due, shelf.woken = until, False
        return shelf.plan

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        with self._lock:
            shelf = self._state.plans.get(plan_id)
            if shelf is None or not _holds(shelf.plan, lease_id):
                return False
            self._extend(shelf, lease_seconds)
            if lease_seconds <= 0:  # given back: others wait for the end that it had
                self._state.signals.notify(Topic.DUE)
            return True

    def _extend(self, shelf: PlanShelf, lease_seconds: float) -> None:
        if (lease := shelf.plan.lease) is not None:
            shelf.due = self._state.now() + lease_seconds
            shelf.plan = replace(shelf.plan, lease=replace(lease, until=shelf.due))

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        _check(change.after)
        for submission in change.follows:
            codec.check_task(submission.task)
        with self._lock:
            shelf = self._state.plans.get(change.after.id)
            if shelf is None:
                return PlanStale(None)
            if _was_applied(shelf.plan, change):
                return PlanApplied(shelf.plan)
            if not _may_write(shelf.plan, change):
                return PlanStale(shelf.plan)
            self._write(shelf, change)
            self._place(shelf, change, lease_seconds)
            if change.is_news:
                self._state.signals.notify(Topic.DUE)
            return PlanApplied(shelf.plan)

    def _write(self, shelf: PlanShelf, change: PlanChange) -> None:
        shelf.plan = replace(change.after, lease=shelf.plan.lease, fence=shelf.plan.fence)
        shelf.events.extend(change.events)
        for index, member in change.moves:
            shelf.members[index] = member
            if member == WAITING:
                del shelf.members[index]
        if change.audit is not None:
            self._state.note(change.audit)
        self._state.follow(change.follows)

    def _place(self, shelf: PlanShelf, change: PlanChange, lease_seconds: float) -> None:
        """Decide who looks at the plan next. A person's write leaves it to a driver that has it."""
        if change.next is PlanNext.DRIVE:
            self._extend(shelf, lease_seconds)
            return
        driven = shelf.plan.lease is not None or change.next is PlanNext.REST
        if change.lease is None and driven and change.next is not PlanNext.SETTLED:
            return
        woken = shelf.woken and change.next is not PlanNext.SETTLED
        shelf.plan, shelf.woken = replace(shelf.plan, lease=None), False
        looked_at = woken or change.next is PlanNext.LOOK
        delay_seconds = 0.0 if woken else change.delay_seconds
        shelf.due = self._state.now() + delay_seconds if looked_at else None

    async def wake(self, plan_ids: Sequence[str]) -> None:
        with self._lock:
            for shelf in (self._state.plans.get(plan_id) for plan_id in plan_ids):
                if shelf is not None and may_be_woken(shelf.plan):
                    self._wake(shelf)
                    self._state.signals.notify(Topic.DUE)

    def _wake(self, shelf: PlanShelf) -> None:
        if shelf.plan.lease is not None:
            shelf.woken = True
            return
        now = self._state.now()
        shelf.due = now if shelf.due is None else min(now, shelf.due)

    # -- reads

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        with self._lock:
            shelves = [self._state.plans.get(plan_id) for plan_id in plan_ids]
            return [shelf.plan if shelf else None for shelf in shelves]

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        with self._lock:
            shelf = self._state.plans.get(plan_id)
            return shelf.tasks if shelf else None

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        with self._lock:
            shelf = self._state.plans.get(plan_id)
            return dict(shelf.members) if shelf else {}

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        with self._lock:
            shelf = self._state.plans.get(plan_id)
            found = [e for e in shelf.events if e.version > after_version] if shelf else []
            page, rest = found[:limit], found[limit:]
            return page + list(takewhile(lambda event: event.version == page[-1].version, rest))

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        before = None if cursor is None else codec.read_plan_cursor(cursor)
        with self._lock:
            plans = sorted((s.plan for s in self._state.plans.values()), key=_mark, reverse=True)
            found = [
                plan
                for plan in plans
                if (before is None or _mark(plan) < before)
                and (not statuses or plan.status in statuses)
            ]
            page, more = tuple(found[:limit]), len(found) > limit
            end = f"{page[-1].created_at!r} {page[-1].id}" if more else None
            return PlanPage(plans=page, cursor=end)


def _check(plan: Plan) -> None:
    codec.check(f"plan {plan.id!r}", plan, codec.decode_plan)


def _holds(plan: Plan, lease_id: str) -> bool:
    return plan.lease is not None and plan.lease.id == lease_id


def _may_write(plan: Plan, change: PlanChange) -> bool:
    held = change.lease is None or _holds(plan, change.lease)
    return held and plan.version == change.before.version


def _was_applied(plan: Plan, change: PlanChange) -> bool:
    return (plan.version, plan.request) == (change.after.version, change.after.request)


def may_be_woken(plan: Plan) -> bool:
    """Return whether the plan may be woken; in its first version it is still being made."""
    return plan.settled_at is None and plan.version > 1


def _mark(plan: Plan) -> tuple[float, str]:
    return plan.created_at, plan.id


def _faults(shelf: PlanShelf) -> Iterator[str]:
    plan = shelf.plan
    members = [Counter[MemberState]() for _ in plan.waves]
    for index, member in shelf.members.items():
        members[plan.wave_of(index)][member.state] += 1
    yield from findings.wrong_waves(plan, members)
    if plan.lease is not None and shelf.due != plan.lease.until:
        due = "is never due" if shelf.due is None else f"is due at {shelf.due}"
        yield f"plan {plan.id} is leased until {plan.lease.until}, but {due}"
    if plan.settled_at is not None and shelf.due is not None:
        yield f"plan {plan.id} has settled, but is due at {shelf.due}"


def next_due_seconds(state: MemoryState) -> float | None:
    """Return the seconds until the first plan is due; below 0: it is late."""
    dues = (shelf.due for shelf in state.plans.values() if shelf.due is not None)
    first = min(dues, default=None)
    return None if first is None else first - state.now()


def examine(state: MemoryState) -> Iterator[str]:
    """Yield a message for each fact of a plan that does not agree with another."""
    for shelf in state.plans.values():
        yield from _faults(shelf)
