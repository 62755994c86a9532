"""The plans of a simulated world, examined after each of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.domain.plan.events import PlanEvent, name_of
from holdfast.domain.plan.plan import (
    Plan,
    PlanApplied,
    PlanChange,
    PlanOutcome,
    PlanStatus,
    PlanTasks,
)
from holdfast.ports import DuePlans
from holdfast.stores.memory.plans import MemoryPlans, _faults
from holdfast.stores.memory.state import PlanShelf
from verify.simulation.checks import plan_steps, verbs
from verify.simulation.checks.book import Breach, RecordMove
from verify.simulation.checks.plan_steps import PlanBook

if TYPE_CHECKING:
    from verify.simulation.stores.watched_store import WatchedStore


class WatchedPlans(MemoryPlans):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.state)
        self._watched = store
        self.book = PlanBook(store.book)

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        there = await super().create(plan, tasks, events)
        self._watched.step("plans.create")
        self._judge(self._check_create(there.id, tasks))
        return there

    def _check_create(self, plan_id: str, tasks: PlanTasks) -> Iterable[Breach]:
        shelf, book = self._state.plans[plan_id], self.book
        if plan_id in book.known:
            book.count("created again")
            if (shelf.plan, shelf.members) != book.known[plan_id]:
                yield "I9", f"{plan_id} was made once more and changed"
            return
        if shelf.plan.version != 1 or not shelf.events or shelf.due is not None:
            yield "I15", f"{plan_id} was born as {shelf}"
        book.count(f"status {shelf.plan.status}")
        book.ids[plan_id] = tasks.ids
        book.numbers |= {task_id: number for number, task_id in enumerate(tasks.ids)}

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        due_at = {plan_id: shelf.due for plan_id, shelf in self._state.plans.items()}
        due = await super().claim(owner, limit=limit, lease_seconds=lease_seconds)
        self._watched.step("plans.claim")
        self._judge(
            breach
            for plan in due.plans
            for breach in (
                *_in_time(plan, due_at[plan.id], self._watched.now),
                *plan_steps.handed_out(
                    self.book, self.book.known[plan.id][0], plan, now=self._watched.now
                ),
            )
        )
        return due

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        kept = await super().renew(plan_id, lease_id, lease_seconds=lease_seconds)
        self._watched.step("plans.renew")
        before = self.book.known[plan_id][0] if plan_id in self.book.known else None
        holds = before is not None and before.lease is not None and before.lease.id == lease_id
        self._judge([("I3", f"the lease of {plan_id}: {kept}, not {holds}")] * (kept != holds))
        return kept

    async def wake(self, plan_ids: Sequence[str]) -> None:
        shelves = [self._state.plans[i] for i in plan_ids if i in self._state.plans]
        before = [(shelf.plan, shelf.due) for shelf in shelves]
        await super().wake(plan_ids)
        self._watched.step("plans.wake")
        self._judge(
            breach
            for shelf, (plan, due) in zip(shelves, before, strict=True)
            for breach in _check_wake(shelf, plan, due, self._watched.now)
        )

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        outcome = await super().apply(change, lease_seconds=lease_seconds)
        follows = {one.task.tenant or one.task.id for one in change.follows}
        moves = self._watched.step("plans.apply", follows)
        self._watched.judge(self._check_follow_ups(change, outcome, moves), moves)
        self._judge(self._check_apply(change, outcome))
        return outcome

    def _check_follow_ups(
        self, change: PlanChange, outcome: PlanOutcome, moves: Mapping[str, RecordMove]
    ) -> Iterable[Breach]:
        name = (change.after.id, change.after.request, change.after.version)
        is_written = isinstance(outcome, PlanApplied) and name not in self.book.applied
        right = change.follows if is_written else ()
        return verbs.check_follow_ups(self._watched.book, right, change.follows, moves)

    def _check_apply(self, change: PlanChange, outcome: PlanOutcome) -> Iterable[Breach]:
        book, plan_id = self.book, change.after.id
        if plan_id not in book.known:
            return
        (before, members), shelf = book.known[plan_id], self._state.plans[plan_id]
        name = (plan_id, change.after.request, change.after.version)
        is_written = shelf.plan.version != before.version or shelf.members != members
        if not isinstance(outcome, PlanApplied):
            if name in book.applied and before.version == change.after.version:
                yield "I9", f"{plan_id}: a write sent again was refused"
            yield from self._check_refusal(before, change, is_written=is_written)
        elif name in book.applied:
            book.count("write repeated")
            if is_written:
                yield "I9", f"{plan_id}: a write sent again was done again"
        else:
            book.applied.add(name)
            yield from plan_steps.check_write(book, before, members, change, shelf.plan)
            yield from plan_steps.rests(book, shelf.plan, change)
            self._tally(before, change)

    def _check_refusal(
        self, before: Plan, change: PlanChange, *, is_written: bool
    ) -> Iterable[Breach]:
        held = before.lease.id if before.lease else None
        if is_written:
            yield "I3", f"{before.id}: a write was refused and done all the same"
        elif before.version == change.before.version and change.lease in (None, held):
            yield "I3", f"{before.id}: a right write was refused"
        if change.lease is not None:
            self.book.count("decided anew" if change.lease == held else "zombie refused")

    def _tally(self, before: Plan, change: PlanChange) -> None:
        for event in change.events:
            self.book.count(f"event {name_of(event)}")
        if change.audit is not None:
            self.book.count(f"asked {change.audit.command}")
        self.book.count(f"status {change.after.status}")
        if change.after.status is not before.status:
            self.book.paused_at.pop(before.id, None)
            if change.after.status is PlanStatus.PAUSED:
                self.book.paused_at[before.id] = self._watched.now

    # -- after a step

    def _judge(self, breaches: Iterable[Breach]) -> None:
        book, now = self._watched.book, self._watched.now
        book.judge(breaches, now)
        for plan_id, shelf in self._state.plans.items():
            known = self.book.known.get(plan_id)
            if known is None or known[0] is not shelf.plan:
                book.judge((("I11", f"{plan_id} {says}") for says in _faults(shelf)), now)
                self._accept(shelf, known[0] if known else None)

    def _accept(self, shelf: PlanShelf, before: Plan | None) -> None:
        plan = shelf.plan
        self.book.known[plan.id] = (plan, dict(shelf.members))
        owner = plan.lease.owner if plan.lease else "nobody"
        if before is None or before.version != plan.version or before.fence != plan.fence:
            counts = [{str(state): n for state, n in sorted(wave.items())} for wave in plan.counts]
            told = f"v{plan.version} {plan.status} {owner} wave {plan.wave} {counts}"
            self._watched.book.note(self._watched.now, f"{self._watched.caller} {plan.id} {told}")


def _check_wake(shelf: PlanShelf, before: Plan, due: float | None, now: float) -> Iterable[Breach]:
    if shelf.plan is not before:
        yield "I3", f"to wake {before.id} changed it"
    stays = before.lease is not None or before.settled_at is not None
    if shelf.due != due and (stays or shelf.due != now):
        yield "I3", f"{before.id} was woken, and is due {shelf.due} instead of {due}"


def _in_time(plan: Plan, due: float | None, now: float) -> Iterable[Breach]:
    if due is None or due > now:
        yield "I3", f"{plan.id} was handed out, it is due {due}"
