"""What is refused and what is said about a server's settings. All servers are real but the old
ones, of which only the answers are: nobody has the binaries at hand."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from holdfast.clock import SystemClock
from holdfast.domain.errors import StoreForeign, StoreUnusable
from holdfast.ports import Check
from holdfast.stores.redis.client.address import parse
from holdfast.stores.redis.client.checks import NEEDED, is_durable, run_checks
from holdfast.stores.redis.client.client import RedisClient
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from tests.support.redis.fake_redis import FakeRedis, fake_redis
from tests.support.redis.redis_servers import StartRedis
from verify.servers import Cluster, RedisServer, Sentinels, until


async def looked(server: RedisServer | str, *, user: str = "") -> dict[str, Check]:
    url = server if isinstance(server, str) else server.url
    client = RedisClient(parse(url.replace("redis://", f"redis://{user}:pw@") if user else url))
    await client.open()
    try:
        checks = await run_checks(client, [KeyNames("checked")], SystemClock())
    finally:
        await client.close()
    return {check.name: check for check in checks}


def bad(checks: dict[str, Check]) -> Sequence[str]:
    return [name for name, check in checks.items() if not check.good]


async def test_a_server_set_up_well_has_nothing_to_be_said_against(start_redis: StartRedis) -> None:
    checks = await looked(start_redis(appendonly=True))
    assert bad(checks) == []
    assert list(checks) == ["version", "commands", "role", "eviction", "persistence", "clock"]
    assert is_durable(list(checks.values()))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_would_evict_tasks_is_refused(
    start_redis: StartRedis, policy: str
) -> None:
    lines = [f"maxmemory-policy {policy}"]
    server = start_redis(maxmemory="64mb", lines=lines)
    with pytest.raises(StoreUnusable, match=f"maxmemory-policy {policy}.*CONFIG SET"):
        await looked(server)
    with server.client() as client:
        client.config_set("maxmemory", "0")
    eviction = (await looked(server))["eviction"]
    assert not eviction.good
    assert policy in eviction.message


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_an_appended_file_is_durable(start_redis: StartRedis, fsync: str) -> None:
    server = start_redis(appendonly=True, lines=[f"appendfsync {fsync}"])
    checks = await looked(server)
    assert is_durable(list(checks.values()))
    assert f"appendfsync {fsync}" in checks["persistence"].message


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["save 60 1"], "only snapshots"),
        ([], "nothing is written to disk"),
        (["appendonly yes", "appendfsync no"], "about 30 seconds"),
    ],
)
async def test_what_may_lose_tasks_is_not_durable(
    start_redis: StartRedis, lines: list[str], told: str
) -> None:
    checks = await looked(start_redis(lines=lines))
    assert bad(checks) == ["persistence"]
    assert told in checks["persistence"].message
    assert not is_durable(list(checks.values()))


async def test_each_look_at_the_settings_says_anew_whether_the_store_is_durable(
    start_redis: StartRedis,
) -> None:
    server = start_redis(appendonly=True)
    store = RedisStore(server.url, SystemClock())
    await store.open()
    try:
        assert store.durable
        for setting, durable in (("no", False), ("yes", True)):
            with server.client() as client:
                client.config_set("appendonly", setting)
            await store.admin.checks()
            assert store.durable is durable
    finally:
        await store.close()


async def test_a_replica_is_refused_with_its_primary_named(start_redis: StartRedis) -> None:
    primary = start_redis()
    replica = start_redis(replicaof=primary.port)
    until(replica.is_synced, "the replica is in step")
    with pytest.raises(StoreUnusable, match=f"replica of 127.0.0.1:{primary.port}"):
        await looked(replica)


async def test_a_server_without_streams_is_refused(start_redis: StartRedis) -> None:
    server = start_redis(rename_command={"XADD": "", "XREADGROUP": ""})
    with pytest.raises(StoreUnusable, match="lacks XADD, XREADGROUP"):
        await looked(server)


async def test_what_may_not_be_looked_at_is_said_and_not_refused(start_redis: StartRedis) -> None:
    server = start_redis(
        appendonly=True,
        acl=["ann on >pw ~* +@all -config", "bob on >pw ~* +@all -config -info -command -time"],
    )
    checks = await looked(server, user="ann")
    assert bad(checks) == []
    assert "appendfsync unknown" in checks["persistence"].message
    checks = await looked(server, user="bob")
    assert set(bad(checks)) == set(checks)
    assert "could not be looked at: NOPERM" in checks["persistence"].message
    assert not is_durable(list(checks.values()))


async def test_a_clock_that_differs_is_told(start_redis: StartRedis) -> None:
    client = RedisClient(parse(start_redis(appendonly=True).url))
    await client.open()
    checks = await run_checks(client, [], ManualClock())
    await client.close()
    assert [check.name for check in checks if not check.good] == ["clock"]


@pytest.mark.parametrize(
    ("asked_at", "took", "told"),
    [
        (-60.0, 120.0, "agrees with ours"),
        (-60.0, 54.0, "6 s ahead of ours"),
        (6.0, 60.0, "6 s behind ours"),
    ],
)
async def test_a_clock_is_not_blamed_for_a_late_answer(
    asked_at: float, took: float, told: str
) -> None:
    """By a server on which it is zero."""
    clock = ManualClock(now=asked_at)
    info = "redis_version:6.2.0\r\nrole:master\r\naof_enabled:1"
    async with answering(info, time=0, late=lambda: clock.advance(took)) as server:
        client = RedisClient(parse(server.url))
        await client.open()
        [check] = [one for one in await run_checks(client, [], clock) if one.name == "clock"]
        await client.close()
    assert check.message.startswith(told)
    assert check.good == (told == "agrees with ours")


async def test_a_key_of_another_program_is_refused(start_redis: StartRedis) -> None:
    server = start_redis()
    with server.client() as client:
        client.set("checked:leases", "mine")
    with pytest.raises(StoreForeign, match="checked:leases is a string"):
        await looked(server)


async def test_a_node_of_a_cluster_is_not_taken_for_a_single_server(
    start_redis: StartRedis,
) -> None:
    server = start_redis(lines=["cluster-enabled yes"])
    with pytest.raises(StoreUnusable, match=r"redis\+cluster"):
        await looked(server)


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ("redis_version:6.0.20", "Redis 6.0.20: Holdfast needs 6.2"),
        ("redis_version:5.0.14", "Redis 5.0.14"),
        ("redis_version:7.2.4\r\nvalkey_version:7.0.0", "Valkey 7.0.0: Holdfast needs 7.2"),
    ],
)
async def test_an_old_server_is_refused(info: str, told: str) -> None:
    async with answering(info) as server:
        with pytest.raises(StoreUnusable, match=told):
            await looked(server.url)


@pytest.mark.parametrize(
    "info",
    ["redis_version:6.2.0", "redis_version:10.0.1", "redis_version:7.2.4\r\nvalkey_version:8.1.0"],
)
async def test_a_newer_server_is_taken(info: str) -> None:
    async with answering(f"{info}\r\nrole:master\r\naof_enabled:1") as server:
        checks = await looked(server.url)
        assert checks["version"].good


@pytest.mark.slow
async def test_every_primary_is_looked_at() -> None:
    with Cluster(replicas=False, appendonly=True) as cluster:
        odd = cluster.servers[1]
        with odd.client() as client:
            client.config_set("appendonly", "no")
        checks = await looked(cluster.url)
        assert bad(checks) == ["persistence", "failover"]
        assert checks["persistence"].message.startswith(f"127.0.0.1:{odd.port}: ")
    with Sentinels(appendonly=True, lines=["min-replicas-to-write 1"]) as group:
        checks = await looked(group.url)
        assert bad(checks) == []
        assert checks["failover"].message == "min-replicas-to-write 1"


def answering(
    info: str, *, time: int = 1, late: Callable[[], None] = lambda: None
) -> AbstractAsyncContextManager[FakeRedis]:
    """What an old server says; of its keys, that there are none."""

    def answer(command: list[bytes]) -> bytes:
        match command:
            case [b"INFO"]:
                return f"${len(info)}\r\n{info}\r\n".encode()
            case [b"COMMAND", *_]:
                return b"*%d\r\n" % len(NEEDED) + b"*1\r\n+known\r\n" * len(NEEDED)
            case [b"TIME"]:
                late()
                return b"*2\r\n$1\r\n%d\r\n$1\r\n0\r\n" % time
            case [b"TYPE", _]:
                return b"+none\r\n"
            case [b"HMGET", *_]:
                return b"*3\r\n$-1\r\n$-1\r\n$-1\r\n"
        return b"-NOPERM not you\r\n"

    return fake_redis(answer)
