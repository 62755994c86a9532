"""Rights that are narrowed for a while under running tasks: what is torn is mended at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.domain.errors import HoldfastError
from holdfast.domain.task.state import SETTLED, Command, Status
from holdfast.ports import Filter
from holdfast.stores.redis.repair import recount
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from tests.stores.redis.client.test_acl import admitted, lines
from tests.support.redis.redis_servers import StartRedis
from tests.support.runtime.helpers import BOUND_SECONDS
from verify.servers import Cluster, RedisServer

# The commands by which scripts write; each is refused in the middle of something.
WRITES = [
    *("del", "expire", "hdel", "hincrby", "hset", "rpush", "sadd", "set"),
    *("xack", "xadd", "xdel", "xreadgroup", "zadd", "zpopmin", "zrem"),
]
ONE, CLUSTERED, OPTIONAL = lines()


class Rights:
    """Of the user, on every server that has him."""

    def __init__(self, ask: Callable[..., None]) -> None:
        self._ask = ask

    def take(self, command: str) -> None:
        self._ask("ACL", "SETUSER", "holdfast", f"-{command}")

    def give_back(self, command: str) -> None:
        self._ask("ACL", "SETUSER", "holdfast", f"+{command}")


def rights_of(*servers: RedisServer) -> Rights:
    def ask(*words: str) -> None:
        for server in servers:
            with server.client() as client:
                client.execute_command(*words)

    return Rights(ask)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[StoreDriver]:
    clock = ManualClock()
    store = RedisStore(url, clock, time=clock.times)
    await store.open()
    try:
        yield StoreDriver(store, clock)
    finally:
        await store.close()


async def tear(driver: StoreDriver) -> None:
    """What processes go on trying while a command is refused."""

    async def tried(work: Any) -> None:
        with suppress(HoldfastError):
            await work

    async def finish(ids: list[str]) -> None:
        for task in await driver.store.views.load(ids):
            if task is not None and task.lease is not None:
                await tried(driver.complete(task))

    found = await driver.store.views.find(Filter(statuses=(Status.RUNNING,)), limit=100)
    running = [task.id for task in found.tasks]
    await finish(running[:3])
    for task in await driver.store.views.load(running[3:5]):
        if task is not None and task.lease is not None:
            await tried(driver.fail(task, retry_seconds=1))
    for tenant in ("a", None):
        await tried(driver.submit(tenant=tenant, key=f"late {tenant}".replace(" ", "-")))
    await tried(driver.claim("w-2", limit=3))
    driver.clock.advance(LEASE_SECONDS + 1)
    await tried(driver.store.tasks.expire(limit=10, count_crashes=False))
    await tried(driver.store.tasks.promote(limit=10))


async def swept(driver: StoreDriver) -> bool:
    """Sweep as a worker does, and return whether nothing is torn any more."""
    store = driver.store
    assert isinstance(store, RedisStore)
    driver.clock.advance(1)
    with suppress(HoldfastError):
        await store.tasks.expire(limit=100, count_crashes=False)
    if store._mender.task is not None:
        await store._mender.task
    return all(part.torn_at is None for part in store._parts)


async def mended(driver: StoreDriver) -> None:
    """By the sweeps of a worker, and nobody else."""
    for _ in range(20):
        if await swept(driver):
            return
    raise AssertionError("it stays torn")


async def all_end(driver: StoreDriver) -> None:
    for _ in range(100):
        driver.clock.advance(5)
        await driver.store.tasks.expire(limit=100, count_crashes=False)
        await driver.store.tasks.promote(limit=100)
        claimed = await driver.claim("w-3")
        for one in claimed:
            await driver.complete(one.task)
        found = (await driver.store.views.find(Filter(), limit=200)).tasks
        if all(task.status in SETTLED for task in found):
            return
    raise AssertionError("not all of them have ended")


@pytest.mark.parametrize("command", WRITES)
async def test_what_a_refused_command_tears_is_mended_by_the_next_sweeps(
    start_redis: StartRedis, command: str
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        await tear_and_mend(driver, rights, command)


async def tear_and_mend(driver: StoreDriver, rights: Rights, command: str) -> None:
    for tenant in ("a", "b", "c", None, None):
        await driver.submit_many(2, tenant=tenant)
    await driver.claim("w-1", limit=5)
    rights.take(command)
    await tear(driver)
    rights.give_back(command)
    await mended(driver)
    assert await driver.store.admin.doctor(fix=False, limit=100) == []
    await all_end(driver)
    assert await driver.store.admin.doctor(fix=False, limit=100) == []


@pytest.mark.parametrize("command", ["zadd", "hset", "xadd"])
async def test_it_is_so_in_a_cluster(command: str) -> None:
    with Cluster(replicas=False) as cluster:
        for server in cluster.servers:
            admitted(server, CLUSTERED, OPTIONAL)
        url = cluster.url.replace("://", "://holdfast:pw@") + "?partitions=3"
        async with opened(url) as driver:
            await tear_and_mend(driver, rights_of(*cluster.servers), command)


async def test_while_the_rights_are_narrow_it_stays_torn_and_says_so(
    start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        await driver.submit_many(3)
        rights.take("zadd")
        await tear(driver)
        store = driver.store
        assert isinstance(store, RedisStore)
        assert store._parts.first.torn_at is not None
        rights.take("scan")  # no walk can be made
        for _ in range(3):
            await swept(driver)
        assert store._parts.first.torn_at is not None
        assert "left a script half-way; it cannot be repaired yet" in caplog.text
        rights.give_back("scan")
        rights.give_back("zadd")
        await mended(driver)
        assert await store.admin.doctor(fix=False, limit=100) == []


COMPLETING = [
    *("del", "expire", "hdel", "hincrby", "hset", "mget", "rpush", "set", "xack"),
    "zadd",
    "zrem",
]


@pytest.mark.parametrize("command", COMPLETING)
async def test_a_completion_that_is_refused_half_way_leaves_the_checkpoint(
    start_redis: StartRedis, command: str
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        task = await driver.start(tenant="a", stages=("one", "two"))
        task = await driver.finish_stage(task, note="kept")
        rights.take(command)
        with suppress(HoldfastError):
            await driver.apply(await driver.done(task))
        rights.give_back(command)
        await mended(driver)
        task = await driver.load(task.id)
        if task.status is not Status.COMPLETED:  # it was refused before it had moved on
            checkpoint = await driver.store.views.checkpoint(task.id)
            assert checkpoint is not None
            assert checkpoint.custom_data == {"note": "kept"}
            await all_end(driver)
        detail = await driver.store.views.detail(task.id)
        assert detail is not None
        assert detail.task.status is Status.COMPLETED
        assert await driver.store.admin.doctor(fix=False, limit=100) == []


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("command", [*COMPLETING, "get", "hget"])
async def test_a_stage_whose_commit_is_refused_half_way_can_be_run_again(
    start_redis: StartRedis, command: str, stage: int
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        task = await driver.start(tenant="a", stages=("one", "two", "three"))
        if stage == 1:
            task = await driver.finish_stage(task)
        done = await driver.done(task, note="kept")
        rights.take(command)
        with suppress(HoldfastError):
            await driver.apply(done)
        rights.give_back(command)
        driver.clock.advance(LEASE_SECONDS + 1)
        await mended(driver)
        (claimed,) = await driver.claim("w-2")
        checkpoint = await driver.store.views.checkpoint(task.id)
        completed = checkpoint.last_completed_stage_index if checkpoint else -1
        assert completed == claimed.task.last_completed
        assert await driver.store.admin.doctor(fix=False, limit=100) == []
        await driver.complete(claimed.task)
        assert await driver.store.admin.doctor(fix=False, limit=100) == []


@pytest.mark.parametrize("command", ["get", "del", "set"])
async def test_a_mending_that_was_refused_itself_holds_up_no_later_one(
    start_redis: StartRedis, command: str
) -> None:
    """Its lock, which it could not read or take back, is found again by the next try."""
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        await driver.submit_many(10)
        await driver.claim("w-1", limit=5)
        rights.take(command)
        rights.take("hincrby")
        await tear(driver)
        rights.give_back("hincrby")
        for _ in range(3):
            await swept(driver)
        rights.give_back(command)
        await mended(driver)
        rights.take("zadd")
        await tear(driver)
        rights.give_back("zadd")
        await mended(driver)
        assert await driver.store.admin.doctor(fix=False, limit=100) == []


@pytest.mark.parametrize("command", ["persist", "xadd", "zadd"])
async def test_workers_mend_what_a_process_without_sweeps_has_torn(
    start_redis: StartRedis, command: str
) -> None:
    """Such as the command line, which ends at once."""
    server = start_redis()
    rights = rights_of(server)
    url = admitted(server, ONE, OPTIONAL)
    async with opened(url) as driver:
        ended = await driver.complete(await driver.start(stages=("one",), tenant="a"))
        async with opened(url) as other:
            rights.take(command)
            with suppress(HoldfastError):
                await other.apply(other.request(Command.ROLLBACK, ended))
            with suppress(HoldfastError):
                await other.submit(id="from-elsewhere", tenant="b")
            rights.give_back(command)
        assert await driver.store.admin.doctor(fix=False, limit=100) != []
        await swept(driver)
        await mended(driver)
        assert await driver.store.admin.doctor(fix=False, limit=100) == []


async def miscount(driver: StoreDriver, rights: Rights) -> None:
    """Tear completions before their places are counted."""
    for tenant in ("a", "b", "c"):
        await driver.submit(tenant=tenant, stages=("only",))
    done = [await driver.done(claimed.task) for claimed in await driver.claim("w-1")]
    rights.take("hincrby")
    with suppress(HoldfastError):
        await driver.store.tasks.apply(done)
    rights.give_back("hincrby")


async def test_counts_of_a_store_that_was_busy_are_mended_when_it_is_quiet(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        await miscount(driver, rights)
        with monkeypatch.context() as patched:
            patched.setattr(recount, "WALKS", 0)  # each walk is disturbed
            for _ in range(3):
                assert not await swept(driver)
        await mended(driver)
        assert await driver.store.admin.doctor(fix=False, limit=100) == []


async def test_what_cannot_be_mended_is_not_tried_for_ever(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis()
    rights = rights_of(server)
    monkeypatch.setattr(recount, "WALKS", 0)
    async with opened(admitted(server, ONE, OPTIONAL)) as driver:
        await miscount(driver, rights)
        sweeps = 1
        while not await swept(driver):
            sweeps += 1
            assert sweeps < 100
        assert sweeps > 20


async def test_running_workers_lose_nothing_to_it(start_redis: StartRedis) -> None:
    """Real workers by the server's time, with no reconciliation but this."""
    server = start_redis()
    rights = rights_of(server)
    app = Holdfast(admitted(server, ONE, OPTIONAL), lease=2.0, reconcile=0)
    gate = asyncio.Event()

    @app.task("slow")
    async def slow(ctx: Context) -> str:
        await gate.wait()
        return ctx.key

    async with app.running():
        handles = [await slow.submit(tenant=f"t-{n % 3}") for n in range(6)]
        for command in ("zadd", "hset"):
            rights.take(command)
            gate.set()
            await asyncio.sleep(0)
            with suppress(HoldfastError):
                await slow.submit()
            rights.give_back(command)
        results = [await handle.result(timeout=BOUND_SECONDS) for handle in handles]
        assert [key.partition("/")[0] for key in results] == [handle.id for handle in handles]
