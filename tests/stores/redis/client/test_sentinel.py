"""Sentinel: after a failover all comes back by itself, and what it lost is counted and told."""

import logging
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.domain.errors import StoreError, StoreUnavailable
from holdfast.stores.redis.client import topology
from holdfast.stores.redis.client.address import parse
from holdfast.stores.redis.client.client import RedisClient
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.failover import Load, cut_off, eventually
from tests.support.redis.fake_redis import fake_redis
from tests.support.redis.redis_servers import StartRedis
from verify.servers import RedisServer, Sentinels, until


async def test_what_a_failover_loses_is_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Sentinels(appendonly=True) as group:
        clock = ManualClock()
        store, other = (RedisStore(group.url, clock, time=clock.times) for _ in range(2))
        for one in (store, other):
            await one.open()
        driver = StoreDriver(store, clock)
        kept = await driver.submit_many(2, tenant="t")
        with group.primary.client() as client:
            assert client.wait(1, 50_000) == 1
        cut_off(group.replica, group.primary)

        before = await driver.take()
        lost = await driver.submit_many(7)
        group.kill_primary()
        with pytest.raises(StoreError):
            await store.views.stats()
        group.wait_promoted()
        clock.advance(1)

        async def answers() -> bool:
            return [task is None for task in await store.views.load(lost)] == [True] * 7

        await eventually(answers, "the new primary is found")
        assert [check for check in await store.admin.checks() if check.name == "lost writes"] == []
        after = await driver.take()
        assert (before.id, after.id) == (kept[0], kept[0])
        assert after.fence > before.fence
        assert await driver.expect_stale(await driver.done(before)) is not None
        await driver.complete(after)
        [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "executor: 8 writes that had been answered are gone" in told.getMessage()
        for one in (store, other):
            [check] = [check for check in await one.admin.checks() if check.name == "lost writes"]
            assert not check.good
            assert check.message.startswith("8 writes ")
            assert "HDEL executor:meta lostWrites lostAt" in check.message
        assert not await store.admin.doctor(fix=False, limit=10)
        for one in (store, other):
            await one.close()


@pytest.mark.slow
async def test_a_killed_primary_under_load_is_survived() -> None:
    with Sentinels(appendonly=True) as group:
        load = Load(group.url)
        async with load.running():
            await load.more_are_done(50)
            group.kill_primary()
            await load.is_refused()
            await to_thread(group.wait_promoted)
            await load.more_are_done(50)


@pytest.mark.slow
async def test_a_replica_that_lagged_costs_what_it_lacked_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Sentinels(appendonly=True) as group:
        load = Load(group.url)
        async with load.running():
            await load.more_are_done(50)
            await to_thread(cut_off, group.replica, group.primary)
            await load.more_are_done(50)
            group.kill_primary()
            await to_thread(group.wait_promoted)
            await load.more_are_done(50)
            assert await load.lost_writes() >= 50
        assert any(
            record.levelno == logging.ERROR and "writes that had been answered" in record.message
            for record in caplog.records
        )


@pytest.mark.slow
async def test_a_planned_failover_leaves_nobody_at_the_old_primary() -> None:
    with Sentinels(appendonly=True) as group:
        load = Load(group.url)
        async with load.running():
            await load.more_are_done(50)
            old = group.primary
            with group.sentinels[0].client() as client:
                client.execute_command("SENTINEL", "FAILOVER", group.name)
            await to_thread(group.wait_promoted)
            with group.primary.client() as client:

                async def works_there() -> bool:
                    return bool(client.exists(f"load:task:{load.accepted[-1]}"))

                # The old one takes itself for the primary for some seconds more.
                await eventually(works_there, "tasks are submitted to the new primary")
            followed = "the old one is a replica"
            await to_thread(until, lambda: old.role() == "slave", followed, seconds=180)
            await load.more_are_done(50)


# -- who is the primary?


@asynccontextmanager
async def watched(*primaries: RedisServer) -> AsyncIterator[tuple[RedisClient, list[RedisServer]]]:
    """A Sentinel that names the first of those that are left."""
    left = [*primaries]

    def answer(command: list[bytes]) -> bytes:
        port = str(left[0].port)
        return f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode()

    async with fake_redis(answer) as sentinel:
        link = RedisClient(parse(f"redis+sentinel://127.0.0.1:{sentinel.port}/main"))
        await link.open()
        try:
            yield link, left
        finally:
            await link.close()


async def port_of_the_next_call(link: RedisClient) -> int:
    [[_, found]] = await link.many(KeyNames("n"), [("CONFIG", "GET", "port")])
    return int(found)


async def test_a_primary_that_was_replaced_is_left_while_it_still_answers(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "TRUST_SECONDS", 0.0)
    old, new = start_redis(), start_redis()
    async with watched(old, new) as (link, left):
        assert await port_of_the_next_call(link) == old.port
        left.pop(0)

        async def at_the_new_one() -> bool:
            return await port_of_the_next_call(link) == new.port

        await eventually(at_the_new_one, "the new primary is asked")
        assert old.role() == "master"


async def test_a_primary_without_its_replicas_is_asked_no_second_time(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "TRUST_SECONDS", 1000.0)
    old, new = start_redis(), start_redis()
    async with watched(old, new) as (link, left):
        with old.client() as client:
            client.config_set("min-replicas-to-write", "1")
        left.pop(0)
        with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
            await link.many(KeyNames("n"), [("SET", "n:x", "1")])
        assert await port_of_the_next_call(link) == new.port
