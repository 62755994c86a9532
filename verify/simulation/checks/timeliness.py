"""Checks of what must happen to triggers and plans in time while there is a healthy worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.domain.plan.plan import MemberState, Plan, PlanStatus
from holdfast.domain.task.state import Status
from holdfast.domain.trigger.trigger import Trigger
from holdfast.runtime.schedule.scheduler import IDLE_SECONDS, LEAVE_SECONDS
from holdfast.stores.memory.state import PlanShelf
from verify.simulation.checks.book import Breach
from verify.simulation.checks.liveness import healthy

if TYPE_CHECKING:
    from verify.simulation.world import SimulatedWorld

TAKE_OVER_SECONDS = 2.0
DUE_SECONDS = LEAVE_SECONDS[1] + 2.0  # a scheduler leaves a type that it does not know to others
REACH_SECONDS = 2.5  # a driver that heard no signal polls every second
LET_GO_SECONDS = 2.0  # from the slot of a task to its release, which follows at once


@dataclass(slots=True)
class Timeliness:
    world: SimulatedWorld
    # Since when which version of a task is held, although it has a slot (given for which version).
    held_at: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def check(self) -> Iterator[Breach]:
        for trigger in self.world.store.triggers._state.triggers.values():
            yield from self._check_trigger(trigger)
        for shelf in self.world.store.plans._state.plans.values():
            yield from self._check_plan(shelf)
            yield from self._check_pauses(shelf)
            yield from self._check_slots(shelf)

    def _well_for(self, seconds: float, owner: str | None = None) -> bool:
        """Return whether a worker, or the one of this name, had no trouble for so long."""
        deaf = IDLE_SECONDS if self.world.profile.rates.lost_signal else 0.0  # until the timeout
        since = self.world.loop.time() - seconds - deaf
        return any(owner in (None, worker.name) for worker in healthy(self.world, since))

    def _check_trigger(self, trigger: Trigger) -> Iterator[Breach]:
        store = self.world.store
        if trigger.trigger_at is None:
            return
        if trigger.lease_until is not None:
            late = store.now - trigger.lease_until
            if late > TAKE_OVER_SECONDS and self._well_for(late):
                yield "L1", f"the lease of {trigger.id} ended {late:.2f} s ago, nobody took it"
            return
        # A wall clock that was set is noticed at the next poll.
        since_reset = self.world.loop.time() - self.world.reset_at
        known = store.now - store.triggers.book.written_at[trigger.id]
        late = min(store.wall - trigger.trigger_at, known, since_reset - IDLE_SECONDS)
        if late > DUE_SECONDS and self._well_for(late):
            yield "L2", f"{trigger.id} was due {late:.2f} s ago"

    def _check_plan(self, shelf: PlanShelf) -> Iterator[Breach]:
        late = self.world.store.now - shelf.due if shelf.due is not None else 0.0
        if late > TAKE_OVER_SECONDS and self._well_for(late):
            yield "L1", f"{shelf.plan.id} was due {late:.2f} s ago, and no driver took it"

    def _driven_for(self, plan: Plan, seconds: float, *, least: float) -> bool:
        """Return whether one and the same driver has driven the plan for so long."""
        store = self.world.store
        held = store.now - store.plans.book.leased_at.get(plan.id, store.now)
        if plan.lease is None or min(held, seconds) < least:
            return False
        return self._well_for(min(held, seconds), plan.lease.owner)

    def _check_pauses(self, shelf: PlanShelf) -> Iterator[Breach]:
        """Check that a pause reaches each task that the plan has started."""
        store, plan, book = self.world.store, shelf.plan, self.world.store.plans.book
        paused = store.now - book.paused_at.get(plan.id, store.now)
        if plan.cancel_requested or not self._driven_for(plan, paused, least=REACH_SECONDS):
            return
        for task_id in sorted(book.moving[plan.id] - book.by_hand):
            task = store.state.tasks[task_id]
            asked = task.pause_requested or task.cancel_requested
            if task.status is not Status.ROLLING_BACK and not asked:
                yield "pause", f"{plan.id} is paused for {paused:.2f} s, and {task_id} is not"

    def _check_slots(self, shelf: PlanShelf) -> Iterator[Breach]:
        """Check that a member with a slot is let go, or gives it back if its tenant is busy."""
        plan, now = shelf.plan, self.world.loop.time()
        ids = self.world.store.plans.book.ids[plan.id]
        for index, member in shelf.members.items():
            task = self.world.store.state.tasks.get(ids[index])
            if task is None or task.status is not Status.CREATED:
                continue
            if member.state is not MemberState.ADMITTED:
                continue
            held = (task.id, task.version, member.version)
            since = now - self.held_at.setdefault(held, now)
            running = plan.status is PlanStatus.RUNNING and not plan.cancel_requested
            if running and self._driven_for(plan, since, least=LET_GO_SECONDS):
                yield "slots", f"{task.id} has a slot for {since:.2f} s and is not let go"
