"""The contract for durable stores: switches, audits and measures outlive a process, and are
shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.task.transition import Shut
from holdfast.ports import Store, Switch, Topic
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.admin.audit import cancel_many, entries, refused, sealed, whole
from holdfast.testing.contract.drivers.store_driver import StoreDriver, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.tasks.signals import waiting
from holdfast.testing.contract.views.measures import timed, timings


class OperatingDurability(OperatingContract):
    """``open`` is called more than once in a test and must open the same data each time."""

    @asynccontextmanager
    async def _other(self, clock: ManualClock) -> AsyncIterator[Store]:
        store = await self.open(clock)
        try:
            yield store
        finally:
            await store.close()

    async def test_what_was_switched_off_is_off_after_a_restart(
        self, driver: StoreDriver, switches: SwitchDriver, clock: ManualClock
    ) -> None:
        await driver.submit()
        for switch in Switch:
            await switches.off(switch)
        before = set(await switches.all())
        await driver.store.close()
        async with self._other(clock) as store:
            again = StoreDriver(store, clock)
            assert set(await store.admin.switches()) == before
            assert await again.insert(again.submission(id="x")) == [Shut("default")]
            assert await again.claim_ids() == []
        await driver.store.open()

    async def test_measures_and_audits_are_there_again_after_a_restart(
        self, driver: StoreDriver, clock: ManualClock
    ) -> None:
        await driver.suspend(await driver.finish_stage(await driver.start(tenant="t")))
        await driver.store.admin.observe([timed(0, 3)])
        await cancel_many(driver, 3)
        links = await whole(driver.store)
        await cancel_many(driver, 2)
        audits, errors = (
            await driver.store.admin.audits(limit=10),
            await driver.store.views.error_groups(limit=10),
        )
        await driver.store.close()
        async with self._other(clock) as store:
            assert await timings(StoreDriver(store, clock)) == [timed(0, 3)]
            assert (await store.views.stats()).checkpoints == 1
            assert list(await store.admin.audits(limit=10)) == list(audits)
            assert list(await store.views.error_groups(limit=10)) == list(errors)
            after = await whole(store)
            assert (after[:3], len(after)) == (links, 5)
        await driver.store.open()

    async def test_what_one_switches_off_is_off_for_the_other(
        self, driver: StoreDriver, switches: SwitchDriver, clock: ManualClock
    ) -> None:
        await driver.submit()
        async with self._other(clock) as store:
            other = StoreDriver(store, clock)
            await switches.off(Switch.CLAIMING)
            await switches.off(Switch.INTAKE)
            assert await other.claim_ids() == []
            assert await other.insert(other.submission(id="x")) == [Shut("default")]
            assert not await SwitchDriver(store, clock).off(Switch.INTAKE)

    async def test_what_one_switches_on_wakes_those_who_wait_at_the_other(
        self, driver: StoreDriver, switches: SwitchDriver, clock: ManualClock
    ) -> None:
        task = await driver.submit()
        await switches.off(Switch.CLAIMING)
        async with self._other(clock) as store:
            (waiter,) = await waiting(store, Topic.READY, number=1)
            await switches.on(Switch.CLAIMING)
            async with patience():
                await waiter
            assert await StoreDriver(store, clock).claim_ids() == [task.id]

    async def test_two_that_write_and_seal_at_once_make_one_chain(
        self, driver: StoreDriver, clock: ManualClock
    ) -> None:
        async with self._other(clock) as store:
            audits = [refused(driver, f"queue:{n}") for n in range(12)]
            sides = [driver.store, store]
            await asyncio.gather(
                *(sides[n % 2].admin.audit(entry) for n, entry in enumerate(audits)),
                *(sealed(side, limit=2) for side in sides),
            )
            links = await whole(driver.store)
            assert await whole(store) == links
        assert sorted(e.task_id for e in entries(links)) == sorted(e.task_id for e in audits)
