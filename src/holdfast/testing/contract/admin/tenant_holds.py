"""Holds of tenants: nothing of a held tenant is handed out, and nothing of it is lost."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.tasks.signals import waiting

HOLD, T = Switch.HOLD, "t-1"


class TenantHolds(OperatingContract):
    async def test_nothing_of_a_held_tenant_is_handed_out(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        first = await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        second = await driver.submit(tenant=T)  # accepted, as ever
        assert await driver.claim_ids() == []
        assert await driver.claim_ids("w-2") == []
        view = await driver.tenant(T)
        assert (view.active, view.locked_by, view.waiting) == (first.id, None, 1)
        assert (await driver.load(first.id)).place is Place.READY
        assert await switches.on(HOLD, T)
        assert await driver.claim_ids() == [first.id]
        assert (await driver.tenant(T)).locked_by == first.id
        assert (await driver.load(second.id)).place is Place.LINE
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_tenant_holds_up_nobody_else(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        held = await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        others = [(await driver.submit(tenant=f"u-{n}")).id for n in range(3)]
        plain = (await driver.submit()).id
        assert await driver.claim_ids(limit=2) == others[:2]
        assert await driver.claim_ids("w-2", limit=10) == [others[2], plain]
        await switches.on(HOLD, T)
        assert await driver.claim_ids("w-3") == [held.id]

    async def test_the_doctor_finds_nothing_wrong_with_a_held_tenant(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await driver.claim_ids() == []
        assert await driver.store.admin.doctor(fix=True, limit=10) == []
        assert await driver.claim_ids("w-2") == []
        await switches.on(HOLD, T)
        assert await driver.claim_ids("w-3") == [task.id]

    async def test_a_task_that_is_given_back_comes_first_after_the_release(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.start(tenant=T)
        behind = await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        task = await driver.finish_stage(task)
        task = await driver.give_back(task)
        assert (task.status, task.last_completed, task.crashes) == (Status.PENDING, 0, 0)
        assert await driver.claim_ids() == []
        assert (await driver.tenant(T)).active == task.id
        await switches.on(HOLD, T)
        (claimed,) = await driver.claim("w-2")
        assert (claimed.task.id, claimed.moved_on) == (task.id, False)
        assert claimed.checkpoint is not None
        assert (await driver.load(behind.id)).place is Place.LINE

    async def test_what_ends_retries_or_lapses_stays_held(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.start(tenant=T)
        await switches.off(HOLD, T)
        task = await driver.fail(task, retry_seconds=5)
        driver.clock.advance(6)
        await driver.store.tasks.promote(limit=10)
        assert await driver.claim_ids() == [], "a retry that is due"
        await switches.on(HOLD, T)
        (claimed,) = await driver.claim("w-2")
        await switches.off(HOLD, T)
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert await driver.claim_ids("w-3") == [], "a lease that lapsed"
        await switches.on(HOLD, T)
        (claimed,) = await driver.claim("w-4")
        behind = await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        await driver.complete(claimed.task)
        assert await driver.claim_ids("w-5") == [], "the next of its line"
        assert (await driver.tenant(T)).active == behind.id
        await switches.on(HOLD, T)
        assert await driver.claim_ids("w-6") == [behind.id]

    async def test_a_rollback_stays_held_and_goes_on_where_it_was(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.finish_stage(await driver.finish_stage(await driver.start(tenant=T)))
        task = await driver.suspend(task)
        await switches.off(HOLD, T)
        await driver.ask(Command.ROLLBACK, task)
        behind = await driver.submit(tenant=T)
        assert await driver.claim_ids() == [], "a rollback that has not begun"
        await switches.on(HOLD, T)
        half = await driver.commit(driver.undone(await driver.take("w-2")))
        await switches.off(HOLD, T)
        back = await driver.give_back(half)
        assert (back.status, back.next_undo, back.crashes) == (
            Status.ROLLING_BACK,
            half.next_undo,
            0,
        )
        assert await driver.claim_ids("w-3") == [], "a rollback that was given back"
        assert (await driver.tenant(T)).active == task.id
        await switches.on(HOLD, T)
        again = await driver.take("w-4")
        assert (again.id, again.status) == (task.id, Status.ROLLING_BACK)
        assert again.next_undo == half.next_undo
        assert (await driver.load(behind.id)).place is Place.LINE
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_task_can_be_paused_cancelled_and_resumed(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        first, second = await driver.submit(tenant=T), await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await driver.claim_ids() == []
        paused = await driver.ask(Command.PAUSE, await driver.load(first.id))
        assert paused.status is Status.PAUSED
        await driver.ask(Command.RESUME, paused)
        assert await driver.claim_ids("w-2") == []
        await driver.ask(Command.CANCEL, await driver.load(first.id))
        assert await driver.claim_ids("w-3") == []
        await switches.on(HOLD, T)
        assert await driver.claim_ids("w-4") == [second.id]
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_release_wakes_who_waits_for_work(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await driver.claim_ids() == []
        waiters = await waiting(driver.store, Topic.READY, number=2)
        await switches.on(HOLD, T)
        async with patience():
            await asyncio.gather(*waiters)
        assert await driver.claim_ids() == [task.id]

    async def test_the_end_of_a_hold_is_kept_with_it(self, switches: SwitchDriver) -> None:
        entry = switches.audit(HOLD, T, on=False)
        until = switches.clock.now() + 60
        assert await switches.store.admin.set_switch(HOLD, T, on=False, audit=entry, until=until)
        (thrown,) = await switches.all()
        assert (thrown.name, thrown.until) == (T, until)

    async def test_a_hold_that_is_over_keeps_nothing_back(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        driver.clock.advance(59)
        (thrown,) = await switches.all()
        assert thrown.stands(driver.clock.now())
        assert not await switches.release_over(T, end), "a worker whose clock is ahead"
        assert await driver.claim_ids("w-2") == []
        await switches.on(HOLD, T)
        end = await switches.hold(T, seconds=1)
        driver.clock.advance(1)
        (thrown,) = await switches.all()
        assert not thrown.stands(driver.clock.now())
        assert await driver.claim_ids() == [task.id]
        assert await switches.release_over(T, end)
        assert await switches.all() == []

    async def test_what_a_claim_met_in_a_hold_comes_with_the_release_after_its_end(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        assert await driver.claim_ids() == []
        driver.clock.advance(61)
        assert await switches.release_over(T, end)
        assert await driver.claim_ids("w-2") == [task.id]
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_hold_that_is_over_is_held_anew(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        driver.clock.advance(61)
        assert await switches.off(HOLD, T), "it was not held any more"
        (thrown,) = await switches.all()
        assert (thrown.until, thrown.at) == (None, driver.clock.now())
        assert not await switches.release_over(T, end), "another hold than the one that was seen"
        assert len(await switches.all()) == 1
        assert await driver.claim_ids() == []
        assert await switches.on(HOLD, T)
        assert await driver.claim_ids("w-2") == [task.id]

    async def test_who_releases_a_hold_that_is_over_is_told_that_none_was_there(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit(tenant=T)
        await switches.hold(T, seconds=60)
        assert await driver.claim_ids() == []
        driver.clock.advance(60)
        assert not await switches.on(HOLD, T)
        assert await switches.all() == []
        assert await driver.claim_ids("w-2") == [task.id]

    @pytest.mark.parametrize("name", ["t/1:a@b", "天"])
    async def test_a_tenant_of_any_name_can_be_held(
        self, driver: StoreDriver, switches: SwitchDriver, name: str
    ) -> None:
        task = await driver.submit(tenant=name)
        await switches.off(HOLD, name)
        assert await driver.claim_ids() == []
        await switches.on(HOLD, name)
        assert await driver.claim_ids("w-2") == [task.id]
