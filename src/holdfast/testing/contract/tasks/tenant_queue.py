"""Tenants: one runs, the others wait in line, and nobody waits for another tenant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.placement import Place
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.ports import TenantView
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import Hands

Rest = Callable[[Hands, Task], Awaitable[Task]]


async def pause(hands: Hands, task: Task) -> Task:
    asked = await hands.ask(Command.PAUSE, task)
    return await hands.commit(decide.boundary(asked, now=hands.clock.now()))


async def cancel(hands: Hands, task: Task) -> Task:
    asked = await hands.ask(Command.CANCEL, task)
    return await hands.commit(decide.boundary(asked, now=hands.clock.now()))


async def retry_later(hands: Hands, task: Task) -> Task:
    return await hands.fail(task, retry_seconds=60)


async def fail(hands: Hands, task: Task) -> Task:
    return await hands.suspend(task)


async def complete(hands: Hands, task: Task) -> Task:
    return await hands.complete(task)


async def fail_to_roll_back(hands: Hands, task: Task) -> Task:
    await hands.ask(Command.ROLLBACK, await hands.suspend(task), force=True)
    task = await hands.take()
    failed = hands.failure(task, retry_seconds=None)
    return await hands.commit(decide.undo_failed(task, failed, Retry(), now=hands.clock.now()))


UNSETTLED: dict[Status, Rest] = {
    Status.PAUSED: pause,
    Status.RETRYING: retry_later,
    Status.FAILED: fail,
}
SETTLED: dict[Status, Rest] = {Status.CANCELLED: cancel, Status.COMPLETED: complete}


class Lining(Contract):
    async def test_only_the_head_of_a_tenants_line_is_ready(self, hands: Hands) -> None:
        ids = await hands.submit_many(3, tenant="t")
        places = [(await hands.load(task_id)).place for task_id in ids]
        assert places == [Place.READY, Place.LINE, Place.LINE]
        assert await hands.line("t", limit=10) == ids[1:]
        assert await hands.line("t", limit=1) == ids[1:2]
        assert await hands.claim_ids() == ids[:1]

    async def test_the_line_is_served_first_in_first_out(self, hands: Hands) -> None:
        ids = await hands.submit_many(4, tenant="t")
        served = [(await hands.complete(await hands.take())).id for _ in ids]
        assert served == ids

    async def test_a_line_runs_through_all_queues_of_its_tenant(self, hands: Hands) -> None:
        first = await hands.submit(tenant="t", queue="a")
        second = await hands.submit(tenant="t", queue="b")
        assert await hands.claim_ids(queues=("b",)) == []
        task = await hands.take(queues=("a", "b"))
        assert task.id == first.id
        await hands.complete(task)
        assert await hands.claim_ids(queues=("b",)) == [second.id]

    async def test_tasks_without_a_tenant_wait_for_nobody(self, hands: Hands) -> None:
        ids = await hands.submit_many(3)
        assert await hands.claim_ids() == ids

    async def test_a_tenant_with_a_thousand_waiting_delays_nobody(self, hands: Hands) -> None:
        heavy = await hands.submit_many(1_001, tenant="heavy")
        light = await hands.submit(tenant="light")
        none = await hands.submit()
        assert await hands.claim_ids(limit=3) == [heavy[0], light.id, none.id]
        assert (await hands.tenant("heavy")).waiting == 1_000

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_line_held_closed_waits_for_its_resting_task(
        self, hands: Hands, status: Status
    ) -> None:
        task = await hands.start(tenant="t", hold=True)
        waiting = await hands.submit(tenant="t")
        assert (await UNSETTLED[status](hands, task)).status is status
        assert await hands.claim_ids() == []
        assert (await hands.load(waiting.id)).place is Place.LINE
        view = await hands.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (task.id, None, 1)
        later = await hands.submit(tenant="t")
        assert later.place is Place.LINE

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_an_open_line_goes_on_while_its_task_rests(
        self, hands: Hands, status: Status
    ) -> None:
        task = await hands.start(tenant="t", hold=False)
        waiting = await hands.submit(tenant="t")
        assert (await UNSETTLED[status](hands, task)).status is status
        view = await hands.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (waiting.id, None, 0)
        assert await hands.claim_ids() == [waiting.id]

    @pytest.mark.parametrize("hold", [True, False])
    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_the_line_goes_on_when_its_task_has_settled(
        self, hands: Hands, status: Status, hold: bool
    ) -> None:
        task = await hands.start(tenant="t", hold=hold)
        ids = await hands.submit_many(2, tenant="t")
        assert (await SETTLED[status](hands, task)).status is status
        assert await hands.claim_ids() == ids[:1]

    async def test_a_failed_rollback_holds_its_line_closed(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start(tenant="t", hold=True))
        await hands.submit(tenant="t")
        task = await fail_to_roll_back(hands, task)
        assert task.status is Status.ROLLBACK_FAILED
        assert await hands.claim_ids() == []
        await hands.ask(Command.DISCARD, task)
        assert len(await hands.claim_ids()) == 1

    async def test_a_rollback_that_has_ended_opens_the_line(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start(tenant="t", hold=True))
        waiting = await hands.submit(tenant="t")
        await hands.roll_back(await hands.suspend(task))
        assert await hands.claim_ids() == [waiting.id]

    async def test_a_held_closed_task_comes_back_without_standing_in_line(
        self, hands: Hands
    ) -> None:
        task = await hands.start(tenant="t", hold=True)
        await hands.submit(tenant="t")
        await hands.suspend(task)
        task = await hands.ask(Command.RETRY, task)
        assert task.place is Place.READY
        assert await hands.claim_ids() == [task.id]

    async def test_a_due_task_that_holds_its_line_is_ready_at_once(self, hands: Hands) -> None:
        task = await hands.start(tenant="t", hold=True)
        await hands.submit(tenant="t")
        await hands.fail(task, retry_seconds=60)
        hands.clock.advance(60)
        await hands.store.tasks.promote(limit=10)
        assert await hands.claim_ids() == [task.id]

    async def test_a_returning_task_goes_before_younger_ones(self, hands: Hands) -> None:
        old = await hands.start(tenant="t")
        ids = await hands.submit_many(3, tenant="t")
        await hands.fail(old, retry_seconds=60)
        running = await hands.take()
        hands.clock.advance(60)
        await hands.store.tasks.promote(limit=10)
        assert (await hands.load(old.id)).place is Place.LINE
        assert await hands.line("t", limit=10) == [old.id, *ids[1:]]
        await hands.complete(running)
        assert await hands.claim_ids() == [old.id]

    async def test_a_task_given_back_is_its_tenants_next(self, hands: Hands) -> None:
        task = await hands.start(tenant="t")
        await hands.submit(tenant="t")
        await hands.give_back(task)
        assert await hands.claim_ids() == [task.id]

    @pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
    async def test_a_task_in_the_line_can_be_taken_out_of_it(
        self, hands: Hands, command: Command
    ) -> None:
        task = await hands.start(tenant="t")
        second, third = await hands.submit_many(2, tenant="t")
        await hands.ask(command, await hands.load(second))
        assert await hands.line("t", limit=10) == [third]
        assert (await hands.tenant("t")).locked_by == task.id
        await hands.complete(task)
        assert await hands.claim_ids() == [third]

    async def test_a_task_resumed_into_the_line_has_its_old_place(self, hands: Hands) -> None:
        running = await hands.start(tenant="t")
        second, third = await hands.submit_many(2, tenant="t")
        await hands.ask(Command.PAUSE, await hands.load(second))
        await hands.ask(Command.RESUME, await hands.load(second))
        assert await hands.line("t", limit=10) == [second, third]
        await hands.complete(running)
        assert await hands.claim_ids() == [second]

    @pytest.mark.parametrize("hold", [True, False])
    async def test_cancelling_the_head_wakes_the_line(self, hands: Hands, hold: bool) -> None:
        head, second = await hands.submit_many(2, tenant="t", hold=hold)
        await hands.ask(Command.CANCEL, await hands.load(head))
        assert await hands.claim_ids() == [second]

    @pytest.mark.parametrize("hold", [True, False])
    async def test_pausing_the_head_wakes_an_open_line_only(self, hands: Hands, hold: bool) -> None:
        head, second = await hands.submit_many(2, tenant="t", hold=hold)
        await hands.ask(Command.PAUSE, await hands.load(head))
        assert await hands.claim_ids() == ([] if hold else [second])

    async def test_a_task_that_is_let_go_at_once_wakes_the_line(self, hands: Hands) -> None:
        task = await hands.start(tenant="t", keep_seconds=0)
        waiting = await hands.submit(tenant="t")
        await hands.complete(task)
        assert await hands.claim_ids() == [waiting.id]

    async def test_many_resting_tasks_of_an_open_line_come_back_one_at_a_time(
        self, hands: Hands
    ) -> None:
        ids = await hands.submit_many(4, tenant="t")
        for _ in ids:
            await hands.suspend(await hands.take())
        assert await hands.claim_ids() == []
        for task_id in reversed(ids):
            await hands.ask(Command.RETRY, await hands.load(task_id))
        served = []
        while claims := await hands.claim():
            (claimed,) = claims
            served.append((await hands.complete(claimed.task)).id)
        assert served == [ids[3], *ids[:3]]


class ActiveTask(Contract):
    """The tenant index (P6) and the tenant lock (P7), as `tenants` shows them."""

    async def test_an_unknown_tenant_has_nothing(self, hands: Hands) -> None:
        assert await hands.tenant("nobody") == TenantView(
            tenant="nobody", active=None, locked_by=None, fence=0, waiting=0
        )

    async def test_tenants_are_answered_in_the_order_asked(self, hands: Hands) -> None:
        await hands.submit_many(2, tenant="b")
        views = await hands.store.views.tenants(["c", "b", "a", "b"])
        assert [view.tenant for view in views] == ["c", "b", "a", "b"]
        assert [view.waiting for view in views] == [0, 1, 0, 1]

    async def test_the_active_task_is_the_head_then_the_one_that_runs(self, hands: Hands) -> None:
        head, _ = await hands.submit_many(2, tenant="t")
        view = await hands.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (head, None, 1)
        task = await hands.take()
        view = await hands.tenant("t")
        assert (view.active, view.locked_by, view.fence) == (head, head, task.fence)

    async def test_the_lock_is_taken_by_a_claim_and_kept_over_stages(self, hands: Hands) -> None:
        task = await hands.start(tenant="t")
        task = await hands.finish_stage(task)
        assert (await hands.tenant("t")).locked_by == task.id

    @pytest.mark.parametrize("status", list(UNSETTLED))
    @pytest.mark.parametrize("hold", [True, False])
    async def test_a_task_that_rests_unsettled_stays_active_without_the_lock(
        self, hands: Hands, status: Status, hold: bool
    ) -> None:
        task = await hands.start(tenant="t", hold=hold)
        await UNSETTLED[status](hands, task)
        view = await hands.tenant("t")
        assert (view.active, view.locked_by) == (task.id, None)

    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_a_settled_task_is_no_longer_active(self, hands: Hands, status: Status) -> None:
        task = await SETTLED[status](hands, await hands.start(tenant="t"))
        view = await hands.tenant("t")
        assert (view.active, view.locked_by, view.fence) == (None, None, task.fence)

    async def test_settling_another_task_does_not_clear_the_active_one(self, hands: Hands) -> None:
        resting = await hands.suspend(await hands.start(tenant="t"))
        running = await hands.start(tenant="t")
        await hands.ask(Command.DISCARD, resting)
        view = await hands.tenant("t")
        assert (view.active, view.locked_by) == (running.id, running.id)

    async def test_what_still_rests_is_active_again_when_newer_work_has_settled(
        self, hands: Hands
    ) -> None:
        older = await hands.suspend(await hands.start(tenant="t"))
        resting = await hands.suspend(await hands.start(tenant="t"))
        await hands.complete(await hands.start(tenant="t"))
        assert (await hands.tenant("t")).active == resting.id
        await hands.ask(Command.DISCARD, resting)
        assert (await hands.tenant("t")).active == older.id
        newer = await hands.start(tenant="t")
        assert (await hands.tenant("t")).active == newer.id
        await hands.ask(Command.DISCARD, older)
        await hands.complete(newer)
        assert (await hands.tenant("t")).active is None

    async def test_tenants_do_not_touch_each_other(self, hands: Hands) -> None:
        a, b = [await hands.start(tenant=tenant) for tenant in ("a", "b")]
        await hands.complete(a)
        view = await hands.tenant("b")
        assert (view.active, view.locked_by, view.fence) == (b.id, b.id, b.fence)
