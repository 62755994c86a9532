"""A TCP proxy that does harm: it loses replies, cuts, delays and half-opens connections.

    async with Proxy("127.0.0.1", 6379) as proxy:
        proxy.deal(Harm.LOSE)  # the next answer, on whatever connection
        ...  # a client of proxy.port
        assert proxy.dealt[Harm.LOSE] == 1

Harm is dealt on command, or by chance with ``odds`` per chunk of bytes. It is counted only when it
has met something: a reply is lost only if the server had sent one. Our own, because the known ones
(toxiproxy and others) are servers of their own and cannot tell a lost reply from a lost request.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Self

CHUNK_BYTES = 64 * 1024
BUFFER_BYTES = 64 * 1024  # waiting for a side that reads slowly; then the other is not read
CONNECTIONS_MAX = 1000
CONNECT_SECONDS = 60.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no farewell


class Harm(StrEnum):
    LOSE = "lose"  # the request gets through, its answer does not, and the connection is cut
    TEAR = "tear"  # the same, but the first half of the answer does
    MUTE = "mute"  # the same as LOSE, but the connection stays open and says nothing any more
    CUT = "cut"  # the connection is cut, and the request does not get through
    DEAF = "deaf"  # half-open: it stays open, and nothing that the client sends gets through
    DELAY = "delay"  # the request gets through late


REPLIES_LOST = (Harm.LOSE, Harm.TEAR, Harm.MUTE)
REQUESTS_HARMED = (Harm.CUT, Harm.DEAF, Harm.DELAY)


class Proxy:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        listen: socket.socket | None = None,
        chance: random.Random | None = None,
        odds: Mapping[Harm, float] | None = None,
        delay_seconds: tuple[float, float] = (0.05, 0.3),
    ) -> None:
        """Forward to ``host`` and ``port`` from a free port of loopback, or from ``listen``."""
        self.dealt: Counter[Harm] = Counter()
        self.wanted: Counter[Harm] = Counter()  # commanded, and not dealt yet
        self._target = host, port
        self._listen = listen
        self._chance = chance or random.Random()
        self._odds = dict(odds or {})
        self._delay_seconds = delay_seconds
        self._server: asyncio.Server | None = None
        self._closing = False
        self._pipes: dict[Pipe, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()  # a new one after each harm

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        assert self._server is not None, "it was not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        return len(self._pipes)

    async def start(self) -> None:
        if self._listen is not None:
            self._server = await asyncio.start_server(self._accept, sock=self._listen)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        self._closing = True
        if self._server is not None:
            self._server.close()
        for pipe, run in self._pipes.items():
            pipe.abort()
            run.cancel()
        await asyncio.gather(*self._pipes.values(), return_exceptions=True)

    def deal(self, harm: Harm, times: int = 1) -> None:
        """Deal the harm to the next request that it fits, on any connection."""
        self.wanted[harm] += times

    def cut_all(self) -> int:
        """Cut every connection now, also silent ones, and return how many there were."""
        for pipe in self._pipes:
            pipe.abort()
        self.dealt[Harm.CUT] += len(self._pipes)
        return len(self._pipes)

    async def until_dealt(self, harm: Harm, times: int = 1) -> None:
        while self.dealt[harm] < times:
            await self._changed.wait()

    # -- for the pipes

    def strikes(self, *fitting: Harm) -> Harm | None:
        """Return the harm to do to the present bytes, if any."""
        for harm in fitting:
            if self.wanted[harm] > 0:
                self.wanted[harm] -= 1
                return harm
            if self._odds.get(harm) and self._chance.random() < self._odds[harm]:
                return harm
        return None

    def note(self, harm: Harm) -> None:
        self.dealt[harm] += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def delay(self) -> None:
        await asyncio.sleep(self._chance.uniform(*self._delay_seconds))

    def resets(self) -> bool:
        """A cut is a reset as often as a plain close."""
        return self._chance.random() < 0.5

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        run = asyncio.current_task()
        assert run is not None
        pipe = Pipe(self, reader, writer)
        if len(self._pipes) >= CONNECTIONS_MAX:
            pipe.abort()
            return
        self._pipes[pipe] = run
        try:
            await pipe.run(*self._target)
        except asyncio.CancelledError:
            if not self._closing:  # asyncio would log the end that we have asked for
                raise
        finally:
            del self._pipes[pipe]


class Pipe:
    """One connection of a client, and ours to the server on its behalf."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._client = writer
        self._server: asyncio.StreamWriter | None = None
        self._deaf = False
        self._mute = False

    async def run(self, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                answers, self._server = await asyncio.open_connection(host, port)
            for writer in (self._client, self._server):
                writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
            both = (
                asyncio.create_task(self._requests(self._server)),
                asyncio.create_task(self._answers(answers)),
            )
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if self._deaf or self._mute:  # the client may not learn what became of the server
                    await both[0]
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except (OSError, TimeoutError):
            pass  # the server is away: the client sees its connection end
        finally:
            self.abort()
            await self._wait_closed()

    async def _wait_closed(self) -> None:
        for writer in (self._client, self._server):
            if writer is not None:
                with suppress(OSError):  # it did not end well, and was not meant to
                    await writer.wait_closed()

    def abort(self, *, reset: bool = False) -> None:
        if reset:
            for_client: socket.socket | None = self._client.get_extra_info("socket")
            if for_client is not None:
                with suppress(OSError):  # it has gone by itself
                    for_client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._client.transport.abort()
        if self._server is not None:
            self._server.transport.abort()

    async def _requests(self, server: asyncio.StreamWriter) -> None:
        while chunk := await _read(self._reader):
            if self._deaf:
                continue
            harm = self._proxy.strikes(*(() if self._mute else REQUESTS_HARMED))
            if harm is Harm.DELAY:
                await self._proxy.delay()
            elif harm is Harm.DEAF:
                self._deaf = True
            if harm is not None:
                self._proxy.note(harm)
            if harm is Harm.CUT:
                self.abort(reset=self._proxy.resets())
            if harm in (None, Harm.DELAY):
                await _write(server, chunk)

    async def _answers(self, answers: asyncio.StreamReader) -> None:
        while chunk := await _read(answers):
            if self._mute:
                continue
            harm = self._proxy.strikes(*(() if self._deaf else REPLIES_LOST))
            if harm is None:
                await _write(self._client, chunk)
                continue
            if harm is Harm.TEAR:
                await _write(self._client, chunk[: len(chunk) // 2])
            self._mute = True
            self._proxy.note(harm)
            if harm is not Harm.MUTE:
                self.abort(reset=harm is Harm.LOSE and self._proxy.resets())


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""


async def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    with suppress(OSError):  # it is gone: the read on its side says so, too
        writer.write(chunk)
        await writer.drain()
