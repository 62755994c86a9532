"""Holds: a held tenant's tasks are not handed out, and none of them is lost."""

from __future__ import annotations

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.tasks.signals import expect_signal

HOLD, T = Switch.HOLD, "t-1"


class TenantHolds(Contract):
    async def test_nothing_of_a_held_tenant_is_handed_out(self) -> None:
        first = await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        second = await self.driver.submit(tenant=T)  # accepted, as always
        assert await self.driver.claim_ids() == []
        assert await self.driver.claim_ids("w-2") == []
        view = await self.driver.tenant(T)
        assert (view.active, view.locked_by, view.waiting) == (first.id, None, 1)
        assert (await self.driver.load(first.id)).place is Place.READY
        assert await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids() == [first.id]
        assert (await self.driver.tenant(T)).locked_by == first.id
        assert (await self.driver.load(second.id)).place is Place.LINE
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_tenant_holds_up_nobody_else(self) -> None:
        held = await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        others = [(await self.driver.submit(tenant=f"u-{n}")).id for n in range(3)]
        plain = (await self.driver.submit()).id
        assert await self.driver.claim_ids(limit=2) == others[:2]
        assert await self.driver.claim_ids("w-2", limit=10) == [others[2], plain]
        await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids("w-3") == [held.id]

    async def test_the_doctor_finds_nothing_wrong_with_a_held_tenant(self) -> None:
        task = await self.driver.submit(tenant=T)
        await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        assert await self.driver.claim_ids() == []
        assert await self.store.admin.doctor(fix=True, limit=10) == []
        assert await self.driver.claim_ids("w-2") == []
        await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids("w-3") == [task.id]

    async def test_a_task_that_is_given_back_comes_first_after_the_release(self) -> None:
        task = await self.driver.start(tenant=T)
        behind = await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        task = await self.driver.finish_stage(task)
        task = await self.driver.give_back(task)
        assert (task.status, task.last_completed, task.crashes) == (Status.PENDING, 0, 0)
        assert await self.driver.claim_ids() == []
        assert (await self.driver.tenant(T)).active == task.id
        await self.switches.on(HOLD, T)
        (claimed,) = await self.driver.claim("w-2")
        assert (claimed.task.id, claimed.moved_on) == (task.id, False)
        assert claimed.checkpoint is not None
        assert (await self.driver.load(behind.id)).place is Place.LINE

    async def test_what_ends_retries_or_lapses_stays_held(self) -> None:
        task = await self.driver.start(tenant=T)
        await self.switches.off(HOLD, T)
        task = await self.driver.fail(task, retry_seconds=5)
        await self.driver.promote_after(6)
        assert await self.driver.claim_ids() == [], "a retry that is due"
        await self.switches.on(HOLD, T)
        (claimed,) = await self.driver.claim("w-2")
        await self.switches.off(HOLD, T)
        await self.driver.lapse()
        assert await self.driver.claim_ids("w-3") == [], "a lease that lapsed"
        await self.switches.on(HOLD, T)
        (claimed,) = await self.driver.claim("w-4")
        behind = await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        await self.driver.complete(claimed.task)
        assert await self.driver.claim_ids("w-5") == [], "the next of its line"
        assert (await self.driver.tenant(T)).active == behind.id
        await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids("w-6") == [behind.id]

    async def test_a_rollback_stays_held_and_goes_on_where_it_was(self) -> None:
        task = await self.driver.finish_stage(await self.driver.start_past_stage(tenant=T))
        task = await self.driver.suspend(task)
        await self.switches.off(HOLD, T)
        await self.driver.ask(Command.ROLLBACK, task)
        behind = await self.driver.submit(tenant=T)
        assert await self.driver.claim_ids() == [], "a rollback that has not begun"
        await self.switches.on(HOLD, T)
        half = await self.driver.commit(self.driver.decide_undo(await self.driver.take("w-2")))
        await self.switches.off(HOLD, T)
        back = await self.driver.give_back(half)
        assert (back.status, back.next_undo, back.crashes) == (
            Status.ROLLING_BACK,
            half.next_undo,
            0,
        )
        assert await self.driver.claim_ids("w-3") == [], "a rollback that was given back"
        assert (await self.driver.tenant(T)).active == task.id
        await self.switches.on(HOLD, T)
        again = await self.driver.take("w-4")
        assert (again.id, again.status) == (task.id, Status.ROLLING_BACK)
        assert again.next_undo == half.next_undo
        assert (await self.driver.load(behind.id)).place is Place.LINE
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_held_task_can_be_paused_cancelled_and_resumed(self) -> None:
        first, second = await self.driver.submit(tenant=T), await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        assert await self.driver.claim_ids() == []
        paused = await self.driver.ask(Command.PAUSE, await self.driver.load(first.id))
        assert paused.status is Status.PAUSED
        await self.driver.ask(Command.RESUME, paused)
        assert await self.driver.claim_ids("w-2") == []
        await self.driver.ask(Command.CANCEL, await self.driver.load(first.id))
        assert await self.driver.claim_ids("w-3") == []
        await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids("w-4") == [second.id]
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_release_wakes_who_waits_for_work(self) -> None:
        task = await self.driver.submit(tenant=T)
        await self.switches.off(HOLD, T)
        assert await self.driver.claim_ids() == []
        async with expect_signal(self.store, Topic.READY):
            await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids() == [task.id]

    async def test_the_end_of_a_hold_is_kept_with_it(self) -> None:
        entry = self.switches.audit(HOLD, T, on=False)
        until = self.clock.now() + 60
        assert await self.store.admin.set_switch(HOLD, T, on=False, audit=entry, until=until)
        (setting,) = await self.switches.settings()
        assert (setting.name, setting.until) == (T, until)

    async def test_a_hold_that_is_over_keeps_nothing_back(self) -> None:
        task = await self.driver.submit(tenant=T)
        end = await self.switches.hold(T, seconds=60)
        self.clock.advance(59)
        (setting,) = await self.switches.settings()
        assert setting.stands(self.clock.now())
        assert not await self.switches.release_over(T, end), "a worker whose clock is ahead"
        assert await self.driver.claim_ids("w-2") == []
        await self.switches.on(HOLD, T)
        end = await self.switches.hold(T, seconds=1)
        self.clock.advance(1)
        (setting,) = await self.switches.settings()
        assert not setting.stands(self.clock.now())
        assert await self.driver.claim_ids() == [task.id]
        assert await self.switches.release_over(T, end)
        assert await self.switches.settings() == []

    async def test_what_a_claim_met_in_a_hold_comes_with_the_release_after_its_end(self) -> None:
        task = await self.driver.submit(tenant=T)
        end = await self.switches.hold(T, seconds=60)
        assert await self.driver.claim_ids() == []
        self.clock.advance(61)
        assert await self.switches.release_over(T, end)
        assert await self.driver.claim_ids("w-2") == [task.id]
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_hold_that_is_over_is_held_anew(self) -> None:
        task = await self.driver.submit(tenant=T)
        end = await self.switches.hold(T, seconds=60)
        self.clock.advance(61)
        assert await self.switches.off(HOLD, T), "it was not held any more"
        (setting,) = await self.switches.settings()
        assert (setting.until, setting.at) == (None, self.clock.now())
        assert not await self.switches.release_over(T, end), (
            "another hold than the one that was seen"
        )
        assert len(await self.switches.settings()) == 1
        assert await self.driver.claim_ids() == []
        assert await self.switches.on(HOLD, T)
        assert await self.driver.claim_ids("w-2") == [task.id]

    async def test_releasing_a_hold_that_is_over_answers_that_there_was_none(self) -> None:
        task = await self.driver.submit(tenant=T)
        await self.switches.hold(T, seconds=60)
        assert await self.driver.claim_ids() == []
        self.clock.advance(60)
        assert not await self.switches.on(HOLD, T)
        assert await self.switches.settings() == []
        assert await self.driver.claim_ids("w-2") == [task.id]

    @pytest.mark.parametrize("name", ["t/1:a@b", "天"])
    async def test_a_tenant_of_any_name_can_be_held(self, name: str) -> None:
        task = await self.driver.submit(tenant=name)
        await self.switches.off(HOLD, name)
        assert await self.driver.claim_ids() == []
        await self.switches.on(HOLD, name)
        assert await self.driver.claim_ids("w-2") == [task.id]
