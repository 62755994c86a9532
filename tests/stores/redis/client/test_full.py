"""No memory left, or no disk: submits are refused by name, and what is there is finished."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Context, Holdfast
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Inserted
from holdfast.errors import StoreFull
from holdfast.ports import Kept
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.address import parse
from tests.support.redis.redis_servers import StartRedis
from tests.support.redis.redis_stores import Bench, benched
from tests.support.runtime.helpers import BOUND_SECONDS, within_bounds
from verify.servers import RedisServer, until

LARGE = "x" * 200_000
GIVEN_BACK_BYTES = 1_000_000


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    return start_redis(appendonly=True, lines=["maxmemory-policy noeviction"])


@pytest.fixture
async def bench(server: RedisServer) -> AsyncIterator[Bench]:
    async with benched(server, "full") as bench:
        yield bench


def fill(server: RedisServer) -> None:
    """Nothing more fits, also when the server has given back what its idle clients had."""
    with server.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", max(1, used - GIVEN_BACK_BYTES))


async def assert_full(bench: Bench) -> None:
    with pytest.raises(StoreFull, match="no memory left: nothing was written; raise its maxmemory"):
        await bench.driver.submit(payload=LARGE)


async def test_a_submit_is_refused_and_nothing_of_it_is_written(
    bench: Bench, server: RedisServer
) -> None:
    await bench.driver.submit(tenant="t")
    before = bench.names()
    fill(server)
    await assert_full(bench)
    with pytest.raises(StoreFull):
        await bench.driver.insert(*(bench.driver.submission(tenant="t") for _ in range(3)))
    assert bench.names() == before
    assert await bench.store.admin.doctor(fix=False, limit=10) == []


async def test_the_refusal_has_no_line_of_a_script_in_it_but_the_log_has(
    bench: Bench, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.stores.redis")
    fill(server)
    with pytest.raises(StoreFull) as refused:
        await bench.driver.submit(payload=LARGE)
    told = str(refused.value)
    assert "OOM command not allowed" in told
    assert not re.search(r"`|script|HINCRBY|call\(", told)
    with server.client() as client:
        refuses_whole_scripts = int(client.info("server")["redis_version"].split(".")[0]) >= 7
    logged = re.search(r"not allowed.* in insert, line \d+: `.+`", caplog.text)
    assert (logged is None) == refuses_whole_scripts  # from 7.0 on no line of it has run


SHA, LINE_1 = "0123456789" * 4, "@user_script:1"
SOURCE = "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)"


@pytest.mark.parametrize(
    "text",
    [
        f"OOM command not allowed. script: {SHA}, on {LINE_1}.",
        f"Error running script (call to f_{SHA}): {LINE_1}: {LINE_1}: -OOM command not allowed.",
    ],
)
def test_callers_are_not_told_where_in_a_script_it_was(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = faults.without_location(redis.ResponseError(text), "count", SOURCE)
    assert str(faults.translate(error, "here", parse("redis://here"))) == (
        "here has no memory left: nothing was written; raise its maxmemory or prune "
        "(OOM command not allowed.)"
    )
    assert f"in count, line 1: `{SOURCE}`" in caplog.text


async def test_what_is_there_is_claimed_renewed_retried_and_finished(
    bench: Bench, server: RedisServer
) -> None:
    driver = bench.driver
    running = await driver.start("w-1", tenant="a", key="k")
    lost = await driver.start("w-2", tenant="b")
    later = await driver.fail(await driver.start(tenant="c"), retry_seconds=10)
    parked = await driver.suspend(await driver.start(tenant="d"))
    waiting = await driver.submit(tenant="e")
    elsewhere = await driver.submit(tenant="f", queue="never-read")
    fill(server)
    await assert_full(bench)

    assert await driver.renew(running, worker="w-1") == [True]
    bench.clock.advance(20)
    assert await driver.renew(running, worker="w-1") == [True]
    assert (await bench.store.tasks.promote(limit=10)).count == 1
    bench.clock.advance(15)
    assert await bench.store.tasks.expire(limit=10, count_crashes=True) == 1
    taken = await driver.claim("w-3")
    assert {one.task.id for one in taken} == {lost.id, later.id, waiting.id}
    [other] = await driver.claim("w-3", queues=("never-read",))
    assert other.task.id == elsewhere.id
    await driver.ask(Command.RETRY, parked)
    [again] = await driver.claim("w-3")
    for task in (running, other.task, again.task, *(one.task for one in taken)):
        assert (await driver.complete(task)).status is Status.COMPLETED
    await bench.store.tasks.leave("w-3")
    await bench.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=100, dry_run=False)
    assert await bench.store.admin.doctor(fix=False, limit=10) == []
    await assert_full(bench)


async def test_what_is_finished_and_not_kept_makes_room_for_submits(
    bench: Bench, server: RedisServer
) -> None:
    driver = bench.driver
    for _ in range(20):
        await driver.submit(payload=LARGE, keep_seconds=0)
    fill(server)
    await assert_full(bench)
    for claimed in await driver.claim():
        await driver.complete(claimed.task)
    [inserted] = await driver.insert(driver.submission(payload=LARGE))
    assert isinstance(inserted, Inserted)


async def test_an_app_says_that_its_store_is_full_and_its_workers_make_room(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    app, opened = Holdfast(server.url), asyncio.Event()

    @app.task("measure", keep=0)
    async def measure(ctx: Context, text: str) -> int:
        await opened.wait()
        return len(text)

    async with app.running():
        handles = [await measure.submit(LARGE) for _ in range(10)]
        fill(server)
        with pytest.raises(StoreFull):
            await measure.submit(LARGE)
        [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]
        assert "the store is full" in said
        assert "no memory left" in said
        opened.set()
        results = asyncio.gather(*(handle.result() for handle in handles))
        assert await within_bounds(results) == [len(LARGE)] * 10
        assert await within_bounds((await measure.submit("ab")).result()) == 2


async def test_a_worker_that_starts_while_the_memory_is_full_finishes_what_is_there(
    server: RedisServer,
) -> None:
    app = Holdfast(server.url, fallback="memory")

    @app.task("measure", keep=0)
    async def measure(ctx: Context, text: str) -> int:
        return len(text)

    async with app:
        handles = [await measure.submit(LARGE) for _ in range(10)]
    fill(server)
    async with app.running():
        assert not app.degraded
        results = asyncio.gather(*(handle.result() for handle in handles))
        assert await within_bounds(results) == [len(LARGE)] * 10


async def test_a_server_that_cannot_write_its_disk_takes_nothing_and_says_so(
    start_redis: StartRedis,
) -> None:
    server = start_redis(save="3600 1")
    async with benched(server, "full") as bench:
        running = await bench.driver.start()
        in_the_way = server.folder / "dump.rdb"
        in_the_way.mkdir()
        (in_the_way / "file").touch()
        save_in_vain(server)
        with pytest.raises(StoreFull, match="cannot write to its disk, so it takes nothing"):
            await bench.driver.submit()
        with pytest.raises(StoreFull, match="cannot write to its disk"):
            await bench.driver.renew(running)
        assert (await bench.driver.load(running.id)).status is Status.RUNNING  # it can be read
        clear(in_the_way)
        with server.client() as client:
            client.save()
        await bench.driver.submit()
        await bench.driver.complete(running)


def save_in_vain(server: RedisServer) -> None:
    with server.client() as client:
        client.bgsave()
        until(
            lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err",
            "the snapshot has failed",
            seconds=BOUND_SECONDS,
        )


def clear(folder: Path) -> None:
    (folder / "file").unlink()
    folder.rmdir()


async def test_pruning_what_is_still_kept_makes_room_as_the_runbook_says(
    bench: Bench, server: RedisServer
) -> None:
    driver = bench.driver
    for _ in range(20):
        await driver.submit(payload=LARGE)
    for claimed in await driver.claim():
        await driver.complete(claimed.task)
    fill(server)
    await assert_full(bench)
    asked: dict[str, Any] = {"older_than_seconds": 0.0, "limit": 100, "dry_run": False}
    bench.clock.advance(1)
    assert await bench.store.admin.prune(Kept.TASKS, **asked) == 0
    await assert_full(bench)
    assert await bench.store.admin.prune(Kept.TASKS, **asked, ignore_keep=True) == 20
    [inserted] = await driver.insert(driver.submission(payload=LARGE))
    assert isinstance(inserted, Inserted)
    assert await bench.store.admin.doctor(fix=False, limit=10) == []
