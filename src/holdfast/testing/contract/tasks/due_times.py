"""Due times: what waits for a time comes back to its queue when the time has come."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.events import TaskDue
from holdfast.domain.task.placement import Place
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Due, Kept
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

A_YEAR = 365 * 86_400.0


class Timing(Contract):
    async def test_nothing_waits_for_a_time_at_first(self, driver: StoreDriver) -> None:
        await driver.submit()
        assert await driver.store.tasks.promote(limit=10) == Due(count=0, next_seconds=None)

    async def test_a_retry_is_due_at_its_time_and_not_before(self, driver: StoreDriver) -> None:
        task = await driver.fail(await driver.start(), retry_seconds=60)
        assert await driver.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        driver.clock.advance(59)
        assert await driver.store.tasks.promote(limit=10) == Due(count=0, next_seconds=1)
        assert await driver.claim_ids() == []
        driver.clock.advance(1)
        assert await driver.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)
        found = await driver.load(task.id)
        assert (found.status, found.place, found.due) == (Status.PENDING, Place.READY, None)
        assert found.version == task.version + 1
        assert found.failures == 1
        assert await driver.last_event(task) == TaskDue(
            task_id=task.id, version=found.version, at=driver.clock.now()
        )
        assert await driver.claim_ids() == [task.id]

    async def test_what_is_due_earlier_comes_back_earlier(self, driver: StoreDriver) -> None:
        await driver.submit_many(3)
        first, second, third = [claimed.task for claimed in await driver.claim()]
        await driver.fail(first, retry_seconds=30)
        await driver.fail(second, retry_seconds=10)
        await driver.fail(third, retry_seconds=20)
        assert (await driver.store.tasks.promote(limit=10)).next_seconds == 10
        driver.clock.advance(60)
        assert (await driver.store.tasks.promote(limit=10)).count == 3
        assert await driver.claim_ids() == [second.id, third.id, first.id]

    async def test_no_more_than_the_limit_comes_back_in_one_step(self, driver: StoreDriver) -> None:
        await driver.submit_many(3)
        for claimed in await driver.claim():
            await driver.fail(claimed.task, retry_seconds=10)
        driver.clock.advance(10)
        assert await driver.store.tasks.promote(limit=2) == Due(count=2, next_seconds=0)
        assert await driver.store.tasks.promote(limit=2) == Due(count=1, next_seconds=None)

    async def test_the_next_due_time_is_told_beside_what_came_back(
        self, driver: StoreDriver
    ) -> None:
        await driver.fail(await driver.start(), retry_seconds=10)
        await driver.fail(await driver.start(), retry_seconds=40)
        driver.clock.advance(10)
        assert await driver.store.tasks.promote(limit=10) == Due(count=1, next_seconds=30)

    async def test_many_schedulers_bring_a_task_back_once(self, driver: StoreDriver) -> None:
        await driver.submit_many(10)
        for claimed in await driver.claim():
            await driver.fail(claimed.task, retry_seconds=10)
        driver.clock.advance(10)
        answers = await asyncio.gather(*(driver.store.tasks.promote(limit=4) for _ in range(8)))
        assert sum(answer.count for answer in answers) == 10
        assert len(set(await driver.claim_ids())) == 10

    async def test_a_task_that_was_handed_back_for_a_while_returns(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.give_back(await driver.start(), delay_seconds=5)
        assert (task.status, task.place) == (Status.PENDING, Place.LATER)
        assert await driver.claim_ids() == []
        driver.clock.advance(5)
        assert (await driver.store.tasks.promote(limit=10)).count == 1
        assert await driver.claim_ids() == [task.id]

    async def test_an_undo_that_failed_is_tried_again_later(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start()))
        await driver.ask(Command.ROLLBACK, task)
        task = await driver.take()
        failed = driver.failure(task, retry_seconds=20)
        task = await driver.commit(
            decide.undo_failed(task, failed, Retry(), now=driver.clock.now())
        )
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LATER)
        driver.clock.advance(20)
        assert (await driver.store.tasks.promote(limit=10)).count == 1
        assert (await driver.take()).status is Status.ROLLING_BACK

    async def test_a_retry_of_no_wait_is_due_at_once(self, driver: StoreDriver) -> None:
        task = await driver.fail(await driver.start(), retry_seconds=0)
        assert task.place is Place.LATER
        assert await driver.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)


class Jumping(Contract):
    """The wall clock may be set; leases and due times are counted on a clock that cannot be."""

    @pytest.mark.parametrize("seconds", [-A_YEAR, A_YEAR])
    async def test_a_jump_of_the_wall_clock_takes_nothing_over(
        self, driver: StoreDriver, seconds: float
    ) -> None:
        task = await driver.start()
        waits = await driver.fail(await driver.start(), retry_seconds=60)
        await driver.renew(task, lease_seconds=30)
        before = (await driver.store.views.stats()).now
        driver.clock.jump(seconds)
        assert (await driver.store.views.stats()).now == before
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 0
        assert await driver.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        (info,) = await driver.store.views.workers(live_within_seconds=10)
        assert (info.seen_seconds_ago, info.live) == (0, True)
        driver.clock.advance(30)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        driver.clock.advance(30)
        assert await driver.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)
        assert await driver.claim_ids() == [task.id, waits.id]

    async def test_a_jump_of_the_wall_clock_forgets_no_worker(self, driver: StoreDriver) -> None:
        await driver.renew()
        driver.clock.jump(A_YEAR)
        pruned = await driver.store.admin.prune(
            Kept.WORKERS, older_than_seconds=60, limit=10, dry_run=False
        )
        assert pruned == 0
