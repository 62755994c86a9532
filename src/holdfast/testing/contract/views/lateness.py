"""The contract of lateness: a time has come, and no worker has moved its record."""

from __future__ import annotations

import pytest

from holdfast.ports import Awaited
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import PlanDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE, TriggerDriver


async def late(driver: StoreDriver) -> dict[Awaited, float]:
    found = (await driver.store.views.stats()).late_seconds
    return {kind: round(seconds, 3) for kind, seconds in found.items()}


class BeingLate(Contract):
    @pytest.fixture
    def late_triggers(self, driver: StoreDriver) -> TriggerDriver:
        return TriggerDriver(driver.store, driver.clock, driver)

    @pytest.fixture
    def late_plans(self, driver: StoreDriver) -> PlanDriver:
        return PlanDriver(driver.store, driver.clock)

    async def test_what_is_ready_or_at_rest_is_not_late(self, driver: StoreDriver) -> None:
        await driver.suspend(await driver.start())
        await driver.submit()
        driver.clock.advance(3600)
        assert await late(driver) == {}

    async def test_a_lease_is_late_from_its_end_until_it_is_taken_back(
        self, driver: StoreDriver
    ) -> None:
        await driver.start()
        driver.clock.advance(LEASE_SECONDS - 1)
        assert await late(driver) == {}
        driver.clock.advance(6)
        assert await late(driver) == {Awaited.LEASE: 5}
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert await late(driver) == {}

    async def test_the_first_due_task_says_how_late_tasks_are(self, driver: StoreDriver) -> None:
        for seconds in (60, 30, 90):
            await driver.fail(await driver.start(), retry_seconds=seconds)
        driver.clock.advance(29)
        assert await late(driver) == {}
        driver.clock.advance(11)
        assert await late(driver) == {Awaited.TASK: 10}
        await driver.store.tasks.promote(limit=10)
        assert await late(driver) == {}

    async def test_a_trigger_is_late_while_nobody_fires_it(
        self, driver: StoreDriver, late_triggers: TriggerDriver
    ) -> None:
        await late_triggers.save(due_in=A_MINUTE)
        assert await late(driver) == {}
        driver.clock.advance(A_MINUTE + 7)
        assert await late(driver) == {Awaited.TRIGGER: 7}
        assert len(await late_triggers.take_due()) == 1
        assert await late(driver) == {}
        driver.clock.advance(LEASE_SECONDS + 2)
        assert await late(driver) == {Awaited.TRIGGER: 2}, "whoever had it is gone"

    async def test_a_plan_is_late_while_nobody_drives_it(
        self, driver: StoreDriver, late_plans: PlanDriver
    ) -> None:
        await late_plans.create("still-being-made")
        await late_plans.ready("soaks", delay_seconds=60)
        driver.clock.advance(59)
        assert await late(driver) == {}
        driver.clock.advance(4)
        assert await late(driver) == {Awaited.PLAN: 3}
        await late_plans.take()
        assert await late(driver) == {}
        driver.clock.advance(LEASE_SECONDS + 2)
        assert await late(driver) == {Awaited.PLAN: 2}, "its driver is gone"
