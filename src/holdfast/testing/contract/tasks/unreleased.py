"""Unreleased tasks, and writes that are refused instead of waiting in a tenant's line."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import IllegalTransition
from holdfast.domain.task.events import TaskHeldBack
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Busy, Stale, Transition
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from holdfast.testing.contract.tasks.tenant_line import SETTLED, UNSETTLED


def unless_busy(driver: StoreDriver, task: Task, command: Command = Command.RELEASE) -> Transition:
    return replace(driver.request(command, task), not_if_busy=True)


async def is_busy(driver: StoreDriver, transition: Transition) -> None:
    """Expect that the write is answered BUSY and leaves no trace."""
    task = await driver.load(transition.task_id)
    before = await everything(driver, task)
    assert await driver.apply(transition) == Busy(task)
    assert await everything(driver, task) == before


async def everything(driver: StoreDriver, task: Task) -> tuple[object, ...]:
    tenant = await driver.tenant(task.tenant) if task.tenant else None
    audits = list(await driver.store.admin.audits(limit=100))
    return await driver.detail(task), tenant, await driver.store.views.stats(), audits


class UnreleasedTasks(Contract):
    async def test_a_held_task_is_not_handed_out_until_it_is_released(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        assert (held.status, held.place) == (Status.CREATED, Place.HELD)
        assert await self.driver.claim_ids() == []
        released = await self.driver.ask(Command.RELEASE, held)
        assert (released.status, released.place) == (Status.PENDING, Place.READY)
        assert await self.driver.claim_ids() == [held.id]

    async def test_a_held_task_keeps_nobody_waiting(self) -> None:
        await self.driver.submit(held=True, tenant="t")
        assert (await self.driver.tenant("t")).active is None
        other = await self.driver.submit(tenant="t")
        assert await self.driver.claim_ids() == [other.id]

    async def test_a_task_held_back_stays_where_it_is_in_a_new_version(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        task = await self.driver.ask(Command.HOLD_BACK, held)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        assert (task.version, task.order) == (held.version + 1, held.order)
        event = await self.driver.last_event(task)
        assert isinstance(event, TaskHeldBack)
        assert (event.version, event.by) == (task.version, ASKER)
        assert (await self.store.admin.audits(limit=1))[0].command == Command.HOLD_BACK
        assert await self.driver.claim_ids() == []
        assert (await self.store.views.stats()).by_status[Status.CREATED] == 1

    async def test_a_release_decided_on_before_is_void(self) -> None:
        held = await self.driver.submit(held=True)
        release = self.driver.request(Command.RELEASE, held)
        back = await self.driver.ask(Command.HOLD_BACK, held)
        assert await self.driver.expect_stale(release) == back
        assert await self.driver.expect_stale(replace(release, not_if_busy=True)) == back
        assert await self.driver.claim_ids() == []
        await self.driver.ask(Command.RELEASE, back)
        assert await self.driver.claim_ids() == [held.id]

    async def test_a_task_released_before_is_not_held_back(self) -> None:
        held = await self.driver.submit(held=True)
        back = self.driver.request(Command.HOLD_BACK, held)
        released = await self.driver.ask(Command.RELEASE, held)
        assert await self.driver.expect_stale(back) == released
        with pytest.raises(IllegalTransition):
            self.driver.request(Command.HOLD_BACK, released)
        assert await self.driver.claim_ids() == [held.id]

    async def test_a_repeat_of_holding_back_is_answered_as_the_first_was(self) -> None:
        back = self.driver.request(Command.HOLD_BACK, await self.driver.submit(held=True))
        first = await self.driver.apply(back)
        assert isinstance(first, Applied)
        assert await self.driver.apply(back) == first
        assert (await self.driver.events(first.task)).count("TaskHeldBack") == 1

    async def test_of_a_release_and_a_holding_back_one_is_written(self) -> None:
        held = await self.driver.submit(held=True)
        commands = (Command.RELEASE, Command.HOLD_BACK)
        writes = (self.driver.apply_request(command, held) for command in commands)
        outcomes = await asyncio.gather(*writes)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Stale"]
        released = isinstance(outcomes[0], Applied)
        assert await self.driver.claim_ids() == ([held.id] if released else [])

    async def test_a_task_held_back_can_be_cancelled(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await self.driver.ask(Command.HOLD_BACK, held)
        task = await self.driver.ask(Command.CANCEL, held)
        assert (task.status, task.place) == (Status.CANCELLED, Place.SETTLED)

    @pytest.mark.parametrize("tenant", [None, "t"])
    async def test_a_task_is_released_when_it_need_not_wait(self, tenant: str | None) -> None:
        held = await self.driver.submit(held=True, tenant=tenant)
        await self.driver.submit(held=True, tenant=tenant)
        await self.driver.start(tenant="other")
        task = await self.driver.commit(unless_busy(self.driver, held))
        assert task.place is Place.READY
        assert await self.driver.claim_ids() == [held.id]

    async def test_a_release_is_refused_while_another_task_of_the_tenant_waits_or_runs(
        self,
    ) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await self.driver.submit(tenant="t")
        release = unless_busy(self.driver, held)
        await is_busy(self.driver, release)
        running = await self.driver.take()
        await is_busy(self.driver, release)
        await self.driver.complete(running)
        assert (await self.driver.commit(release)).place is Place.READY

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_release_is_refused_while_a_resting_task_holds_the_line(
        self, status: Status
    ) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await UNSETTLED[status](self.driver, await self.driver.start(tenant="t", hold=True))
        await is_busy(self.driver, unless_busy(self.driver, held))

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_task_is_released_while_another_rests_that_holds_no_line(
        self, status: Status
    ) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await UNSETTLED[status](self.driver, await self.driver.start(tenant="t", hold=False))
        assert (await self.driver.commit(unless_busy(self.driver, held))).place is Place.READY
        assert await self.driver.claim_ids() == [held.id]

    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_a_task_is_released_when_the_other_has_settled(self, status: Status) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await SETTLED[status](self.driver, await self.driver.start(tenant="t", hold=True))
        assert (await self.driver.commit(unless_busy(self.driver, held))).place is Place.READY

    async def test_the_tenants_active_task_waits_for_nobody(self) -> None:
        task = await self.driver.suspend_new(tenant="t", hold=True)
        await self.driver.submit(tenant="t")
        again = await self.driver.commit(unless_busy(self.driver, task, Command.RETRY))
        assert again.place is Place.READY
        assert await self.driver.claim_ids() == [task.id]

    async def test_a_resting_task_is_not_set_going_behind_another(self) -> None:
        task = await self.driver.suspend_new(tenant="t")
        running = await self.driver.start(tenant="t")
        retry = unless_busy(self.driver, task, Command.RETRY)
        await is_busy(self.driver, retry)
        await self.driver.complete(running)
        assert (await self.driver.commit(retry)).place is Place.READY

    async def test_without_the_condition_it_waits_in_the_line(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await self.driver.start(tenant="t")
        assert (await self.driver.ask(Command.RELEASE, held)).place is Place.LINE

    async def test_the_version_is_compared_before_the_line_is_read(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        await self.driver.start(tenant="t")
        release = unless_busy(self.driver, held)
        back = await self.driver.ask(Command.HOLD_BACK, held)
        assert await self.driver.apply(release) == Stale(back)

    async def test_a_repeat_is_answered_as_the_first_was_though_the_line_is_closed_by_now(
        self,
    ) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        release = unless_busy(self.driver, held)
        await self.driver.commit(release)
        await self.driver.complete(await self.driver.take())
        await self.driver.start(tenant="t")
        assert isinstance(await self.driver.apply(release), Applied)

    async def test_of_many_released_at_once_one_goes(self) -> None:
        ids = await self.driver.submit_many(6, tenant="t", held=True)
        releases = [unless_busy(self.driver, await self.driver.load(task_id)) for task_id in ids]
        outcomes = await asyncio.gather(*(self.driver.apply(release) for release in releases))
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["Applied"] + ["Busy"] * 5
        assert len(await self.driver.claim_ids()) == 1

    async def test_of_one_batch_the_first_goes(self) -> None:
        ids = await self.driver.submit_many(3, tenant="t", held=True)
        releases = [unless_busy(self.driver, await self.driver.load(task_id)) for task_id in ids]
        outcomes = await self.store.tasks.apply(releases)
        assert [type(outcome) for outcome in outcomes] == [Applied, Busy, Busy]
        assert await self.driver.claim_ids() == ids[:1]
