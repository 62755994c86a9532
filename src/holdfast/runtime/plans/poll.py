"""The poll of a plan's tasks: which of them a step loads, so that none is forgotten and the load is
bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice

from holdfast.domain.plan import members as mem
from holdfast.domain.plan.members import MemberTask
from holdfast.domain.plan.plan import PlanStatus
from holdfast.ports import Clock
from holdfast.runtime.plans.admission import BusyTenants
from holdfast.runtime.plans.snapshot import PlanSnapshot
from holdfast.runtime.plans.task_gateway import PAGE

AGAIN_SECONDS = 5.0  # between two polls of stopped tasks
SLOTTED_LIMIT = 500  # tasks with slots, in one step


class TaskPoll:
    def __init__(self, clock: Clock, busy: BusyTenants) -> None:
        self._clock, self._busy = clock, busy
        self._polled_again_at = clock.steady()
        self._unseen: list[int] = []  # stopped when the plan was loaded, and not polled since
        self.goes_on = False  # the next step polls more stopped tasks
        self._turn = self._rest_turn = 0

    def begin(self, snapshot: PlanSnapshot) -> None:
        """Begin anew with a plan that was just loaded."""
        self._unseen, self._polled_again_at = list(snapshot.resting()), self._clock.steady()

    @property
    def is_complete(self) -> bool:
        """Return whether every task that rested when the plan was loaded has been polled."""
        return not self._unseen

    def indexes(self, snapshot: PlanSnapshot) -> Iterable[int]:
        """Return the tasks that this step loads."""
        return dict.fromkeys((*self._slotted_tasks(snapshot), *self._other_tasks(snapshot)))

    def note(self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask]) -> None:
        """Note what was polled.

        A task that a person resumed while the plan is paused has no slot: it is polled until it
        stops.
        """
        is_paused = snapshot.plan.status is PlanStatus.PAUSED
        polled = {index for index, task in tasks.items() if not (is_paused and task.moving)}
        left = [index for index in self._unseen if index not in polled]
        self.goes_on = 0 < len(left) < len(self._unseen)
        self._unseen = left

    def _slotted_tasks(self, snapshot: PlanSnapshot) -> Iterable[int]:
        """Return the tasks with slots; of very many, a share in turn."""
        slotted = sorted(snapshot.slotted)
        if len(slotted) <= SLOTTED_LIMIT:
            return slotted
        self._turn = (self._turn + SLOTTED_LIMIT) % len(slotted)
        return islice(chain(slotted[self._turn :], slotted), SLOTTED_LIMIT)

    def _other_tasks(self, snapshot: PlanSnapshot) -> Iterable[int]:
        plan = snapshot.plan
        if plan.cancel_requested:
            return islice(snapshot.to_cancel(), PAGE)
        if plan.status is PlanStatus.ROLLING_BACK:
            if mem.ready_to_undo(plan):
                most = min(plan.max_concurrency or PAGE, PAGE)
                return (*snapshot.skipped_members(), *snapshot.to_undo(most))
            return islice(snapshot.waiting(plan.total), PAGE if mem.undoes_all(plan) else 0)
        if plan.is_stopped:
            return self._resting(snapshot)
        if plan.status is not PlanStatus.RUNNING:
            return ()
        return (*snapshot.skipped_members(), *self._resting(snapshot), *self._candidates(snapshot))

    def _resting(self, snapshot: PlanSnapshot) -> Iterable[int]:
        """Return each stopped task once before the plan stops, and then a share in turn."""
        page = self._unseen[:PAGE]
        self._unseen = self._unseen[PAGE:] + page
        now = self._clock.steady()
        if now - self._polled_again_at < AGAIN_SECONDS:
            return page
        self._polled_again_at = now
        resting = list(snapshot.resting())
        self._rest_turn = (self._rest_turn + PAGE) % len(resting) if len(resting) > PAGE else 0
        in_turn = islice(chain(resting[self._rest_turn :], resting), min(PAGE, len(resting)))
        return chain(page, in_turn)

    def _candidates(self, snapshot: PlanSnapshot) -> Iterable[int]:
        """Return tasks that may be let go now; one whose tenant was busy is left for a while."""
        busy = self._busy.now()
        waiting = snapshot.to_run(snapshot.plan.waves[snapshot.plan.wave])
        free = (index for index in waiting if index not in busy)
        # Where many tenants are busy, those behind them must not wait for them.
        few = PAGE if busy else 2 * (snapshot.plan.max_concurrency or PAGE)
        return islice(free, min(PAGE, few))
