"""Tenant lines: a tenant runs one task, the others wait, and no tenant waits for another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

Rest = Callable[[StoreDriver, Task], Awaitable[Task]]


UNSETTLED: dict[Status, Rest] = {
    Status.PAUSED: StoreDriver.pause,
    Status.RETRYING: StoreDriver.fail,
    Status.FAILED: StoreDriver.suspend,
}
SETTLED: dict[Status, Rest] = {
    Status.CANCELLED: StoreDriver.cancel,
    Status.COMPLETED: StoreDriver.complete,
}


class TenantLines(Contract):
    async def test_only_the_head_of_a_tenants_line_is_ready(self) -> None:
        ids = await self.driver.submit_many(3, tenant="t")
        places = [(await self.driver.load(task_id)).place for task_id in ids]
        assert places == [Place.READY, Place.LINE, Place.LINE]
        assert await self.driver.line("t", limit=10) == ids[1:]
        assert await self.driver.line("t", limit=1) == ids[1:2]
        assert await self.driver.claim_ids() == ids[:1]

    async def test_the_line_is_served_first_in_first_out(self) -> None:
        ids = await self.driver.submit_many(4, tenant="t")
        served = [(await self.driver.complete(await self.driver.take())).id for _ in ids]
        assert served == ids

    async def test_a_line_runs_through_all_queues_of_its_tenant(self) -> None:
        first = await self.driver.submit(tenant="t", queue="a")
        second = await self.driver.submit(tenant="t", queue="b")
        assert await self.driver.claim_ids(queues=("b",)) == []
        task = await self.driver.take(queues=("a", "b"))
        assert task.id == first.id
        await self.driver.complete(task)
        assert await self.driver.claim_ids(queues=("b",)) == [second.id]

    async def test_tasks_without_a_tenant_wait_for_nobody(self) -> None:
        ids = await self.driver.submit_many(3)
        assert await self.driver.claim_ids() == ids

    async def test_a_tenant_with_a_thousand_waiting_delays_nobody(self) -> None:
        heavy = await self.driver.submit_many(1_001, tenant="heavy")
        light = await self.driver.submit(tenant="light")
        none = await self.driver.submit()
        assert await self.driver.claim_ids(limit=3) == [heavy[0], light.id, none.id]
        assert (await self.driver.tenant("heavy")).waiting == 1_000

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_line_held_closed_waits_for_its_resting_task(self, status: Status) -> None:
        task = await self.driver.start(tenant="t", hold=True)
        waiting = await self.driver.submit(tenant="t")
        assert (await UNSETTLED[status](self.driver, task)).status is status
        assert await self.driver.claim_ids() == []
        assert (await self.driver.load(waiting.id)).place is Place.LINE
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (task.id, None, 1)
        later = await self.driver.submit(tenant="t")
        assert later.place is Place.LINE

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_an_open_line_goes_on_while_its_task_rests(self, status: Status) -> None:
        task = await self.driver.start(tenant="t", hold=False)
        waiting = await self.driver.submit(tenant="t")
        assert (await UNSETTLED[status](self.driver, task)).status is status
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (waiting.id, None, 0)
        assert await self.driver.claim_ids() == [waiting.id]

    @pytest.mark.parametrize("hold", [True, False])
    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_the_line_goes_on_when_its_task_has_settled(
        self, status: Status, hold: bool
    ) -> None:
        task = await self.driver.start(tenant="t", hold=hold)
        ids = await self.driver.submit_many(2, tenant="t")
        assert (await SETTLED[status](self.driver, task)).status is status
        assert await self.driver.claim_ids() == ids[:1]

    async def test_a_failed_rollback_holds_its_line_closed(self) -> None:
        task = await self.driver.start_past_stage(tenant="t", hold=True)
        await self.driver.submit(tenant="t")
        task = await self.driver.fail_rollback(task)
        assert task.status is Status.ROLLBACK_FAILED
        assert await self.driver.claim_ids() == []
        await self.driver.ask(Command.DISCARD, task)
        assert len(await self.driver.claim_ids()) == 1

    async def test_a_rollback_that_has_ended_opens_the_line(self) -> None:
        task = await self.driver.start_past_stage(tenant="t", hold=True)
        waiting = await self.driver.submit(tenant="t")
        await self.driver.roll_back(await self.driver.suspend(task))
        assert await self.driver.claim_ids() == [waiting.id]

    async def test_a_held_closed_task_comes_back_without_standing_in_line(self) -> None:
        task = await self.driver.start(tenant="t", hold=True)
        await self.driver.submit(tenant="t")
        await self.driver.suspend(task)
        task = await self.driver.ask(Command.RETRY, task)
        assert task.place is Place.READY
        assert await self.driver.claim_ids() == [task.id]

    async def test_a_due_task_that_holds_its_line_is_ready_at_once(self) -> None:
        task = await self.driver.start(tenant="t", hold=True)
        await self.driver.submit(tenant="t")
        await self.driver.fail(task, retry_seconds=60)
        await self.driver.promote_after(60)
        assert await self.driver.claim_ids() == [task.id]

    async def test_a_returning_task_goes_before_younger_ones(self) -> None:
        old = await self.driver.start(tenant="t")
        ids = await self.driver.submit_many(3, tenant="t")
        await self.driver.fail(old, retry_seconds=60)
        running = await self.driver.take()
        await self.driver.promote_after(60)
        assert (await self.driver.load(old.id)).place is Place.LINE
        assert await self.driver.line("t", limit=10) == [old.id, *ids[1:]]
        await self.driver.complete(running)
        assert await self.driver.claim_ids() == [old.id]

    async def test_a_task_given_back_is_its_tenants_next(self) -> None:
        task = await self.driver.start(tenant="t")
        await self.driver.submit(tenant="t")
        await self.driver.give_back(task)
        assert await self.driver.claim_ids() == [task.id]

    @pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
    async def test_a_task_in_the_line_can_be_taken_out_of_it(self, command: Command) -> None:
        task = await self.driver.start(tenant="t")
        second, third = await self.driver.submit_many(2, tenant="t")
        await self.driver.ask(command, await self.driver.load(second))
        assert await self.driver.line("t", limit=10) == [third]
        assert (await self.driver.tenant("t")).locked_by == task.id
        await self.driver.complete(task)
        assert await self.driver.claim_ids() == [third]

    async def test_a_task_resumed_into_the_line_has_its_old_place(self) -> None:
        running = await self.driver.start(tenant="t")
        second, third = await self.driver.submit_many(2, tenant="t")
        await self.driver.ask(Command.PAUSE, await self.driver.load(second))
        await self.driver.ask(Command.RESUME, await self.driver.load(second))
        assert await self.driver.line("t", limit=10) == [second, third]
        await self.driver.complete(running)
        assert await self.driver.claim_ids() == [second]

    @pytest.mark.parametrize("hold", [True, False])
    async def test_cancelling_the_head_wakes_the_line(self, hold: bool) -> None:
        head, second = await self.driver.submit_many(2, tenant="t", hold=hold)
        await self.driver.ask(Command.CANCEL, await self.driver.load(head))
        assert await self.driver.claim_ids() == [second]

    @pytest.mark.parametrize("hold", [True, False])
    async def test_pausing_the_head_wakes_an_open_line_only(self, hold: bool) -> None:
        head, second = await self.driver.submit_many(2, tenant="t", hold=hold)
        await self.driver.ask(Command.PAUSE, await self.driver.load(head))
        assert await self.driver.claim_ids() == ([] if hold else [second])

    async def test_a_task_that_is_let_go_at_once_wakes_the_line(self) -> None:
        task = await self.driver.start(tenant="t", keep_seconds=0)
        waiting = await self.driver.submit(tenant="t")
        await self.driver.complete(task)
        assert await self.driver.claim_ids() == [waiting.id]

    async def test_many_resting_tasks_of_an_open_line_come_back_one_at_a_time(self) -> None:
        ids = await self.driver.submit_many(4, tenant="t")
        for _ in ids:
            await self.driver.suspend(await self.driver.take())
        assert await self.driver.claim_ids() == []
        for task_id in reversed(ids):
            await self.driver.ask(Command.RETRY, await self.driver.load(task_id))
        served = []
        while claims := await self.driver.claim():
            (claimed,) = claims
            served.append((await self.driver.complete(claimed.task)).id)
        assert served == [ids[3], *ids[:3]]
