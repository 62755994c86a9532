"""The contract for durable stores: plans are there again, and several may have them open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.plan.plan import PlanApplied
from holdfast.ports import Topic
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, FAILED, PlanContract, PlanDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, patience
from holdfast.testing.contract.tasks.signals import waiting


class PlanDurability(PlanContract):
    """``open`` is called more than once in a test and must open the same data each time."""

    @asynccontextmanager
    async def _beside(self, clock: ManualClock) -> AsyncIterator[PlanDriver]:
        store = await self.open(clock)
        try:
            yield PlanDriver(store, clock)
        finally:
            await store.close()

    async def test_plans_are_there_again_after_a_restart(
        self, plans: PlanDriver, clock: ManualClock
    ) -> None:
        settled = await plans.settled(keep_seconds=50)
        change = await plans.decided(await plans.driven(), moves={0: ADMITTED, 2: FAILED})
        plan = await plans.commit(change)
        await plans.ready(delay_seconds=20)
        before = [await plans.all_of(found.id) for found in (settled, plan)]
        await plans.store.close()
        async with self._beside(clock) as again:
            assert [await again.all_of(found.id) for found in (settled, plan)] == before
            assert await again.commit(change) == plan
            assert await again.next_seconds() == 20
            assert await again.renew(plan)
            clock.advance(LEASE_SECONDS)
            taken = {found.id: found for found in (await again.look("d-2")).plans}
            assert len(taken) == 2
            assert taken[plan.id].fence > plan.fence
            clock.advance(LEASE_SECONDS)
            assert await again.prune() == 1
        await plans.store.open()

    async def test_two_that_have_it_open_share_its_plans(
        self, plans: PlanDriver, clock: ManualClock
    ) -> None:
        ids = sorted([(await plans.ready()).id for _ in range(12)])
        async with self._beside(clock) as other:
            sides = [(side, n) for n in range(3) for side in (plans, other)]
            claims = await asyncio.gather(*(side.claim_ids(f"d-{n}", limit=3) for side, n in sides))
        assert sorted(plan_id for claim in claims for plan_id in claim) == ids

    async def test_a_person_at_one_and_the_driver_at_the_other_write_in_one_order(
        self, plans: PlanDriver, clock: ManualClock
    ) -> None:
        plan = await plans.driven()
        async with self._beside(clock) as other:
            decided, asked = await plans.decided(plan), await other.asked(plan)
            outcomes = await asyncio.gather(plans.port.apply(decided), other.port.apply(asked))
            assert sum(isinstance(outcome, PlanApplied) for outcome in outcomes) == 1
            assert await plans.load(plan) == await other.load(plan)

    async def test_a_change_by_one_wakes_those_who_wait_at_the_other(
        self, plans: PlanDriver, clock: ManualClock
    ) -> None:
        async with self._beside(clock) as other:
            (waiter,) = await waiting(other.store, Topic.DUE, number=1)
            plan = await plans.ready()
            async with patience():
                await waiter
            assert await other.claim_ids() == [plan.id]
