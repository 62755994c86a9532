"""A store that writes a line to the ledger for each answer that the judge has to know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from holdfast.domain.plan.plan import PlanApplied, PlanChange, PlanOutcome
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Outcome, Stale, Transition
from holdfast.domain.trigger.trigger import TriggerChange, TriggerOutcome, TriggerStale
from holdfast.errors import StoreUnavailable
from holdfast.ports import (
    Beat,
    Clock,
    DuePlans,
    DueTriggers,
    PlanStore,
    Renewal,
    Store,
    TaskStore,
    Topic,
    TriggerStore,
)
from holdfast.ports.wrapped_store import WrappedStore
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.processes import end_if_orphaned, parent_now
from verify.chaos.round_plan import RoundPlan

POLL_SECONDS = 0.1
DUE_SECONDS = 0.5  # a clock that was set is noticed by then, not after the half minute of users
PROXIED_OF = 3  # one in three reaches the store directly


class WitnessedTasks:
    """The tasks of a store, with a line for each beat and each refused write."""

    def __init__(self, tasks: TaskStore, ledger: Ledger) -> None:
        self._tasks, self._ledger = tasks, ledger
        self.insert, self.claim, self.leave = tasks.insert, tasks.claim, tasks.leave
        self.expire, self.promote = tasks.expire, tasks.promote

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        outcomes = await self._tasks.apply(batch)
        for transition, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Stale) and _lease_is_lost(transition, outcome.task):
                self._ledger.write(LineKind.STALE, task=transition.task_id)
        return outcomes

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        asked = time.time()
        try:
            kept = await self._tasks.renew(beat, batch, lease_seconds=lease_seconds)
        except BaseException:
            self._ledger.write(LineKind.UNANSWERED, asked=asked)
            raise
        self._ledger.write(LineKind.BEAT, asked=asked)
        return kept


def _lease_is_lost(transition: Transition, task: Task | None) -> bool:
    """Return whether the lease is lost; otherwise a request came in between."""
    held = task.lease.id if task and task.lease else None
    return transition.lease is not None and transition.lease != held


class WitnessedTriggers:
    """The triggers of a store, with a line for each claim and each refused write. Leases last as
    long as those of the round, not the half minute that schedulers ask for."""

    def __init__(self, triggers: TriggerStore, ledger: Ledger, lease_seconds: float) -> None:
        self._triggers = triggers
        self._ledger = ledger
        self._lease_seconds = lease_seconds
        self._holds = False
        self.find, self.find_all = triggers.find, triggers.find_all

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        del lease_seconds
        if self._holds:
            self._ledger.write(LineKind.LET_GO)
            self._holds = False
        due = await self._triggers.claim(
            owner,
            upto=upto,
            trigger_id=trigger_id,
            limit=limit,
            lease_seconds=self._lease_seconds,
        )
        if due.triggers:
            self._ledger.write(LineKind.TAKEN)
            self._holds = True
        for trigger in due.triggers:
            if trigger.retry_count:
                self._ledger.write(LineKind.TAKEN_OVER, task=trigger.id)
        return due

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        outcomes = await self._triggers.apply(batch, depth_limit=depth_limit)
        for change, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, TriggerStale) and change.before.owner is not None:
                self._ledger.write(LineKind.STALE, task=change.before.id)
        return outcomes


class WitnessedPlans:
    """The plans of a store, with a line for each one that a driver is handed, and for each write
    of a driver."""

    def __init__(self, plans: PlanStore, ledger: Ledger) -> None:
        self._plans, self._ledger = plans, ledger
        self.create, self.renew, self.wake = plans.create, plans.renew, plans.wake
        self.load, self.find, self.tasks = plans.load, plans.find, plans.tasks
        self.members, self.events = plans.members, plans.events

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        due = await self._plans.claim(owner, limit=limit, lease_seconds=lease_seconds)
        for plan in due.plans:
            self._ledger.write(
                LineKind.DRIVES, task=plan.id, fence=plan.lease.fence if plan.lease else 0
            )
        return due

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        outcome = await self._plans.apply(change, lease_seconds=lease_seconds)
        held = change.before.lease
        if change.lease is None or held is None or held.id != change.lease:
            return outcome
        if isinstance(outcome, PlanApplied):
            version = str(outcome.plan.version)
            self._ledger.write(LineKind.WROTE, task=change.before.id, key=version, fence=held.fence)
        elif outcome.plan is None or outcome.plan.lease is None or outcome.plan.lease.id != held.id:
            self._ledger.write(LineKind.STALE, task=change.before.id)
        return outcome


async def open_witnessed(
    plan: RoundPlan, name: str, clock: Clock | None = None
) -> tuple[Store, Ledger]:
    """Open the store of a round behind the witness, and the ledger of this process."""
    plan.sabotage()
    ledger = Ledger(plan.folder, name)
    store = await _open_store(plan, name, clock)
    return _wrap_store(store, ledger, plan.lease_seconds), ledger


def _wrap_store(store: Store, ledger: Ledger, lease_seconds: float) -> Store:
    async def wait(topic: Topic, ticket: int, *, timeout: float) -> None:
        if topic is Topic.DUE:
            timeout = min(timeout, DUE_SECONDS)
        await store.wait(topic, ticket, timeout=timeout)

    return WrappedStore(
        store,
        tasks=WitnessedTasks(store.tasks, ledger),
        plans=WitnessedPlans(store.plans, ledger),
        triggers=WitnessedTriggers(store.triggers, ledger, lease_seconds),
        wait=wait,
    )


async def _open_store(plan: RoundPlan, name: str, clock: Clock | None) -> Store:
    """Open the store, for some of each role through the proxy; try again while it is away."""
    parent = parent_now()
    while True:
        try:
            return await plan.open_store(proxied=int(name[-1]) % PROXIED_OF != 0, clock=clock)
        except StoreUnavailable:
            end_if_orphaned(parent)
        await asyncio.sleep(POLL_SECONDS)
