"""A person has done something to a task: somebody should look at its plan."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.domain.plan.plan import Plan, PlanNext, PlanStatus
from holdfast.ports import Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS
from holdfast.testing.contract.tasks.signals import expect_signal


class PlanWaking(Contract):
    async def test_a_plan_that_rests_is_handed_out_when_it_is_woken(self, plan: Plan) -> None:
        rests = await self.plans.drive(plan, next=PlanNext.REST, status=PlanStatus.HALTED)
        async with expect_signal(self.store, Topic.DUE, waiters=0):
            await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == rests
        taken = await self.plans.take_one("d-2")
        assert replace(taken, lease=None, fence=rests.fence) == rests
        await self.plans.drive(taken, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_several_plans_are_woken_at_once(self) -> None:
        ids = sorted([(await self.plans.ready(delay_seconds=50 + n)).id for n in range(5)])
        await self.plans.port.wake([*ids, "unknown"])
        assert sorted(await self.plans.claim_ids()) == ids

    async def test_a_plan_that_is_due_already_stays_so(self) -> None:
        first, second = await self.plans.ready(), await self.plans.ready(delay_seconds=1)
        self.clock.advance(2)
        await self.plans.port.wake([second.id])
        await self.plans.port.wake([first.id])
        assert await self.plans.claim_ids() == [first.id, second.id]

    async def test_a_plan_that_is_driven_stays_with_its_driver(self, plan: Plan) -> None:
        self.clock.advance(10)
        async with expect_signal(self.store, Topic.DUE, waiters=0):
            await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == plan
        assert await self.plans.next_seconds() == LEASE_SECONDS - 10
        assert await self.plans.renew(plan)

    @pytest.mark.parametrize("next", [PlanNext.REST, PlanNext.LOOK])
    async def test_a_plan_woken_under_its_driver_is_looked_at_when_he_puts_it_down(
        self, plan: Plan, next: PlanNext
    ) -> None:
        """The driver may have looked at the task before."""
        await self.plans.port.wake([plan.id])
        await self.plans.renew(plan)
        plan = await self.plans.drive(plan)
        assert await self.plans.claim_ids("d-2") == []
        await self.plans.drive(plan, next=next, delay_seconds=50)
        plan = await self.plans.take_one("d-2")
        await self.plans.drive(plan, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_who_takes_over_looks_at_all_anyway(self, plan: Plan) -> None:
        await self.plans.port.wake([plan.id])
        self.clock.advance(LEASE_SECONDS)
        plan = await self.plans.take_one("d-2")
        await self.plans.drive(plan, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_a_plan_that_has_settled_is_not_woken(self, plan: Plan) -> None:
        await self.plans.port.wake([plan.id])
        settled = await self.plans.drive(plan, status=PlanStatus.COMPLETED)
        assert await self.plans.next_seconds() is None
        await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == settled
        assert await self.plans.next_seconds() is None

    async def test_a_plan_that_is_still_being_made_is_not_woken(self) -> None:
        plan = await self.plans.create()
        await self.plans.port.wake([plan.id, "unknown", "not a name!"])
        await self.plans.port.wake([])
        assert await self.plans.next_seconds() is None
        assert await self.plans.load(plan) == plan
