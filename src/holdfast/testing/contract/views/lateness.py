"""The contract of lateness: a time has come, and no worker has moved its record."""

from __future__ import annotations

from holdfast.ports import Awaited
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE


async def late(driver: StoreDriver) -> dict[Awaited, float]:
    found = (await driver.store.views.stats()).late_seconds
    return {kind: round(seconds, 3) for kind, seconds in found.items()}


class BeingLate(Contract):
    async def test_what_is_ready_or_at_rest_is_not_late(self) -> None:
        await self.driver.suspend_new()
        await self.driver.submit()
        self.clock.advance(3600)
        assert await late(self.driver) == {}

    async def test_a_lease_is_late_from_its_end_until_it_is_taken_back(self) -> None:
        await self.driver.start()
        self.clock.advance(LEASE_SECONDS - 1)
        assert await late(self.driver) == {}
        self.clock.advance(6)
        assert await late(self.driver) == {Awaited.LEASE: 5}
        await self.store.tasks.expire(limit=10, count_crashes=True)
        assert await late(self.driver) == {}

    async def test_the_first_due_task_says_how_late_tasks_are(self) -> None:
        for seconds in (60, 30, 90):
            await self.driver.fail(await self.driver.start(), retry_seconds=seconds)
        self.clock.advance(29)
        assert await late(self.driver) == {}
        self.clock.advance(11)
        assert await late(self.driver) == {Awaited.TASK: 10}
        await self.store.tasks.promote(limit=10)
        assert await late(self.driver) == {}

    async def test_a_trigger_is_late_while_nobody_fires_it(self) -> None:
        await self.triggers.save(due_in=A_MINUTE)
        assert await late(self.driver) == {}
        self.clock.advance(A_MINUTE + 7)
        assert await late(self.driver) == {Awaited.TRIGGER: 7}
        assert len(await self.triggers.claim_ids()) == 1
        assert await late(self.driver) == {}
        self.clock.advance(LEASE_SECONDS + 2)
        assert await late(self.driver) == {Awaited.TRIGGER: 2}, "whoever had it is gone"

    async def test_a_plan_is_late_while_nobody_drives_it(self) -> None:
        await self.plans.create("still-being-made")
        await self.plans.ready("soaks", delay_seconds=60)
        self.clock.advance(59)
        assert await late(self.driver) == {}
        self.clock.advance(4)
        assert await late(self.driver) == {Awaited.PLAN: 3}
        await self.plans.take_one()
        assert await late(self.driver) == {}
        self.clock.advance(LEASE_SECONDS + 2)
        assert await late(self.driver) == {Awaited.PLAN: 2}, "its driver is gone"
