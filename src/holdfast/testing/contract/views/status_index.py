"""The contract of the index by status: it follows every move, whoever makes it (P5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.tasks.tenant_queue import (
    cancel,
    fail_to_roll_back,
    pause,
    retry_later,
)

Way = Callable[[StoreDriver], Awaitable[Task]]


async def held(driver: StoreDriver) -> Task:
    return await driver.submit(held=True)


async def released(driver: StoreDriver) -> Task:
    return await driver.ask(Command.RELEASE, await held(driver))


async def running(driver: StoreDriver) -> Task:
    return await driver.start_past_stage()


async def given_back(driver: StoreDriver) -> Task:
    return await driver.give_back(await running(driver))


async def retrying(driver: StoreDriver) -> Task:
    return await retry_later(driver, await running(driver))


async def due(driver: StoreDriver) -> Task:
    task = await retrying(driver)
    driver.clock.advance(61)
    assert (await driver.store.tasks.promote(limit=10)).count == 1
    return await driver.load(task.id)


async def lapsed(driver: StoreDriver) -> Task:
    task = await running(driver)
    driver.clock.advance(3600)
    await driver.store.tasks.expire(limit=10, count_crashes=True)
    return await driver.load(task.id)


async def paused(driver: StoreDriver) -> Task:
    return await pause(driver, await running(driver))


async def resumed(driver: StoreDriver) -> Task:
    return await driver.ask(Command.RESUME, await paused(driver))


async def completed(driver: StoreDriver) -> Task:
    return await driver.complete(await running(driver))


async def failed(driver: StoreDriver) -> Task:
    return await driver.suspend(await running(driver))


async def retried(driver: StoreDriver) -> Task:
    return await driver.ask(Command.RETRY, await failed(driver))


async def cancelled(driver: StoreDriver) -> Task:
    return await cancel(driver, await running(driver))


async def discarded(driver: StoreDriver) -> Task:
    return await driver.ask(Command.DISCARD, await failed(driver))


async def to_roll_back(driver: StoreDriver) -> Task:
    return await driver.ask(Command.ROLLBACK, await completed(driver))


async def undoing(driver: StoreDriver) -> Task:
    await to_roll_back(driver)
    return await driver.commit(driver.decide_undo(await driver.take()))


async def rolled_back(driver: StoreDriver) -> Task:
    return await driver.roll_back(await failed(driver))


async def run_again(driver: StoreDriver) -> Task:
    return await driver.ask(Command.RETRY, await rolled_back(driver))


async def not_rolled_back(driver: StoreDriver) -> Task:
    return await fail_to_roll_back(driver, await running(driver))


WAYS: dict[Status, tuple[Way, ...]] = {
    Status.CREATED: (held,),
    Status.PENDING: (released, given_back, due, lapsed, resumed, retried, run_again),
    Status.RUNNING: (running,),
    Status.RETRYING: (retrying,),
    Status.PAUSED: (paused,),
    Status.COMPLETED: (completed,),
    Status.FAILED: (failed,),
    Status.CANCELLED: (cancelled, discarded),
    Status.ROLLING_BACK: (to_roll_back, undoing),
    Status.ROLLED_BACK: (rolled_back,),
    Status.ROLLBACK_FAILED: (not_rolled_back,),
}
CASES = [
    pytest.param(status, way, id=f"{status}-{way.__name__}")
    for status in Status
    for way in WAYS[status]
]


class Projecting(Contract):
    @pytest.mark.parametrize(("status", "way"), CASES)
    async def test_a_task_is_seen_in_the_status_of_its_last_move_and_in_no_other(
        self, status: Status, way: Way
    ) -> None:
        task = await way(self.driver)
        assert task.status is status
        assert await self.driver.load(task.id) == task
        for one in Status:
            page = await self.store.views.find(Filter(statuses=(one,)), limit=10)
            assert page.tasks == ((task,) if one is status else ()), one
        counted = (await self.store.views.stats()).by_status
        assert {one: number for one, number in counted.items() if number} == {status: 1}
        (peek,) = await self.store.views.peek([task.id])
        assert peek is not None
        assert peek.status is status
