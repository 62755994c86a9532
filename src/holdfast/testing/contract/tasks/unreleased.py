"""Held tasks, and writes that are refused rather than left waiting in a tenant's line."""

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
from holdfast.testing.contract.tasks.tenant_queue import SETTLED, UNSETTLED


def unless_busy(driver: StoreDriver, task: Task, command: Command = Command.RELEASE) -> Transition:
    return replace(driver.asked(command, task), not_if_busy=True)


async def is_busy(driver: StoreDriver, transition: Transition) -> None:
    """The write must be answered BUSY and leave no trace."""
    task = await driver.load(transition.task_id)
    before = await everything(driver, task)
    assert await driver.apply(transition) == Busy(task)
    assert await everything(driver, task) == before


async def everything(driver: StoreDriver, task: Task) -> tuple[object, ...]:
    tenant = await driver.tenant(task.tenant) if task.tenant else None
    audits = list(await driver.store.admin.audits(limit=100))
    return await driver.detail(task), tenant, await driver.store.views.stats(), audits


class UnreleasedTasks(Contract):
    async def test_a_held_task_is_not_handed_out_until_it_is_released(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        assert (held.status, held.place) == (Status.CREATED, Place.HELD)
        assert await driver.claim_ids() == []
        released = await driver.ask(Command.RELEASE, held)
        assert (released.status, released.place) == (Status.PENDING, Place.READY)
        assert await driver.claim_ids() == [held.id]

    async def test_a_held_task_keeps_nobody_waiting(self, driver: StoreDriver) -> None:
        await driver.submit(held=True, tenant="t")
        assert (await driver.tenant("t")).active is None
        other = await driver.submit(tenant="t")
        assert await driver.claim_ids() == [other.id]

    async def test_a_task_held_back_stays_where_it_is_in_a_new_version(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        task = await driver.ask(Command.HOLD_BACK, held)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        assert (task.version, task.order) == (held.version + 1, held.order)
        event = await driver.last_event(task)
        assert isinstance(event, TaskHeldBack)
        assert (event.version, event.by) == (task.version, ASKER)
        assert (await driver.store.admin.audits(limit=1))[0].command == Command.HOLD_BACK
        assert await driver.claim_ids() == []
        assert (await driver.store.views.stats()).by_status[Status.CREATED] == 1

    async def test_a_release_decided_on_before_is_void(self, driver: StoreDriver) -> None:
        held = await driver.submit(held=True)
        release = driver.asked(Command.RELEASE, held)
        back = await driver.ask(Command.HOLD_BACK, held)
        assert await driver.refused(release) == back
        assert await driver.refused(replace(release, not_if_busy=True)) == back
        assert await driver.claim_ids() == []
        await driver.ask(Command.RELEASE, back)
        assert await driver.claim_ids() == [held.id]

    async def test_a_task_released_before_is_not_held_back(self, driver: StoreDriver) -> None:
        held = await driver.submit(held=True)
        back = driver.asked(Command.HOLD_BACK, held)
        released = await driver.ask(Command.RELEASE, held)
        assert await driver.refused(back) == released
        with pytest.raises(IllegalTransition):
            driver.asked(Command.HOLD_BACK, released)
        assert await driver.claim_ids() == [held.id]

    async def test_a_repeat_of_holding_back_is_answered_as_the_first_was(
        self, driver: StoreDriver
    ) -> None:
        back = driver.asked(Command.HOLD_BACK, await driver.submit(held=True))
        first = await driver.apply(back)
        assert isinstance(first, Applied)
        assert await driver.apply(back) == first
        assert (await driver.events(first.task)).count("TaskHeldBack") == 1

    async def test_of_a_release_and_a_holding_back_one_is_written(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True)
        commands = (Command.RELEASE, Command.HOLD_BACK)
        writes = (driver.apply(driver.asked(command, held)) for command in commands)
        outcomes = await asyncio.gather(*writes)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Stale"]
        released = isinstance(outcomes[0], Applied)
        assert await driver.claim_ids() == ([held.id] if released else [])

    async def test_a_task_held_back_can_be_cancelled(self, driver: StoreDriver) -> None:
        held = await driver.submit(held=True, tenant="t")
        await driver.ask(Command.HOLD_BACK, held)
        task = await driver.ask(Command.CANCEL, held)
        assert (task.status, task.place) == (Status.CANCELLED, Place.SETTLED)


class RefusingToWait(Contract):
    @pytest.mark.parametrize("tenant", [None, "t"])
    async def test_a_task_is_released_when_it_need_not_wait(
        self, driver: StoreDriver, tenant: str | None
    ) -> None:
        held = await driver.submit(held=True, tenant=tenant)
        await driver.submit(held=True, tenant=tenant)
        await driver.start(tenant="other")
        task = await driver.commit(unless_busy(driver, held))
        assert task.place is Place.READY
        assert await driver.claim_ids() == [held.id]

    async def test_a_release_is_refused_while_another_task_of_the_tenant_waits_or_runs(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        await driver.submit(tenant="t")
        release = unless_busy(driver, held)
        await is_busy(driver, release)
        running = await driver.take()
        await is_busy(driver, release)
        await driver.complete(running)
        assert (await driver.commit(release)).place is Place.READY

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_release_is_refused_while_a_resting_task_holds_the_line(
        self, driver: StoreDriver, status: Status
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        await UNSETTLED[status](driver, await driver.start(tenant="t", hold=True))
        await is_busy(driver, unless_busy(driver, held))

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_task_is_released_while_another_rests_that_holds_no_line(
        self, driver: StoreDriver, status: Status
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        await UNSETTLED[status](driver, await driver.start(tenant="t", hold=False))
        assert (await driver.commit(unless_busy(driver, held))).place is Place.READY
        assert await driver.claim_ids() == [held.id]

    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_a_task_is_released_when_the_other_has_settled(
        self, driver: StoreDriver, status: Status
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        await SETTLED[status](driver, await driver.start(tenant="t", hold=True))
        assert (await driver.commit(unless_busy(driver, held))).place is Place.READY

    async def test_the_tenants_active_task_waits_for_nobody(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.start(tenant="t", hold=True))
        await driver.submit(tenant="t")
        again = await driver.commit(unless_busy(driver, task, Command.RETRY))
        assert again.place is Place.READY
        assert await driver.claim_ids() == [task.id]

    async def test_a_resting_task_is_not_set_going_behind_another(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start(tenant="t"))
        running = await driver.start(tenant="t")
        retry = unless_busy(driver, task, Command.RETRY)
        await is_busy(driver, retry)
        await driver.complete(running)
        assert (await driver.commit(retry)).place is Place.READY

    async def test_without_the_condition_it_waits_in_the_line(self, driver: StoreDriver) -> None:
        held = await driver.submit(held=True, tenant="t")
        await driver.start(tenant="t")
        assert (await driver.ask(Command.RELEASE, held)).place is Place.LINE

    async def test_the_version_is_compared_before_the_line_is_looked_at(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        await driver.start(tenant="t")
        release = unless_busy(driver, held)
        back = await driver.ask(Command.HOLD_BACK, held)
        assert await driver.apply(release) == Stale(back)

    async def test_a_repeat_is_answered_as_the_first_was_though_the_line_is_closed_by_now(
        self, driver: StoreDriver
    ) -> None:
        held = await driver.submit(held=True, tenant="t")
        release = unless_busy(driver, held)
        await driver.commit(release)
        await driver.complete(await driver.take())
        await driver.start(tenant="t")
        assert isinstance(await driver.apply(release), Applied)

    async def test_of_many_released_at_once_one_goes(self, driver: StoreDriver) -> None:
        ids = await driver.submit_many(6, tenant="t", held=True)
        releases = [unless_busy(driver, await driver.load(task_id)) for task_id in ids]
        outcomes = await asyncio.gather(*(driver.apply(release) for release in releases))
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["Applied"] + ["Busy"] * 5
        assert len(await driver.claim_ids()) == 1

    async def test_of_one_batch_the_first_goes(self, driver: StoreDriver) -> None:
        ids = await driver.submit_many(3, tenant="t", held=True)
        releases = [unless_busy(driver, await driver.load(task_id)) for task_id in ids]
        outcomes = await driver.store.tasks.apply(releases)
        assert [type(outcome) for outcome in outcomes] == [Applied, Busy, Busy]
        assert await driver.claim_ids() == ids[:1]
