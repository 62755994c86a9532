import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import pytest

from holdfast.domain.errors import (
    StoreForeign,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from holdfast.stores.redis.client.address import parse
from holdfast.stores.redis.client.client import RedisClient, Script
from holdfast.stores.redis.client.topology import Node
from holdfast.stores.redis.keys import TEMPLATES, TYPES
from holdfast.stores.redis.keys import KeyNames as Keys
from tests.support.redis.fake_redis import fake_redis
from tests.support.redis.redis_servers import StartRedis
from verify.servers import Cluster, RedisServer, Sentinels, TlsFront, until

COUNT = Script("count", "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)")
OK = b"+OK\r\n"


@pytest.fixture
def keys(redis_namespace: str) -> Keys:
    return Keys(redis_namespace)


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[RedisClient]:
    link = RedisClient(parse(url))
    await link.open()
    try:
        yield link
    finally:
        await link.close()


def hurry(link: RedisClient) -> None:
    """What is asked from now on is given up soon; the connection was made without haste."""
    [node] = link._topology()._nodes.values()
    line = node._connection
    assert line is not None
    assert line._timer is not None
    line._timer.cancel()  # that of the first call
    line._timeout_seconds, line._timer = 0.1, None


async def test_a_script_that_the_server_has_forgotten_is_sent_whole(
    redis_server: RedisServer, keys: Keys
) -> None:
    async with linked(redis_server.url) as link:
        assert await link.call(COUNT, keys, ["n"]) == 1
        with redis_server.client() as client:
            client.script_flush()
        assert await link.call(COUNT, keys, ["n"]) == 2
        assert await link.call(COUNT, keys, ["n"]) == 3


async def test_replies_are_bytes_and_come_in_order(redis_server: RedisServer, keys: Keys) -> None:
    async with linked(redis_server.url) as link:
        await link.call(COUNT, keys, ["n"])
        meta = keys("meta")
        commands = [("HGETALL", meta), ("HGET", meta, "x"), ("EXISTS", meta)]
        assert await link.many(keys, commands) == [[b"n", b"1"], None, 1]
        assert await link.many(keys, []) == []


async def test_a_restarted_server_is_found_again_by_the_next_call(start_redis: StartRedis) -> None:
    server, keys = start_redis(appendonly=True, appendfsync="always"), Keys("n")
    async with linked(server.url) as link:
        calls = [link.call(COUNT, keys, [str(n)]) for n in range(10)]
        assert await asyncio.gather(*calls) == [1] * 10
        server.restart()
        calls = [link.call(COUNT, keys, [str(n)]) for n in range(10)]
        assert await asyncio.gather(*calls) == [2] * 10
        server.kill()
        with pytest.raises(StoreUnavailable, match=str(server.port)):
            await link.call(COUNT, keys, ["0"])
        server.start()
        assert await link.call(COUNT, keys, ["0"]) == 3


async def test_a_lost_reply_is_asked_for_once_more_and_only_if_that_may_be() -> None:
    async with fake_redis(lambda _: None) as server, linked(server.url) as link:
        with pytest.raises(StoreUnavailable, match=str(server.port)):
            await link.call(COUNT, Keys("n"), ["n"])
        assert len(server.commands) == 2
        with pytest.raises(StoreUnavailable):
            await link.call(COUNT, Keys("n"), ["n"], repeatable=False)
        assert len(server.commands) == 3


async def test_a_reply_that_comes_the_second_time_is_the_answer() -> None:
    replies = [None, OK]
    async with fake_redis(lambda _: replies.pop(0)) as server, linked(server.url) as link:
        assert await link.call(COUNT, Keys("n"), ["n"]) == b"OK"


async def test_what_was_not_answered_in_time_is_not_sent_again() -> None:
    async with (
        fake_redis(lambda _: b"") as server,
        linked(server.url) as link,
    ):
        hurry(link)
        with pytest.raises(StoreUnavailable, match=f"{server.port} did not answer in time"):
            await link.call(COUNT, Keys("n"), ["n"])
        await server.asked.wait()
        assert len(server.commands) == 1


async def test_the_late_reply_of_a_cancelled_call_is_nobody_elses() -> None:
    held = [b""]

    def answer(command: list[bytes]) -> bytes:
        return held.pop() if held else OK

    async with fake_redis(answer) as server, linked(server.url) as link:
        first = asyncio.create_task(link.call(COUNT, Keys("n"), ["n"]))
        await server.asked.wait()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        assert await link.call(COUNT, Keys("n"), ["n"]) == b"OK"


async def test_a_connection_whose_asker_has_gone_is_kept_and_closed(
    redis_server: RedisServer,
) -> None:
    node = Node(parse(redis_server.url), ("127.0.0.1", redis_server.port))
    asker = asyncio.create_task(node.ask([("PING",)]))
    await asyncio.sleep(0)  # it has begun
    assert node._connecting is not None
    asker.cancel()
    line = await node._connecting
    assert node._connection is line
    assert await node.ask([("PING",)]) == [b"PONG"]
    await node.close(wait=True)
    assert line._transport.is_closing()


async def test_many_calls_at_once_share_a_connection(start_redis: StartRedis, keys: Keys) -> None:
    redis_server = start_redis()
    async with linked(redis_server.url) as link:
        counted = await asyncio.gather(*(link.call(COUNT, keys, ["n"]) for _ in range(50)))
        assert counted == list(range(1, 51))
        assert connections(redis_server) == 1


async def test_who_waits_behind_another_waits_no_longer_than_for_a_reply() -> None:
    async with (
        fake_redis(lambda _: b"") as server,
        linked(server.url) as link,
    ):
        hurry(link)
        calls = [link.call(COUNT, Keys("n"), ["n"]) for _ in range(2)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [StoreUnavailable] * 2


async def test_each_loop_has_connections_of_its_own(start_redis: StartRedis) -> None:
    server, keys = start_redis(), Keys("n")

    async def elsewhere(link: RedisClient) -> None:
        await link.call(COUNT, keys, ["n"])
        await link.detach()

    async with linked(server.url) as link:
        await link.call(COUNT, keys, ["n"])
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere(link)))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert await link.call(COUNT, keys, ["n"]) == 3
        until(lambda: connections(server) == 1, "only one loop is connected")
    gc.collect()


