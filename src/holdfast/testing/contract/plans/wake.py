"""A person has done something to a task: somebody should look at its plan."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.domain.plan.plan import PlanNext, PlanStatus
from holdfast.ports import Topic
from holdfast.testing.contract.drivers.plan_driver import PlanContract, PlanDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, patience
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS


class PlanWaking(PlanContract):
    async def test_a_plan_that_rests_is_handed_out_when_it_is_woken(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven("d-1")
        rests = await plans.drive(plan, next=PlanNext.REST, status=PlanStatus.HALTED)
        ticket = plans.store.ticket(Topic.DUE)
        await plans.port.wake([plan.id])
        async with patience():
            await plans.store.wait(Topic.DUE, ticket, timeout=FOREVER_SECONDS)
        assert await plans.load(plan) == rests
        taken = await plans.take("d-2")
        assert replace(taken, lease=None, fence=rests.fence) == rests
        await plans.drive(taken, next=PlanNext.REST)
        assert await plans.next_seconds() is None

    async def test_several_plans_are_woken_at_once(self, plans: PlanDriver) -> None:
        ids = sorted([(await plans.ready(delay_seconds=50 + n)).id for n in range(5)])
        await plans.port.wake([*ids, "unknown"])
        assert sorted(await plans.claim_ids()) == ids

    async def test_a_plan_that_is_due_already_stays_so(self, plans: PlanDriver) -> None:
        first, second = await plans.ready(), await plans.ready(delay_seconds=1)
        plans.clock.advance(2)
        await plans.port.wake([second.id])
        await plans.port.wake([first.id])
        assert await plans.claim_ids() == [first.id, second.id]

    async def test_a_plan_that_is_driven_stays_with_its_driver(self, plans: PlanDriver) -> None:
        plan = await plans.driven("d-1")
        plans.clock.advance(10)
        ticket = plans.store.ticket(Topic.DUE)
        await plans.port.wake([plan.id])
        async with patience():
            await plans.store.wait(Topic.DUE, ticket, timeout=FOREVER_SECONDS)
        assert await plans.load(plan) == plan
        assert await plans.next_seconds() == LEASE_SECONDS - 10
        assert await plans.renew(plan)

    @pytest.mark.parametrize("next", [PlanNext.REST, PlanNext.LOOK])
    async def test_a_plan_woken_under_its_driver_is_looked_at_when_he_puts_it_down(
        self, plans: PlanDriver, next: PlanNext
    ) -> None:
        """The driver may have looked at the task before."""
        plan = await plans.driven("d-1")
        await plans.port.wake([plan.id])
        await plans.renew(plan)
        plan = await plans.drive(plan)
        assert await plans.claim_ids("d-2") == []
        await plans.drive(plan, next=next, delay_seconds=50)
        plan = await plans.take("d-2")
        await plans.drive(plan, next=PlanNext.REST)
        assert await plans.next_seconds() is None

    async def test_who_takes_over_looks_at_all_anyway(self, plans: PlanDriver) -> None:
        plan = await plans.driven("d-1")
        await plans.port.wake([plan.id])
        plans.clock.advance(LEASE_SECONDS)
        plan = await plans.take("d-2")
        await plans.drive(plan, next=PlanNext.REST)
        assert await plans.next_seconds() is None

    async def test_a_plan_that_has_settled_is_not_woken(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        await plans.port.wake([plan.id])
        settled = await plans.drive(plan, status=PlanStatus.COMPLETED)
        assert await plans.next_seconds() is None
        await plans.port.wake([plan.id])
        assert await plans.load(plan) == settled
        assert await plans.next_seconds() is None

    async def test_a_plan_that_is_still_being_made_is_not_woken(self, plans: PlanDriver) -> None:
        plan = await plans.create()
        await plans.port.wake([plan.id, "unknown", "not a name!"])
        await plans.port.wake([])
        assert await plans.next_seconds() is None
        assert await plans.load(plan) == plan
