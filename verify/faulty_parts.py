"""A store's triggers and plans behind the same bad line as its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Member, Plan, PlanChange, PlanOutcome, PlanStatus, PlanTasks
from holdfast.domain.trigger.trigger import Trigger, TriggerChange, TriggerOutcome, TriggerStatus
from holdfast.ports import DuePlans, DueTriggers, PlanPage, TriggerPage

if TYPE_CHECKING:
    from verify.faults import Line


class FaultyTriggers:
    """The TriggerStore port over a `Line`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def home(self, name: str, *, tenant: str | None) -> str:
        del tenant
        return name

    async def save(self, trigger: Trigger) -> Trigger:
        return await self._line.call("triggers.save", lambda to: to.triggers.save(trigger))

    async def remove(self, trigger_id: str) -> bool:
        return await self._line.call("triggers.remove", lambda to: to.triggers.remove(trigger_id))

    async def find(self, trigger_id: str) -> Trigger | None:
        return await self._line.call("triggers.find", lambda to: to.triggers.find(trigger_id))

    async def find_due(self, upto: float, *, limit: int = 100) -> Sequence[Trigger]:
        return await self._line.call(
            "triggers.find_due", lambda to: to.triggers.find_due(upto, limit=limit)
        )

    async def find_all_pending(self, *, limit: int = 100, cursor: str | None = None) -> TriggerPage:
        return await self._line.call(
            "triggers.find_all_pending",
            lambda to: to.triggers.find_all_pending(limit=limit, cursor=cursor),
        )

    async def find_all(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        declared: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        return await self._line.call(
            "triggers.find_all",
            lambda to: to.triggers.find_all(
                statuses=statuses, tenant=tenant, declared=declared, limit=limit, cursor=cursor
            ),
        )

    async def acquire_lease(
        self, trigger_id: str, owner: str, *, lease_seconds: float = 30.0
    ) -> Trigger | None:
        return await self._line.call(
            "triggers.acquire_lease",
            lambda to: to.triggers.acquire_lease(trigger_id, owner, lease_seconds=lease_seconds),
        )

    async def find_due_with_lease(
        self,
        owner: str,
        *,
        upto: float | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        return await self._line.call(
            "triggers.find_due_with_lease",
            lambda to: to.triggers.find_due_with_lease(
                owner, upto=upto, limit=limit, lease_seconds=lease_seconds
            ),
        )

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        return await self._line.call(
            "triggers.apply", lambda to: to.triggers.apply(batch, depth_limit=depth_limit)
        )

    async def prune(self, *, older_than_seconds: float, limit: int, dry_run: bool) -> int:
        return await self._line.call(
            "triggers.prune",
            lambda to: to.triggers.prune(
                older_than_seconds=older_than_seconds, limit=limit, dry_run=dry_run
            ),
        )


class FaultyPlans:
    """The PlanStore port over a `Line`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def beside(self, name: str, plan_id: str) -> str:
        del plan_id
        return name

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        return await self._line.call(
            "plans.create", lambda to: to.plans.create(plan, tasks, events)
        )

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        return await self._line.call(
            "plans.claim",
            lambda to: to.plans.claim(owner, limit=limit, lease_seconds=lease_seconds),
        )

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        return await self._line.call(
            "plans.renew",
            lambda to: to.plans.renew(plan_id, lease_id, lease_seconds=lease_seconds),
        )

    async def wake(self, plan_ids: Sequence[str]) -> None:
        return await self._line.call("plans.wake", lambda to: to.plans.wake(plan_ids))

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        return await self._line.call(
            "plans.apply", lambda to: to.plans.apply(change, lease_seconds=lease_seconds)
        )

    async def find(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        return await self._line.call("plans.find", lambda to: to.plans.find(plan_ids))

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        return await self._line.call("plans.tasks", lambda to: to.plans.tasks(plan_id))

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        return await self._line.call("plans.members", lambda to: to.plans.members(plan_id))

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        return await self._line.call(
            "plans.events",
            lambda to: to.plans.events(plan_id, limit=limit, after_version=after_version),
        )

    async def find_all(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        return await self._line.call(
            "plans.find_all",
            lambda to: to.plans.find_all(statuses=statuses, limit=limit, cursor=cursor),
        )

    async def prune(self, *, older_than_seconds: float, limit: int, dry_run: bool) -> int:
        return await self._line.call(
            "plans.prune",
            lambda to: to.plans.prune(
                older_than_seconds=older_than_seconds, limit=limit, dry_run=dry_run
            ),
        )
