"""The contract of the index by status: it follows every move, whoever makes it (P5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import Hands
from holdfast.testing.contract.tasks.tenant_queue import (
    cancel,
    fail_to_roll_back,
    pause,
    retry_later,
)

Way = Callable[[Hands], Awaitable[Task]]


async def held(hands: Hands) -> Task:
    return await hands.submit(held=True)


async def released(hands: Hands) -> Task:
    return await hands.ask(Command.RELEASE, await held(hands))


async def running(hands: Hands) -> Task:
    return await hands.finish_stage(await hands.start())


async def given_back(hands: Hands) -> Task:
    return await hands.give_back(await running(hands))


async def retrying(hands: Hands) -> Task:
    return await retry_later(hands, await running(hands))


async def due(hands: Hands) -> Task:
    task = await retrying(hands)
    hands.clock.advance(61)
    assert (await hands.store.tasks.promote(limit=10)).count == 1
    return await hands.load(task.id)


async def lapsed(hands: Hands) -> Task:
    task = await running(hands)
    hands.clock.advance(3600)
    await hands.store.tasks.expire(limit=10, count_crashes=True)
    return await hands.load(task.id)


async def paused(hands: Hands) -> Task:
    return await pause(hands, await running(hands))


async def resumed(hands: Hands) -> Task:
    return await hands.ask(Command.RESUME, await paused(hands))


async def completed(hands: Hands) -> Task:
    return await hands.complete(await running(hands))


async def failed(hands: Hands) -> Task:
    return await hands.suspend(await running(hands))


async def retried(hands: Hands) -> Task:
    return await hands.ask(Command.RETRY, await failed(hands))


async def cancelled(hands: Hands) -> Task:
    return await cancel(hands, await running(hands))


async def discarded(hands: Hands) -> Task:
    return await hands.ask(Command.DISCARD, await failed(hands))


async def to_roll_back(hands: Hands) -> Task:
    return await hands.ask(Command.ROLLBACK, await completed(hands))


async def undoing(hands: Hands) -> Task:
    await to_roll_back(hands)
    return await hands.commit(hands.undone(await hands.take()))


async def rolled_back(hands: Hands) -> Task:
    return await hands.roll_back(await failed(hands))


async def run_again(hands: Hands) -> Task:
    return await hands.ask(Command.RETRY, await rolled_back(hands))


async def not_rolled_back(hands: Hands) -> Task:
    return await fail_to_roll_back(hands, await running(hands))


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
        self, hands: Hands, status: Status, way: Way
    ) -> None:
        task = await way(hands)
        assert task.status is status
        assert await hands.load(task.id) == task
        for one in Status:
            page = await hands.store.views.find(Filter(statuses=(one,)), limit=10)
            assert page.tasks == ((task,) if one is status else ()), one
        counted = (await hands.store.views.stats()).by_status
        assert {one: number for one, number in counted.items() if number} == {status: 1}
        (peek,) = await hands.store.views.peek([task.id])
        assert peek is not None
        assert peek.status is status
