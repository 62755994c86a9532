"""To look at a Redis where there is no store makes none, and says so."""

import asyncio
import logging

import pytest
from typer.testing import CliRunner, Result

from holdfast import Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.redis.redis_servers import StartRedis
from verify.servers import RedisServer


@pytest.mark.parametrize("command", ["doctor", "alerts", "stats", "suspended list", "prune"])
def test_a_wrong_namespace_is_no_healthy_store(
    redis_server: RedisServer, redis_namespace: str, command: str
) -> None:
    env = {"HOLDFAST_STORE": redis_server.url, "HOLDFAST_NAMESPACE": redis_namespace}
    result = CliRunner().invoke(cli, command.split(), env=env)
    assert result.exit_code == Exit.STORE
    assert f"no store at {redis_namespace} on {redis_server.url}" in result.stderr
    assert "HOLDFAST_NAMESPACE [store-unavailable]" in result.stderr
    with redis_server.client() as client:
        assert list(client.scan_iter(f"{redis_namespace}*")) == []


def test_once_somebody_has_worked_there_it_is_looked_at(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    async def work() -> None:
        async with Holdfast(redis_server.url, namespace=redis_namespace):
            pass

    asyncio.run(work())
    env = {"HOLDFAST_STORE": redis_server.url, "HOLDFAST_NAMESPACE": redis_namespace}
    assert CliRunner().invoke(cli, ["stats"], env=env).exit_code == Exit.OK


# -- a store that was there


EMPTIED = "the store was emptied, or its key meta was removed"


def said(server: RedisServer, namespace: str, *words: str) -> Result:
    env = {"HOLDFAST_STORE": server.url, "HOLDFAST_NAMESPACE": namespace}
    return CliRunner().invoke(cli, [*words], env=env)


def test_an_empty_server_may_have_been_emptied(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    assert "the store was emptied (FLUSHALL" in said(redis_server, redis_namespace, "stats").stderr


async def filled(server: RedisServer, namespace: str, clock: ManualClock) -> RedisStore:
    store = RedisStore(server.url, clock, namespace, time=clock.times)
    await store.open()
    await StoreDriver(store, clock).submit_many(3, tenant="t")
    return store


async def test_without_its_key_meta_it_is_no_store_that_never_was(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    """As a maxmemory-policy may evict it."""
    clock = ManualClock()
    store = await filled(redis_server, redis_namespace, clock)
    with redis_server.client() as client:
        client.delete(f"{redis_namespace}:meta")
    told = await asyncio.to_thread(said, redis_server, redis_namespace, "stats")
    assert (told.exit_code, EMPTIED in told.stderr) == (Exit.STORE, True)
    await store.close()


async def test_a_running_process_says_that_its_store_was_emptied_and_goes_on(
    start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server, clock = start_redis(), ManualClock()
    store = await filled(server, "executor", clock)
    with server.client() as client:
        client.flushall()
    await store.tasks.expire(limit=10, count_crashes=True)
    critical = [one.getMessage() for one in caplog.records if one.levelno == logging.CRITICAL]
    assert [EMPTIED in text for text in critical] == [True]
    await store.tasks.expire(limit=10, count_crashes=True)
    assert sum(one.levelno == logging.CRITICAL for one in caplog.records) == 1
    driver = StoreDriver(store, clock)
    await driver.complete(await driver.start(id="later", tenant="t"))
    assert await store.admin.doctor(fix=False, limit=10) == []
    told = await asyncio.to_thread(said, server, "executor", "doctor")
    assert "the store was emptied" in told.stdout
    await store.close()


async def test_after_an_eviction_what_is_new_comes_behind_what_was_there(
    start_redis: StartRedis,
) -> None:
    server, clock = start_redis(), ManualClock()
    store = await filled(server, "executor", clock)
    driver = StoreDriver(store, clock)
    with server.client() as client:
        client.delete("executor:meta")
    await store.tasks.expire(limit=10, count_crashes=True)
    last = await driver.submit(id="last", tenant="t")
    served = [(await driver.complete(await driver.take())).id for _ in range(4)]
    assert served[-1] == last.id
    assert await store.admin.doctor(fix=False, limit=10) == []
    await store.close()


async def test_who_opens_an_emptied_store_says_so(
    start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server, clock = start_redis(), ManualClock()
    store = await filled(server, "executor", clock)
    with server.client() as client:
        client.delete("executor:meta")
    other = RedisStore(server.url, clock, time=clock.times)
    await other.open()
    assert any(
        EMPTIED in one.getMessage() for one in caplog.records if one.levelno == logging.CRITICAL
    )
    for one in (store, other):
        await one.close()
