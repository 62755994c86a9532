"""How many answered writes are gone is counted whole, and once, whoever notices."""

import logging
from collections.abc import AsyncIterator

import pytest

from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


def goes_back(bench: Bench, by: int) -> None:
    """As a promoted replica, or a file that ends too early."""
    bench.ask("HINCRBY", "meta", "writes", -by)


def lost(bench: Bench) -> int:
    return int(bench.ask("HGET", "meta", "lostWrites") or 0)


@pytest.mark.parametrize("batch", [1, 3, 20])
async def test_a_loss_is_not_hidden_by_a_large_write(
    bench: Bench, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    await bench.driver.submit_many(10)
    goes_back(bench, by=3)
    await bench.driver.submit_many(batch)
    assert lost(bench) == 3
    [told] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "3 writes that had been answered are gone" in told.message
    await bench.driver.submit_many(5)
    assert lost(bench) == 3


async def test_what_several_notice_is_counted_once(bench: Bench, redis_server: RedisServer) -> None:
    other = RedisStore(redis_server.url, bench.clock, bench.namespace, time=bench.clock.times)
    await other.open()
    try:
        others = StoreDriver(other, bench.clock)
        await bench.driver.submit_many(10)
        await others.insert(*(others.submission(id=f"other-{n}") for n in range(5)))
        goes_back(bench, by=7)
        await bench.driver.submit_many(1)  # knows of ten, of which two are gone
        assert lost(bench) == 2
        await others.insert(others.submission(id="other-9"))  # knows of fifteen
        assert lost(bench) == 7
        await bench.driver.submit_many(5)
        assert lost(bench) == 7
    finally:
        await other.close()


async def test_each_loss_is_added_to_those_before(bench: Bench) -> None:
    for total in (2, 4, 6):
        await bench.driver.submit_many(10)
        goes_back(bench, by=2)
        await bench.driver.submit_many(1)
        assert lost(bench) == total