async def test_close_leaves_no_connection_of_any_loop(start_redis: StartRedis) -> None:
    server, keys = start_redis(), Keys("n")
    called, closed = threading.Event(), threading.Event()

    async def elsewhere(link: RedisClient) -> None:
        await link.call(COUNT, keys, ["n"])
        called.set()
        await asyncio.to_thread(closed.wait)

    async with linked(server.url) as link:
        await asyncio.gather(*(link.call(COUNT, keys, ["n"]) for _ in range(9)))
        await link.listen(keys, "$", block_seconds=0.001)
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere(link)))
        thread.start()
        await asyncio.to_thread(called.wait)
    until(lambda: connections(server) == 0, "nobody is connected")
    closed.set()
    await asyncio.to_thread(thread.join)
    with pytest.raises(StoreUnavailable, match="not open"):
        await link.call(COUNT, keys, ["n"])
    gc.collect()


async def test_a_forked_process_does_not_touch_its_parents_connections(
    redis_server: RedisServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(redis_server.url) as link:
        await link.call(COUNT, keys, ["n"])
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(StoreUnusable, match="before a fork"):
                await link.call(COUNT, keys, ["n"])
            with pytest.raises(StoreUnusable, match="before a fork"):
                await link.open()
            await link.close()
        assert await link.call(COUNT, keys, ["n"]) == 2


async def test_the_bell_is_heard_from_where_it_was_left(
    redis_server: RedisServer, keys: Keys
) -> None:
    async with linked(redis_server.url) as link:
        [first, _] = await link.many(
            keys, [("XADD", keys("bell"), "*", "ready", n) for n in range(2)]
        )
        [(entry, said)] = await link.listen(keys, first.decode(), block_seconds=5)
        assert said == {b"ready": b"1"}
        assert await link.listen(keys, entry, block_seconds=0.001) == []


async def test_who_listens_can_be_cancelled_and_keeps_nobody_waiting(
    start_redis: StartRedis,
) -> None:
    server, keys = start_redis(), Keys("n")
    async with linked(server.url) as link:
        ears = [asyncio.create_task(link.listen(keys, "$", block_seconds=60)) for _ in range(3)]
        await asyncio.to_thread(until, lambda: blocked(server) == 3, "all listen")
        assert await link.call(COUNT, keys, ["n"]) == 1
        for ear in ears:
            ear.cancel()
        await asyncio.gather(*ears, return_exceptions=True)
        until(lambda: blocked(server) == 0, "nobody listens")


async def test_who_listens_hears_that_the_server_is_gone(start_redis: StartRedis) -> None:
    server, keys = start_redis(), Keys("n")
    async with linked(server.url) as link:
        ear = asyncio.create_task(link.listen(keys, "$", block_seconds=60))
        await asyncio.to_thread(until, lambda: blocked(server) == 1, "it listens")
        server.kill()
        with pytest.raises(StoreUnavailable):
            await ear


async def test_a_demoted_primary_is_let_go(start_redis: StartRedis) -> None:
    server, keys = start_redis(), Keys("n")
    async with linked(server.url) as link:
        await link.call(COUNT, keys, ["n"])
        with server.client() as client:
            client.replicaof("127.0.0.1", "1")
            with pytest.raises(StoreUnavailable, match="READONLY"):
                await link.call(COUNT, keys, ["n"])
            until(lambda: connections(server) == 1, "only the test's own is left")
            client.replicaof("NO", "ONE")
        assert await link.call(COUNT, keys, ["n"]) == 2


async def test_a_key_of_another_type_is_named(redis_server: RedisServer, keys: Keys) -> None:
    async with linked(redis_server.url) as link:
        meta = keys("meta")
        await link.many(keys, [("SET", meta, "not ours")])
        assert await link.wrong_types(keys) == [f"{meta} is a string, not a hash"]
        with pytest.raises(StoreForeign, match=f"{meta} is a string"):
            await link.call(COUNT, keys, ["n"])
        [found, exists] = await link.many(keys, [("HGETALL", meta), ("EXISTS", meta)])
        assert isinstance(found, StoreForeign)
        assert meta in str(found)
        assert exists == 1


async def test_a_full_server_says_so_and_how_to_help_it(start_redis: StartRedis) -> None:
    server = start_redis(maxmemory="1")
    async with linked(server.url) as link:
        with pytest.raises(StoreFull, match="maxmemory"):
            await link.call(COUNT, Keys("n"), ["n"])


async def test_what_an_acl_forbids_is_named_with_the_user(start_redis: StartRedis) -> None:
    server = start_redis(
        acl=["ann on >pw ~* +ping +get", "bob on >pw ~* +ping +eval +evalsha +hget"]
    )
    async with linked(as_user(server, "ann")) as link:
        with pytest.raises(StoreUnusable, match=r"'ann'.*'evalsha'.*docs/redis.md"):
            await link.call(COUNT, Keys("n"), ["n"])
    async with linked(as_user(server, "bob")) as link:
        with pytest.raises(StoreUnusable, match=r"'bob'.*HINCRBY.*docs/redis.md"):
            await link.call(COUNT, Keys("n"), ["n"])


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("redis://me:wr0ng@127.0.0.1:{port}", "user 'me'.*WRONGPASS"),
        ("redis://:wr0ng@127.0.0.1:{port}", "user 'default'"),
        ("redis://127.0.0.1:{port}", "NOAUTH"),
        ("redis://:pw@127.0.0.1:{port}/99", "no such database"),
        ("redis+cluster://:pw@127.0.0.1:{port}", "is no Cluster"),
        ("redis+sentinel://:pw@127.0.0.1:{port}/main?sentinel_password=pw", "is no Sentinel"),
    ],
)
async def test_a_door_that_stays_shut_is_told_at_once(
    start_redis: StartRedis, rest: str, told: str
) -> None:
    server = start_redis(password="pw")
    with pytest.raises(StoreUnusable, match=told) as refused:
        await RedisClient(parse(rest.format(port=server.port))).open()
    assert "wr0ng" not in str(refused.value)


