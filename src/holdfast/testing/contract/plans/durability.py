"""The contract for durable stores: plans are there again, and several may have them open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.plan.plan import PlanApplied
from holdfast.ports import Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, FAILED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, patience
from holdfast.testing.contract.tasks.signals import waiting


class PlanDurability(Contract):
    """``open`` is called more than once in a test and must open the same data each time."""

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[PlanStoreDriver]:
        async with self.open_again() as store:
            yield PlanStoreDriver(store, self.clock)

    async def test_plans_are_there_again_after_a_restart(self) -> None:
        settled = await self.plans.create_settled(keep_seconds=50)
        change = await self.plans.decide(await self.plans.start(), moves={0: ADMITTED, 2: FAILED})
        plan = await self.plans.commit(change)
        await self.plans.ready(delay_seconds=20)
        before = [await self.plans.all_of(found.id) for found in (settled, plan)]
        await self.store.close()
        async with self._beside() as again:
            assert [await again.all_of(found.id) for found in (settled, plan)] == before
            assert await again.commit(change) == plan
            assert await again.next_seconds() == 20
            assert await again.renew(plan)
            self.clock.advance(LEASE_SECONDS)
            taken = {found.id: found for found in (await again.claim("d-2")).records}
            assert len(taken) == 2
            assert taken[plan.id].fence > plan.fence
            self.clock.advance(LEASE_SECONDS)
            assert await again.prune() == 1
        await self.store.open()

    async def test_two_that_have_it_open_share_its_plans(self) -> None:
        ids = sorted([(await self.plans.ready()).id for _ in range(12)])
        async with self._beside() as other:
            sides = [(side, n) for n in range(3) for side in (self.plans, other)]
            claims = await asyncio.gather(*(side.claim_ids(f"d-{n}", limit=3) for side, n in sides))
        assert sorted(plan_id for claim in claims for plan_id in claim) == ids

    async def test_a_person_at_one_and_the_driver_at_the_other_write_in_one_order(self) -> None:
        plan = await self.plans.start()
        async with self._beside() as other:
            decided, asked = await self.plans.decide(plan), await other.request(plan)
            outcomes = await asyncio.gather(self.plans.port.apply(decided), other.port.apply(asked))
            assert sum(isinstance(outcome, PlanApplied) for outcome in outcomes) == 1
            assert await self.plans.load(plan) == await other.load(plan)

    async def test_a_change_by_one_wakes_those_who_wait_at_the_other(self) -> None:
        async with self._beside() as other:
            (waiter,) = await waiting(other.store, Topic.DUE, number=1)
            plan = await self.plans.ready()
            async with patience():
                await waiter
            assert await other.claim_ids() == [plan.id]
