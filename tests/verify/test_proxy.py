"""The proxy that does harm, between a client and a server that counts what reaches it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from verify.proxy import CHUNK_BYTES, REPLIES_LOST, Harm, Proxy

SILENCE_SECONDS = 0.1
ANSWER_SECONDS = 60.0


@dataclass
class Echo:
    """Answers each line with itself, and remembers it."""

    heard: list[bytes] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    port: int = 0
    serving: set[asyncio.Task[None] | None] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        with suppress(ConnectionError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
                async with self.changed:
                    self.changed.notify_all()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def has_heard(self, lines: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.heard) == lines)

    async def served(self) -> None:
        await asyncio.gather(*(task for task in self.serving if task))


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, line: bytes) -> None:
        self.writer.write(line)

    async def answer(self, *, within: float = ANSWER_SECONDS) -> bytes:
        """What comes next; nothing: the connection has ended."""
        try:
            return await asyncio.wait_for(self.reader.readline(), within)
        except ConnectionError:
            return b""

    async def says_nothing(self) -> bool:
        try:
            await self.answer(within=SILENCE_SECONDS)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def echoing() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0, limit=2**22)
    echo.port = server.sockets[0].getsockname()[1]
    try:
        yield echo
    finally:
        server.close()
        await echo.served()


@asynccontextmanager
async def client_of(proxy: Proxy) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**22)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def in_between() -> AsyncIterator[tuple[Echo, Proxy, Client]]:
    async with (
        echoing() as echo,
        Proxy("127.0.0.1", echo.port, delay_seconds=(0.01, 0.02)) as proxy,
        client_of(proxy) as client,
    ):
        yield echo, proxy, client


async def test_without_harm_everything_gets_through_whatever_its_size() -> None:
    async with in_between() as (echo, proxy, client):
        large = b"x" * (10 * CHUNK_BYTES) + b"\n"
        for line in (b"one\n", large):
            client.send(line)
            assert await client.answer() == line
        assert echo.heard == [b"one\n", large]
        assert not proxy.dealt


async def test_a_lost_reply_has_reached_the_server() -> None:
    async with in_between() as (echo, proxy, client):
        proxy.deal(Harm.LOSE)
        client.send(b"one\n")
        assert await client.answer() == b""
        assert echo.heard == [b"one\n"]
        assert proxy.dealt == {Harm.LOSE: 1}


async def test_half_of_a_torn_reply_comes_through() -> None:
    async with in_between() as (echo, proxy, client):
        proxy.deal(Harm.TEAR)
        client.send(b"one two\n")
        assert await client.answer() == b"one "
        assert echo.heard == [b"one two\n"]


async def test_a_muted_connection_stays_open_and_only_the_server_hears() -> None:
    async with in_between() as (echo, proxy, client):
        proxy.deal(Harm.MUTE)
        client.send(b"one\n")
        await proxy.until_dealt(Harm.MUTE)
        client.send(b"two\n")
        await echo.has_heard(2)
        assert await client.says_nothing()
        assert echo.heard == [b"one\n", b"two\n"]
        assert proxy.dealt == {Harm.MUTE: 1}


async def test_a_cut_comes_before_the_server_has_heard() -> None:
    async with in_between() as (echo, proxy, client):
        proxy.deal(Harm.CUT)
        client.send(b"one\n")
        assert await client.answer() == b""
        assert echo.heard == []


async def test_a_half_open_connection_takes_everything_and_passes_nothing_on() -> None:
    async with in_between() as (echo, proxy, client):
        proxy.deal(Harm.DEAF)
        client.send(b"one\n")
        await proxy.until_dealt(Harm.DEAF)
        client.send(b"two\n")
        assert await client.says_nothing()
        assert echo.heard == []


async def test_a_delayed_request_gets_through() -> None:
    async with in_between() as (_, proxy, client):
        proxy.deal(Harm.DELAY)
        client.send(b"one\n")
        assert await client.answer() == b"one\n"
        assert proxy.dealt == {Harm.DELAY: 1}


async def test_a_reply_is_not_counted_as_lost_before_the_server_has_sent_one() -> None:
    async with in_between() as (_, proxy, _):
        proxy.deal(Harm.LOSE, times=2)
        assert not proxy.dealt
        assert proxy.wanted[Harm.LOSE] == 2


async def test_harm_to_one_connection_leaves_the_next_alone() -> None:
    async with in_between() as (_, proxy, client):
        proxy.deal(Harm.LOSE)
        client.send(b"one\n")
        assert await client.answer() == b""
        async with client_of(proxy) as another:
            another.send(b"two\n")
            assert await another.answer() == b"two\n"


async def test_all_connections_can_be_cut_at_once() -> None:
    async with in_between() as (_, proxy, client):
        client.send(b"one\n")
        await client.answer()
        assert proxy.cut_all() == 1
        assert await client.answer() == b""


async def test_a_half_open_connection_does_not_tell_that_the_server_is_gone() -> None:
    gone = asyncio.Event()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.transport.abort()
        gone.set()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Proxy("127.0.0.1", port) as proxy, client_of(proxy) as client:
        proxy.deal(Harm.MUTE)
        client.send(b"one\n")
        await gone.wait()
        await proxy.until_dealt(Harm.MUTE)
        assert await client.says_nothing()
        assert proxy.connections == 1
    server.close()


async def test_a_server_that_is_away_ends_the_clients_connection() -> None:
    async with echoing() as echo:
        nobody = echo.port
    async with Proxy("127.0.0.1", nobody) as proxy, client_of(proxy) as client:
        assert await client.answer() == b""


@pytest.mark.parametrize("seed", range(3))
async def test_chance_deals_the_same_harm_from_the_same_seed(seed: int) -> None:
    assert await lost_by_chance(seed) == await lost_by_chance(seed)


async def lost_by_chance(seed: int) -> list[bool]:
    """Of forty requests, one after the other: which were not answered."""
    odds = dict.fromkeys((Harm.LOSE, Harm.CUT), 0.1)
    lost = []
    async with (
        echoing() as echo,
        Proxy("127.0.0.1", echo.port, chance=random.Random(seed), odds=odds) as proxy,
    ):
        for number in range(40):
            async with client_of(proxy) as client:
                client.send(b"%d\n" % number)
                lost.append(await client.answer() == b"")
        assert sum(proxy.dealt.values()) == sum(lost) > 0
        assert len(echo.heard) == 40 - proxy.dealt[Harm.CUT]
    return lost


def test_each_kind_of_lost_reply_is_told_from_the_other_harm() -> None:
    assert set(REPLIES_LOST).isdisjoint({Harm.CUT, Harm.DEAF, Harm.DELAY})
