"""Due times: a task that waits for a time returns to its queue when the time has come."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.task.events import TaskDue
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Due, Kept
from holdfast.testing.contract.base import Contract

A_YEAR = 365 * 86_400.0


class DueTimes(Contract):
    async def test_nothing_waits_for_a_time_at_first(self) -> None:
        await self.driver.submit()
        assert await self.store.tasks.promote(limit=10) == Due(count=0, next_seconds=None)

    async def test_a_retry_is_due_at_its_time_and_not_before(self) -> None:
        task = await self.driver.fail(await self.driver.start(), retry_seconds=60)
        assert await self.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        assert await self.driver.promote_after(59) == Due(count=0, next_seconds=1)
        assert await self.driver.claim_ids() == []
        assert await self.driver.promote_after(1) == Due(count=1, next_seconds=None)
        loaded = await self.driver.load(task.id)
        assert (loaded.status, loaded.place, loaded.due) == (Status.PENDING, Place.READY, None)
        assert loaded.version == task.version + 1
        assert loaded.failures == 1
        assert await self.driver.last_event(task) == TaskDue(
            task_id=task.id, version=loaded.version, at=self.clock.now()
        )
        assert await self.driver.claim_ids() == [task.id]

    async def test_what_is_due_earlier_comes_back_earlier(self) -> None:
        first, second, third = await self.driver.start_many(3)
        await self.driver.fail(first, retry_seconds=30)
        await self.driver.fail(second, retry_seconds=10)
        await self.driver.fail(third, retry_seconds=20)
        assert (await self.store.tasks.promote(limit=10)).next_seconds == 10
        assert (await self.driver.promote_after(60)).count == 3
        assert await self.driver.claim_ids() == [second.id, third.id, first.id]

    async def test_no_more_than_the_limit_comes_back_in_one_step(self) -> None:
        for task in await self.driver.start_many(3):
            await self.driver.fail(task, retry_seconds=10)
        self.clock.advance(10)
        assert await self.store.tasks.promote(limit=2) == Due(count=2, next_seconds=0)
        assert await self.store.tasks.promote(limit=2) == Due(count=1, next_seconds=None)

    async def test_the_next_due_time_is_returned_with_the_tasks_that_came_back(self) -> None:
        await self.driver.fail(await self.driver.start(), retry_seconds=10)
        await self.driver.fail(await self.driver.start(), retry_seconds=40)
        assert await self.driver.promote_after(10) == Due(count=1, next_seconds=30)

    async def test_many_schedulers_bring_a_task_back_once(self) -> None:
        for task in await self.driver.start_many(10):
            await self.driver.fail(task, retry_seconds=10)
        self.clock.advance(10)
        answers = await asyncio.gather(*(self.store.tasks.promote(limit=4) for _ in range(8)))
        assert sum(answer.count for answer in answers) == 10
        assert len(set(await self.driver.claim_ids())) == 10

    async def test_a_task_that_was_handed_back_for_a_while_returns(self) -> None:
        task = await self.driver.give_back(await self.driver.start(), delay_seconds=5)
        assert (task.status, task.place) == (Status.PENDING, Place.LATER)
        assert await self.driver.claim_ids() == []
        assert (await self.driver.promote_after(5)).count == 1
        assert await self.driver.claim_ids() == [task.id]

    async def test_an_undo_that_failed_is_tried_again_later(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.ask(Command.ROLLBACK, task)
        task = await self.driver.take()
        task = await self.driver.fail_undo(task, retry_seconds=20)
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LATER)
        assert (await self.driver.promote_after(20)).count == 1
        assert (await self.driver.take()).status is Status.ROLLING_BACK

    async def test_a_retry_of_no_wait_is_due_at_once(self) -> None:
        task = await self.driver.fail(await self.driver.start(), retry_seconds=0)
        assert task.place is Place.LATER
        assert await self.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)

    # The wall clock may be set; leases and due times use a clock that cannot be set.

    @pytest.mark.parametrize("seconds", [-A_YEAR, A_YEAR])
    async def test_a_jump_of_the_wall_clock_takes_nothing_over(self, seconds: float) -> None:
        task = await self.driver.start()
        waits = await self.driver.fail(await self.driver.start(), retry_seconds=60)
        await self.driver.renew(task, lease_seconds=30)
        before = (await self.store.views.stats()).now
        self.clock.jump(seconds)
        assert (await self.store.views.stats()).now == before
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 0
        assert await self.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        (info,) = await self.store.views.workers(live_within_seconds=10)
        assert (info.seen_seconds_ago, info.live) == (0, True)
        self.clock.advance(30)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await self.driver.promote_after(30) == Due(count=1, next_seconds=None)
        assert await self.driver.claim_ids() == [task.id, waits.id]

    async def test_a_jump_of_the_wall_clock_forgets_no_worker(self) -> None:
        await self.driver.renew()
        self.clock.jump(A_YEAR)
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=60, limit=10) == 0
