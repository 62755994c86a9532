"""Rights that are narrowed for a while under running tasks: what is torn is mended at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.domain.errors import HoldfastError
from holdfast.domain.state import SETTLED, Status
from holdfast.ports import Filter
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.hands import LEASE_SECONDS, Hands
from holdfast.testing.servers import Cluster, RedisServer
from tests.redis_servers import StartRedis
from tests.runtime.helpers import BOUND_SECONDS
from tests.test_redis_acl import admitted, lines

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
async def opened(url: str) -> AsyncIterator[Hands]:
    clock = ManualClock()
    store = RedisStore(url, clock, time=clock.times)
    await store.open()
    try:
        yield Hands(store, clock)
    finally:
        await store.close()


async def tear(hands: Hands) -> None:
    """What processes go on trying while a command is refused."""

    async def tried(work: Any) -> None:
        with suppress(HoldfastError):
            await work

    async def finish(ids: list[str]) -> None:
        for task in await hands.store.load(ids):
            if task is not None and task.lease is not None:
                await tried(hands.complete(task))

    found = await hands.store.find(Filter(statuses=(Status.RUNNING,)), limit=100)
    running = [task.id for task in found.tasks]
    await finish(running[:3])
    for task in await hands.store.load(running[3:5]):
        if task is not None and task.lease is not None:
            await tried(hands.fail(task, retry_seconds=1))
    for tenant in ("a", None):
        await tried(hands.submit(tenant=tenant, key=f"late {tenant}".replace(" ", "-")))
    await tried(hands.claim("w-2", limit=3))
    hands.clock.advance(LEASE_SECONDS + 1)
    await tried(hands.store.expire(limit=10, count_crashes=False))
    await tried(hands.store.promote(limit=10))


async def mended(hands: Hands) -> None:
    """By the sweeps of a worker, and nobody else."""
    store = hands.store
    assert isinstance(store, RedisStore)
    for _ in range(20):
        hands.clock.advance(1)
        await store.expire(limit=100, count_crashes=False)
        if store._mender.task is not None:
            await store._mender.task
        if all(part.torn_at is None for part in store._parts):
            return
    raise AssertionError("it stays torn")


async def all_end(hands: Hands) -> None:
    for _ in range(100):
        hands.clock.advance(5)
        await hands.store.expire(limit=100, count_crashes=False)
        await hands.store.promote(limit=100)
        claimed = await hands.claim("w-3")
        for one in claimed:
            await hands.complete(one.task)
        found = (await hands.store.find(Filter(), limit=200)).tasks
        if all(task.status in SETTLED for task in found):
            return
    raise AssertionError("not all of them have ended")


@pytest.mark.parametrize("command", WRITES)
async def test_what_a_refused_command_tears_is_mended_by_the_next_sweeps(
    start_redis: StartRedis, command: str
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as hands:
        await tear_and_mend(hands, rights, command)


async def tear_and_mend(hands: Hands, rights: Rights, command: str) -> None:
    for tenant in ("a", "b", "c", None, None):
        await hands.submit_many(2, tenant=tenant)
    await hands.claim("w-1", limit=5)
    rights.take(command)
    await tear(hands)
    rights.give_back(command)
    await mended(hands)
    assert await hands.store.doctor(fix=False, limit=100) == []
    await all_end(hands)
    assert await hands.store.doctor(fix=False, limit=100) == []


@pytest.mark.parametrize("command", ["zadd", "hset", "xadd"])
async def test_it_is_so_in_a_cluster(command: str) -> None:
    with Cluster(replicas=False) as cluster:
        for server in cluster.servers:
            admitted(server, CLUSTERED, OPTIONAL)
        url = cluster.url.replace("://", "://holdfast:pw@") + "?partitions=3"
        async with opened(url) as hands:
            await tear_and_mend(hands, rights_of(*cluster.servers), command)


async def test_while_the_rights_are_narrow_it_stays_torn_and_says_so(
    start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis()
    rights = rights_of(server)
    async with opened(admitted(server, ONE, OPTIONAL)) as hands:
        await hands.submit_many(3)
        rights.take("zadd")
        await tear(hands)
        store = hands.store
        assert isinstance(store, RedisStore)
        assert store._parts.first.torn_at is not None
        rights.take("scan")  # no walk can be made
        for _ in range(3):
            hands.clock.advance(2)
            with suppress(HoldfastError):
                await store.expire(limit=10, count_crashes=False)
            if store._mender.task is not None:
                await store._mender.task
        assert store._parts.first.torn_at is not None
        assert "is torn and cannot be mended yet" in caplog.text
        rights.give_back("scan")
        rights.give_back("zadd")
        await mended(hands)
        assert await store.doctor(fix=False, limit=100) == []


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
