"""Namespaces with a colon, and those that cannot be beside each other on one server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import Context, Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.domain.errors import InvalidName, InvalidSetting, StoreForeign
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.stores.redis.client.test_acl import lines
from tests.support.redis.redis_servers import StartRedis
from verify.servers import Cluster, RedisServer, Sentinels

LONGER = "prod:executor"


@asynccontextmanager
async def opened(url: str, namespace: str, **options: Any) -> AsyncIterator[StoreDriver]:
    clock = ManualClock()
    store = RedisStore(url, clock, namespace, time=clock.times, **options)
    await store.open()
    try:
        yield StoreDriver(store, clock)
    finally:
        await store.close()


async def works(url: str, namespace: str) -> None:
    async with opened(url, namespace) as driver:
        task = await driver.submit(tenant="t", key="k")
        assert (await driver.complete(await driver.take())).id == task.id
        assert await driver.store.admin.doctor(fix=False, limit=10) == []


async def is_refused(url: str, namespace: str, other: str) -> None:
    with pytest.raises(StoreForeign, match=f"{namespace!r} cannot be beside {other!r}"):
        async with opened(url, namespace):
            pass


async def test_the_keys_are_as_the_document_has_them(start_redis: StartRedis) -> None:
    server = start_redis()
    async with opened(server.url, LONGER) as driver:
        task = await driver.start(tenant="t-001")
        await driver.finish_stage(task)
        with server.client() as client:
            assert client.hget(f"prod:executor:task:{task.id}", "tenantId") == "t-001"
            assert client.hget(f"prod:executor:ckpt:meta:{task.id}", "version") == "1"
            assert client.get("prod:executor:lock:tenant:t-001") == task.id


async def test_it_works_with_sentinels_and_in_a_cluster() -> None:
    with Sentinels(appendonly=True) as group:
        await works(group.url, LONGER)
        await is_refused(group.url, "prod", LONGER)
    with Cluster(replicas=False) as cluster:
        url = f"{cluster.url}?partitions=3"
        await works(url, LONGER)
        await is_refused(url, "prod", LONGER)
        await works(url, "test")
        await is_refused(url, "test:executor", "test")


async def test_neither_a_prefix_of_another_nor_one_below_it_is_opened(
    start_redis: StartRedis,
) -> None:
    server = start_redis()
    await works(server.url, "eu:prod")
    for namespace in ("eu", "eu:prod:executor", "eu:prod:a.b"):
        await is_refused(server.url, namespace, "eu:prod")
    await works(server.url, "eu:production")  # not up to a colon
    await works(server.url, "eu:test")
    with server.client() as client:
        assert not any(client.exists(f"{name}:meta") for name in ("eu", "eu:prod:executor"))
        client.rename("eu:test:meta", "us:test:meta")  # how it came there is no matter
        client.hset("us:meta", mapping={"format": 1, "partitions": 1})
    await is_refused(server.url, "us:test", "us")


async def test_what_another_program_has_under_such_a_name_is_no_namespace(
    start_redis: StartRedis,
) -> None:
    server = start_redis()
    with server.client() as client:
        client.set("prod:meta", "a text")
        client.hset("app:cache:meta", "format", "png")
        client.hset("app:a b:meta", mapping={"format": 1, "partitions": 1})
    await works(server.url, LONGER)
    await works(server.url, "app")


async def test_whom_an_acl_keeps_to_the_namespace_can_open_it(start_redis: StartRedis) -> None:
    server = start_redis()
    with server.client() as client:
        line = lines()[0].replace("~executor:*", f"~{LONGER}:*").replace("PASSWORD", "pw")
        client.execute_command(*line.split())
    await works(server.url.replace("://", "://holdfast:pw@"), LONGER)


@pytest.mark.parametrize("namespace", ["prod:queue", "task:prod", "prod:", "prod::executor"])
async def test_one_with_a_kind_of_key_in_it_is_refused_before_anything_is_asked(
    redis_server: RedisServer, namespace: str
) -> None:
    with pytest.raises(InvalidName):
        RedisStore(redis_server.url, ManualClock(), namespace)
    for url in (redis_server.url, "sqlite://x.db", "memory://"):
        with pytest.raises(InvalidSetting, match="HOLDFAST_NAMESPACE"):
            Holdfast(url, namespace=namespace)


def test_the_command_line_works_on_it_and_says_what_is_refused(start_redis: StartRedis) -> None:
    server = start_redis()
    app = Holdfast(server.url, namespace=LONGER)

    @app.task("mail.send")
    async def send(ctx: Context) -> str:
        return ctx.key

    async def run() -> None:
        async with app.running():
            handle = await send.submit(tenant="t-001")
            assert await handle.result(timeout="60s") == f"{handle.id}/1/send"

    asyncio.run(run())
    runner = CliRunner()
    env = {"HOLDFAST_STORE": server.url, "HOLDFAST_NAMESPACE": LONGER}
    assert "COMPLETED" in runner.invoke(cli, ["tasks", "list"], env=env).stdout
    assert runner.invoke(cli, ["doctor"], env=env).exit_code in (Exit.OK, Exit.FAILED)
    with suppress(StoreForeign):
        asyncio.run(works(server.url, "prod"))
    env["HOLDFAST_NAMESPACE"] = "prod:executor:deeper"
    refused = runner.invoke(cli, ["tasks", "list"], env=env)
    assert refused.exit_code == Exit.STORE
    assert "cannot be beside 'prod:executor'" in refused.stderr
