"""The workers look after the store: what does not agree is mended without anybody asking."""

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.domain.task import Place
from holdfast.runtime.pruner import Pruner
from holdfast.testing.servers import RedisServer
from tests.redis_stores import Bench, benched


@pytest_asyncio.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


def pruner(bench: Bench, *, reconcile_seconds: float) -> Pruner:
    return Pruner(
        store=bench.store,
        clock=bench.clock,
        checkpoint_seconds=7 * 86_400,
        audit_seconds=86_400,
        reconcile_seconds=reconcile_seconds,
    )


async def test_a_task_that_fell_out_of_its_queue_is_put_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    task = await bench.hands.submit()
    bench.ask("DEL", "queue:tasks")
    assert await bench.hands.claim_ids() == []
    with caplog.at_level(logging.WARNING):
        await pruner(bench, reconcile_seconds=3600).tick()
    assert f"I1 {task.id} is ready and not in its queue (mended)" in caplog.text
    assert await bench.hands.claim_ids() == [task.id]


async def test_one_of_many_workers_does_it(bench: Bench) -> None:
    await pruner(bench, reconcile_seconds=3600).tick()
    task = await bench.hands.submit()
    bench.ask("DEL", "queue:tasks")
    await pruner(bench, reconcile_seconds=3600).tick()
    assert (await bench.hands.load(task.id)).place is Place.READY
    assert await bench.hands.claim_ids() == []
    await bench.store.doctor(fix=True, limit=10)


async def test_it_can_be_turned_off(bench: Bench) -> None:
    await bench.hands.submit()
    bench.ask("DEL", "queue:tasks")
    await pruner(bench, reconcile_seconds=0).tick()
    assert await bench.hands.claim_ids() == []
    await bench.store.doctor(fix=True, limit=10)
