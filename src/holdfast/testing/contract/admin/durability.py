"""The contract for durable stores: switches, audits and measures outlive a process, and are
shared."""

from __future__ import annotations

import asyncio

from holdfast.domain.task.transition import Shut
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.admin.audit import (
    build_refusal,
    cancel_many,
    entries,
    read_chain,
    seal_all,
)
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver, patience
from holdfast.testing.contract.drivers.switch_driver import SwitchDriver
from holdfast.testing.contract.tasks.signals import waiting
from holdfast.testing.contract.views.measures import build_timings, load_timings


class OperatingDurability(Contract):
    """``open`` is called more than once in a test and must open the same data each time."""

    async def test_what_was_switched_off_is_off_after_a_restart(self) -> None:
        await self.driver.submit()
        for switch in Switch:
            await self.switches.off(switch)
        before = set(await self.switches.settings())
        await self.store.close()
        async with self.open_again() as store:
            again = StoreDriver(store, self.clock)
            assert set(await store.admin.switches()) == before
            assert await again.insert(again.submission(id="x")) == [Shut("default")]
            assert await again.claim_ids() == []
        await self.store.open()

    async def test_measures_and_audits_are_there_again_after_a_restart(self) -> None:
        await self.driver.suspend(await self.driver.start_past_stage(tenant="t"))
        await self.store.admin.observe([build_timings(0, 3)])
        await cancel_many(self.driver, 3)
        links = await read_chain(self.store)
        await cancel_many(self.driver, 2)
        audits, errors = (
            await self.store.admin.audits(limit=10),
            await self.store.views.error_groups(limit=10),
        )
        await self.store.close()
        async with self.open_again() as store:
            assert await load_timings(StoreDriver(store, self.clock)) == [build_timings(0, 3)]
            assert (await store.views.stats()).checkpoints == 1
            assert list(await store.admin.audits(limit=10)) == list(audits)
            assert list(await store.views.error_groups(limit=10)) == list(errors)
            after = await read_chain(store)
            assert (after[:3], len(after)) == (links, 5)
        await self.store.open()

    async def test_what_one_switches_off_is_off_for_the_other(self) -> None:
        await self.driver.submit()
        async with self.open_again() as store:
            other = StoreDriver(store, self.clock)
            await self.switches.off(Switch.CLAIMING)
            await self.switches.off(Switch.INTAKE)
            assert await other.claim_ids() == []
            assert await other.insert(other.submission(id="x")) == [Shut("default")]
            assert not await SwitchDriver(store, self.clock).off(Switch.INTAKE)

    async def test_what_one_switches_on_wakes_those_who_wait_at_the_other(self) -> None:
        task = await self.driver.submit()
        await self.switches.off(Switch.CLAIMING)
        async with self.open_again() as store:
            (waiter,) = await waiting(store, Topic.READY, number=1)
            await self.switches.on(Switch.CLAIMING)
            async with patience():
                await waiter
            assert await StoreDriver(store, self.clock).claim_ids() == [task.id]

    async def test_two_that_write_and_seal_at_once_make_one_chain(self) -> None:
        async with self.open_again() as store:
            audits = [build_refusal(self.driver, f"queue:{n}") for n in range(12)]
            sides = [self.store, store]
            await asyncio.gather(
                *(sides[n % 2].admin.audit(entry) for n, entry in enumerate(audits)),
                *(seal_all(side, limit=2) for side in sides),
            )
            links = await read_chain(self.store)
            assert await read_chain(store) == links
        assert sorted(e.task_id for e in entries(links)) == sorted(e.task_id for e in audits)