async def unreached(url: str) -> str:
    with pytest.raises(StoreUnavailable) as found:
        await RedisClient(parse(url)).open()
    return str(found.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1:1", "127.0.0.1:1 cannot be reached: connection refused"),
        ("redis://localhost:1", "localhost:1 cannot be reached: connection refused"),
        (
            "redis+cluster://127.0.0.1:1,localhost:2",
            "127.0.0.1:1,localhost:2 cannot be reached: none of them answers: connection refused",
        ),
    ],
)
async def test_a_server_that_is_not_there_is_named_once_with_the_cause(url: str, told: str) -> None:
    said = await unreached(url)
    assert said.removeprefix("redis+cluster://") == told


async def test_a_name_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert await unreached("redis://nobody") == "nobody:6379 cannot be reached: name not known"


@pytest.mark.parametrize(
    ("scheme", "told"),
    [
        ("redis", "{} did not answer in time: nothing came in 0.1 s"),
        ("rediss", "{} cannot be reached: no answer in 0.1 s (does it speak TLS? if not, "),
        ("redis+cluster", "{}?timeout=0.1s cannot be reached: none of them answers: no answer in"),
    ],
)
async def test_who_takes_calls_and_is_silent_is_told_with_the_time(scheme: str, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        said = await unreached_in_peace(f"{scheme}://{host}?timeout=0.1s", told.format(host))
    assert told.format(host) in said
    assert said.count(host) == 1


async def unreached_in_peace(url: str, told: str) -> str:
    """If we stand still ourselves meanwhile, it may not even have taken our call."""
    for _ in range(50):
        began_at = time.monotonic()
        said = await unreached(url)
        if told in said or time.monotonic() - began_at < 0.19:  # to be called takes less than 0.1
            return said
    return await unreached(url)


async def test_a_primary_that_sentinel_names_and_nobody_reaches_is_named() -> None:
    async with fake_redis(lambda _: b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n") as sentinel:
        said = await unreached(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
    assert said == "the primary 127.0.0.1:1 cannot be reached: connection refused"


async def test_what_is_no_redis_is_told() -> None:
    async with (
        fake_redis(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as server,
        linked(server.url) as link,
    ):
        with pytest.raises(StoreUnusable, match="does not speak Redis"):
            await link.call(COUNT, Keys("n"), ["n"])


async def test_tls_is_spoken_and_certificates_are_checked(redis_server: RedisServer) -> None:
    keys = Keys("tls")
    with TlsFront(redis_server) as front:
        async with linked(f"{front.url}?ca={front.ca_file}") as link:
            assert await link.call(COUNT, keys, ["n"]) == 1
        async with linked(f"{front.url}?verify=insecure") as link:
            assert await link.call(COUNT, keys, ["n"]) == 2
        with pytest.raises(StoreUnusable, match="ca="):
            await RedisClient(parse(front.url)).open()


async def test_the_types_of_all_fixed_keys_are_known() -> None:
    assert set(TYPES) == {kind for kind, template in TEMPLATES.items() if "{}" not in template}


async def test_all_who_look_for_a_slot_share_one_answer_until_it_is_stale() -> None:
    replies: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":  # all slots are here; the node does not know its own name
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n" % server.port
        return replies.pop() if replies else OK

    def looks() -> int:
        return sum(command[0] == b"CLUSTER" for command in server.commands)

    async with (
        fake_redis(answer) as server,
        linked(server.url.replace("redis:", "redis+cluster:")) as link,
    ):
        await asyncio.gather(*(link.call(COUNT, Keys(f"{n}"), ["n"]) for n in range(10)))
        assert looks() == 1
        replies.append(b"-CLUSTERDOWN The cluster is down\r\n")
        with pytest.raises(StoreUnavailable, match="CLUSTERDOWN"):
            await link.call(COUNT, Keys("n"), ["n"])
        await asyncio.gather(*(link.call(COUNT, Keys(f"{n}"), ["n"]) for n in range(10)))
        assert looks() == 2


@pytest.mark.slow
async def test_after_a_failover_sentinel_is_asked_anew() -> None:
    keys = Keys("n")
    with Sentinels() as group:
        async with linked(group.url) as link:
            assert await link.call(COUNT, keys, ["n"]) == 1
            with pytest.raises(StoreUnusable, match="'other'"):
                await RedisClient(parse(group.url.replace("/holdfast", "/other"))).open()
            group.kill_primary()
            with pytest.raises(StoreUnavailable):
                await link.call(COUNT, keys, ["n"])
            group.wait_promoted()
            assert await link.call(COUNT, keys, ["n"]) >= 1


@pytest.mark.slow
async def test_a_slot_is_followed_while_it_moves_and_afterwards() -> None:
    keys, new = Keys("{n}"), Keys("{n}:new")
    with Cluster(replicas=False) as cluster:
        source = cluster.master_of(keys("meta"))
        target = next(one for one in cluster.servers if one is not source)
        async with linked(cluster.url) as link:
            assert await link.call(COUNT, keys, ["n"]) == 1
            with source.client() as here, target.client() as there:
                ids = [one.execute_command("CLUSTER", "MYID") for one in (here, there)]
                slot = here.execute_command("CLUSTER", "KEYSLOT", keys("meta"))
                there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
                here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
                assert await link.call(COUNT, new, ["n"]) == 1
                commands = [("HGET", which("meta"), "n") for which in (keys, new)]
                assert await link.many(keys, commands) == [b"1", b"1"]
                here.migrate("127.0.0.1", target.port, keys("meta"), 0, 50_000)
                for one in (there, here):
                    one.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
            assert await link.call(COUNT, keys, ["n"]) == 2
            assert await link.listen(keys, "$", block_seconds=0.001) == []


@pytest.mark.slow
async def test_a_master_that_dies_is_replaced_by_its_replica() -> None:
    parts = [Keys(f"{{n-{n}}}") for n in range(16)]
    with Cluster() as cluster:
        async with linked(cluster.url) as link:
            assert await asyncio.gather(*(link.call(COUNT, p, ["n"]) for p in parts)) == [1] * 16
            dead = cluster.master_of(parts[0]("meta"))
            cluster.kill(dead)
            with pytest.raises(StoreUnavailable):
                await link.call(COUNT, parts[0], ["n"])
            cluster.wait_ok()
            for part in parts:
                assert await link.call(COUNT, part, ["n"]) >= 1


def as_user(server: RedisServer, user: str) -> str:
    return server.url.replace("redis://", f"redis://{user}:pw@")


def connections(server: RedisServer) -> int:
    """But for the one that asks."""
    with server.client() as client:
        return len(client.client_list()) - 1


def blocked(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"])
