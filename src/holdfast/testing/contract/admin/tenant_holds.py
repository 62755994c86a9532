"""Holds of tenants: nothing of a held tenant is handed out, and nothing of it is lost."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, Hands, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchHands
from holdfast.testing.contract.tasks.signals import waiting

HOLD, T = Switch.HOLD, "t-1"


class TenantHolds(OperatingContract):
    async def test_nothing_of_a_held_tenant_is_handed_out(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        first = await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        second = await hands.submit(tenant=T)  # accepted, as ever
        assert await hands.claim_ids() == []
        assert await hands.claim_ids("w-2") == []
        view = await hands.tenant(T)
        assert (view.active, view.locked_by, view.waiting) == (first.id, None, 1)
        assert (await hands.load(first.id)).place is Place.READY
        assert await switches.on(HOLD, T)
        assert await hands.claim_ids() == [first.id]
        assert (await hands.tenant(T)).locked_by == first.id
        assert (await hands.load(second.id)).place is Place.LINE
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_tenant_holds_up_nobody_else(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        held = await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        others = [(await hands.submit(tenant=f"u-{n}")).id for n in range(3)]
        plain = (await hands.submit()).id
        assert await hands.claim_ids(limit=2) == others[:2]
        assert await hands.claim_ids("w-2", limit=10) == [others[2], plain]
        await switches.on(HOLD, T)
        assert await hands.claim_ids("w-3") == [held.id]

    async def test_the_doctor_finds_nothing_wrong_with_a_held_tenant(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await hands.claim_ids() == []
        assert await hands.store.admin.doctor(fix=True, limit=10) == []
        assert await hands.claim_ids("w-2") == []
        await switches.on(HOLD, T)
        assert await hands.claim_ids("w-3") == [task.id]

    async def test_a_task_that_is_given_back_comes_first_after_the_release(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.start(tenant=T)
        behind = await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        task = await hands.finish_stage(task)
        task = await hands.give_back(task)
        assert (task.status, task.last_completed, task.crashes) == (Status.PENDING, 0, 0)
        assert await hands.claim_ids() == []
        assert (await hands.tenant(T)).active == task.id
        await switches.on(HOLD, T)
        (claimed,) = await hands.claim("w-2")
        assert (claimed.task.id, claimed.moved_on) == (task.id, False)
        assert claimed.checkpoint is not None
        assert (await hands.load(behind.id)).place is Place.LINE

    async def test_what_ends_retries_or_lapses_stays_held(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.start(tenant=T)
        await switches.off(HOLD, T)
        task = await hands.fail(task, retry_seconds=5)
        hands.clock.advance(6)
        await hands.store.tasks.promote(limit=10)
        assert await hands.claim_ids() == [], "a retry that is due"
        await switches.on(HOLD, T)
        (claimed,) = await hands.claim("w-2")
        await switches.off(HOLD, T)
        hands.clock.advance(LEASE_SECONDS + 1)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        assert await hands.claim_ids("w-3") == [], "a lease that lapsed"
        await switches.on(HOLD, T)
        (claimed,) = await hands.claim("w-4")
        behind = await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        await hands.complete(claimed.task)
        assert await hands.claim_ids("w-5") == [], "the next of its line"
        assert (await hands.tenant(T)).active == behind.id
        await switches.on(HOLD, T)
        assert await hands.claim_ids("w-6") == [behind.id]

    async def test_a_rollback_stays_held_and_goes_on_where_it_was(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.finish_stage(await hands.finish_stage(await hands.start(tenant=T)))
        task = await hands.suspend(task)
        await switches.off(HOLD, T)
        await hands.ask(Command.ROLLBACK, task)
        behind = await hands.submit(tenant=T)
        assert await hands.claim_ids() == [], "a rollback that has not begun"
        await switches.on(HOLD, T)
        half = await hands.commit(hands.undone(await hands.take("w-2")))
        await switches.off(HOLD, T)
        back = await hands.give_back(half)
        assert (back.status, back.next_undo, back.crashes) == (
            Status.ROLLING_BACK,
            half.next_undo,
            0,
        )
        assert await hands.claim_ids("w-3") == [], "a rollback that was given back"
        assert (await hands.tenant(T)).active == task.id
        await switches.on(HOLD, T)
        again = await hands.take("w-4")
        assert (again.id, again.status) == (task.id, Status.ROLLING_BACK)
        assert again.next_undo == half.next_undo
        assert (await hands.load(behind.id)).place is Place.LINE
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_task_can_be_paused_cancelled_and_resumed(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        first, second = await hands.submit(tenant=T), await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await hands.claim_ids() == []
        paused = await hands.ask(Command.PAUSE, await hands.load(first.id))
        assert paused.status is Status.PAUSED
        await hands.ask(Command.RESUME, paused)
        assert await hands.claim_ids("w-2") == []
        await hands.ask(Command.CANCEL, await hands.load(first.id))
        assert await hands.claim_ids("w-3") == []
        await switches.on(HOLD, T)
        assert await hands.claim_ids("w-4") == [second.id]
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_release_wakes_who_waits_for_work(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        await switches.off(HOLD, T)
        assert await hands.claim_ids() == []
        waiters = await waiting(hands.store, Topic.READY, number=2)
        await switches.on(HOLD, T)
        async with patience():
            await asyncio.gather(*waiters)
        assert await hands.claim_ids() == [task.id]

    async def test_the_end_of_a_hold_is_kept_with_it(self, switches: SwitchHands) -> None:
        entry = switches.audit(HOLD, T, on=False)
        until = switches.clock.now() + 60
        assert await switches.store.admin.set_switch(HOLD, T, on=False, audit=entry, until=until)
        (thrown,) = await switches.all()
        assert (thrown.name, thrown.until) == (T, until)

    async def test_a_hold_that_is_over_keeps_nothing_back(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        hands.clock.advance(59)
        (thrown,) = await switches.all()
        assert thrown.stands(hands.clock.now())
        assert not await switches.release_over(T, end), "a worker whose clock is ahead"
        assert await hands.claim_ids("w-2") == []
        await switches.on(HOLD, T)
        end = await switches.hold(T, seconds=1)
        hands.clock.advance(1)
        (thrown,) = await switches.all()
        assert not thrown.stands(hands.clock.now())
        assert await hands.claim_ids() == [task.id]
        assert await switches.release_over(T, end)
        assert await switches.all() == []

    async def test_what_a_claim_met_in_a_hold_comes_with_the_release_after_its_end(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        assert await hands.claim_ids() == []
        hands.clock.advance(61)
        assert await switches.release_over(T, end)
        assert await hands.claim_ids("w-2") == [task.id]
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_hold_that_is_over_is_held_anew(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        end = await switches.hold(T, seconds=60)
        hands.clock.advance(61)
        assert await switches.off(HOLD, T), "it was not held any more"
        (thrown,) = await switches.all()
        assert (thrown.until, thrown.at) == (None, hands.clock.now())
        assert not await switches.release_over(T, end), "another hold than the one that was seen"
        assert len(await switches.all()) == 1
        assert await hands.claim_ids() == []
        assert await switches.on(HOLD, T)
        assert await hands.claim_ids("w-2") == [task.id]

    async def test_who_releases_a_hold_that_is_over_is_told_that_none_was_there(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        task = await hands.submit(tenant=T)
        await switches.hold(T, seconds=60)
        assert await hands.claim_ids() == []
        hands.clock.advance(60)
        assert not await switches.on(HOLD, T)
        assert await switches.all() == []
        assert await hands.claim_ids("w-2") == [task.id]

    @pytest.mark.parametrize("name", ["t/1:a@b", "天"])
    async def test_a_tenant_of_any_name_can_be_held(
        self, hands: Hands, switches: SwitchHands, name: str
    ) -> None:
        task = await hands.submit(tenant=name)
        await switches.off(HOLD, name)
        assert await hands.claim_ids() == []
        await switches.on(HOLD, name)
        assert await hands.claim_ids("w-2") == [task.id]
