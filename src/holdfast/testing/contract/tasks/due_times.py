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
from holdfast.testing.contract.drivers.store_driver import Hands

A_YEAR = 365 * 86_400.0


class Timing(Contract):
    async def test_nothing_waits_for_a_time_at_first(self, hands: Hands) -> None:
        await hands.submit()
        assert await hands.store.tasks.promote(limit=10) == Due(count=0, next_seconds=None)

    async def test_a_retry_is_due_at_its_time_and_not_before(self, hands: Hands) -> None:
        task = await hands.fail(await hands.start(), retry_seconds=60)
        assert await hands.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        hands.clock.advance(59)
        assert await hands.store.tasks.promote(limit=10) == Due(count=0, next_seconds=1)
        assert await hands.claim_ids() == []
        hands.clock.advance(1)
        assert await hands.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)
        found = await hands.load(task.id)
        assert (found.status, found.place, found.due) == (Status.PENDING, Place.READY, None)
        assert found.version == task.version + 1
        assert found.failures == 1
        assert await hands.last_event(task) == TaskDue(
            task_id=task.id, version=found.version, at=hands.clock.now()
        )
        assert await hands.claim_ids() == [task.id]

    async def test_what_is_due_earlier_comes_back_earlier(self, hands: Hands) -> None:
        await hands.submit_many(3)
        first, second, third = [claimed.task for claimed in await hands.claim()]
        await hands.fail(first, retry_seconds=30)
        await hands.fail(second, retry_seconds=10)
        await hands.fail(third, retry_seconds=20)
        assert (await hands.store.tasks.promote(limit=10)).next_seconds == 10
        hands.clock.advance(60)
        assert (await hands.store.tasks.promote(limit=10)).count == 3
        assert await hands.claim_ids() == [second.id, third.id, first.id]

    async def test_no_more_than_the_limit_comes_back_in_one_step(self, hands: Hands) -> None:
        await hands.submit_many(3)
        for claimed in await hands.claim():
            await hands.fail(claimed.task, retry_seconds=10)
        hands.clock.advance(10)
        assert await hands.store.tasks.promote(limit=2) == Due(count=2, next_seconds=0)
        assert await hands.store.tasks.promote(limit=2) == Due(count=1, next_seconds=None)

    async def test_the_next_due_time_is_told_beside_what_came_back(self, hands: Hands) -> None:
        await hands.fail(await hands.start(), retry_seconds=10)
        await hands.fail(await hands.start(), retry_seconds=40)
        hands.clock.advance(10)
        assert await hands.store.tasks.promote(limit=10) == Due(count=1, next_seconds=30)

    async def test_many_schedulers_bring_a_task_back_once(self, hands: Hands) -> None:
        await hands.submit_many(10)
        for claimed in await hands.claim():
            await hands.fail(claimed.task, retry_seconds=10)
        hands.clock.advance(10)
        answers = await asyncio.gather(*(hands.store.tasks.promote(limit=4) for _ in range(8)))
        assert sum(answer.count for answer in answers) == 10
        assert len(set(await hands.claim_ids())) == 10

    async def test_a_task_that_was_handed_back_for_a_while_returns(self, hands: Hands) -> None:
        task = await hands.give_back(await hands.start(), delay_seconds=5)
        assert (task.status, task.place) == (Status.PENDING, Place.LATER)
        assert await hands.claim_ids() == []
        hands.clock.advance(5)
        assert (await hands.store.tasks.promote(limit=10)).count == 1
        assert await hands.claim_ids() == [task.id]

    async def test_an_undo_that_failed_is_tried_again_later(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.finish_stage(await hands.start()))
        await hands.ask(Command.ROLLBACK, task)
        task = await hands.take()
        failed = hands.failure(task, retry_seconds=20)
        task = await hands.commit(decide.undo_failed(task, failed, Retry(), now=hands.clock.now()))
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LATER)
        hands.clock.advance(20)
        assert (await hands.store.tasks.promote(limit=10)).count == 1
        assert (await hands.take()).status is Status.ROLLING_BACK

    async def test_a_retry_of_no_wait_is_due_at_once(self, hands: Hands) -> None:
        task = await hands.fail(await hands.start(), retry_seconds=0)
        assert task.place is Place.LATER
        assert await hands.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)


class Jumping(Contract):
    """The wall clock may be set; leases and due times are counted on a clock that cannot be."""

    @pytest.mark.parametrize("seconds", [-A_YEAR, A_YEAR])
    async def test_a_jump_of_the_wall_clock_takes_nothing_over(
        self, hands: Hands, seconds: float
    ) -> None:
        task = await hands.start()
        waits = await hands.fail(await hands.start(), retry_seconds=60)
        await hands.renew(task, lease_seconds=30)
        before = (await hands.store.views.stats()).now
        hands.clock.jump(seconds)
        assert (await hands.store.views.stats()).now == before
        assert await hands.store.tasks.expire(limit=10, count_crashes=True) == 0
        assert await hands.store.tasks.promote(limit=10) == Due(count=0, next_seconds=60)
        (info,) = await hands.store.views.workers(live_within_seconds=10)
        assert (info.seen_seconds_ago, info.live) == (0, True)
        hands.clock.advance(30)
        assert await hands.store.tasks.expire(limit=10, count_crashes=True) == 1
        hands.clock.advance(30)
        assert await hands.store.tasks.promote(limit=10) == Due(count=1, next_seconds=None)
        assert await hands.claim_ids() == [task.id, waits.id]

    async def test_a_jump_of_the_wall_clock_forgets_no_worker(self, hands: Hands) -> None:
        await hands.renew()
        hands.clock.jump(A_YEAR)
        pruned = await hands.store.admin.prune(
            Kept.WORKERS, older_than_seconds=60, limit=10, dry_run=False
        )
        assert pruned == 0
