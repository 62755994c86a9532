"""A receiver of webhooks on loopback, in the test's own loop, that behaves as badly as it is told.

    async with Receiver(answer(500), answer(200)) as receiver:
        await poster.post(receiver.url("/told"), b"{}", {})
        assert receiver.seen[0].body == b"{}"

One way to behave for each connection, in order; the last one stays.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import Self

BOUND_SECONDS = 60.0
DRIP_SECONDS = 0.02
CHUNK = b"x" * 65536


@dataclass
class Seen:
    """A request, whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Caller:
    """The connection of one client, as its behaviour sees it."""

    receiver: Receiver
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> Seen:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.lower(): value for name, value in (line.split(": ", maxsplit=1) for line in lines)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        seen = Seen(method, path, headers, body)
        await self.receiver.note(seen)
        return seen

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.receiver.sent_bytes += len(data)

    async def until_gone(self) -> None:
        """A client that is bored closes; whatever else it says is not looked at."""
        while await self.reader.read(65536):
            pass


Behaviour = Callable[[Caller], Awaitable[None]]


def answer(status: int, *lines: str, body: bytes = b"") -> Behaviour:
    async def behave(caller: Caller) -> None:
        await caller.request()
        head = [f"HTTP/1.1 {status} Said", *lines, f"content-length: {len(body)}", "", ""]
        await caller.send("\r\n".join(head).encode("latin-1") + body)

    return behave


def saying(data: bytes) -> Behaviour:
    """Answer with these bytes and no more; the connection stays open."""

    async def behave(caller: Caller) -> None:
        await caller.request()
        await caller.send(data)
        await caller.until_gone()

    return behave


def repeating(start: bytes, again: bytes) -> Behaviour:
    """Answer without end, as fast as the caller reads."""

    async def behave(caller: Caller) -> None:
        await caller.request()
        await caller.send(start)
        while True:
            await caller.send(again)

    return behave


def dripping(data: bytes) -> Behaviour:
    """A byte at a time, over and over: never silent, never done."""

    async def behave(caller: Caller) -> None:
        await caller.request()
        gone = asyncio.ensure_future(caller.until_gone())
        while not gone.done():
            for byte in data:
                await caller.send(bytes([byte]))
                await asyncio.wait([gone], timeout=DRIP_SECONDS)

    return behave


def redirect(to: str) -> Behaviour:
    return answer(302, f"location: {to}")


async def hang(caller: Caller) -> None:
    await caller.request()
    await caller.until_gone()


async def hang_unread(caller: Caller) -> None:
    """Not even the request is taken."""
    await caller.receiver.leaving.wait()


async def close(caller: Caller) -> None:
    await caller.request()


async def reset(caller: Caller) -> None:
    await caller.request()
    no_goodbye = struct.pack("ii", 1, 0)
    caller.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, no_goodbye)
    caller.writer.transport.abort()


hang_in_head = saying(b"HTTP/1.1 200 OK\r\nx-half: ")
endless_head = repeating(b"HTTP/1.1 200 OK\r\n", b"x-more: " + CHUNK[:8000] + b"\r\n")
endless_line = repeating(b"HTTP/1.1 200 ", CHUNK)
endless_interim = repeating(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
endless_body = repeating(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n", CHUNK)
endless_chunks = repeating(
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"10000\r\n" + CHUNK + b"\r\n"
)
not_http = saying(b"220 mail.example.com ESMTP told-you-a-secret\r\n\r\n")
slow_drip = dripping(b"HTTP/1.1 200 OK\r\n" + b"x-drop: y\r\n" * 100)


class Receiver:
    """A server: ``seen`` has all complete requests, ``connected`` also counts silent callers."""

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.behaviours = behaviours or (answer(200),)
        self.tls = tls
        self.seen: list[Seen] = []
        self.connected = self.parted = self.sent_bytes = self.port = 0
        self.leaving = asyncio.Event()
        self._news = asyncio.Condition()
        self._callers: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    async def note(self, seen: Seen) -> None:
        async with self._news:
            self.seen.append(seen)
            self._news.notify_all()

    async def got(self, count: int, bound_seconds: float = BOUND_SECONDS) -> list[Seen]:
        """Waits until so many requests have come."""
        async with asyncio.timeout(bound_seconds), self._news:
            await self._news.wait_for(lambda: len(self.seen) >= count)
        return self.seen

    async def left(self, count: int, bound_seconds: float = BOUND_SECONDS) -> None:
        """Waits until so many connections have ended."""
        async with asyncio.timeout(bound_seconds), self._news:
            await self._news.wait_for(lambda: self.parted >= count)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leaving.set()
        await self._let_nobody_in()
        self._server.close()
        for task in self._callers:
            task.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await self._until_closed()

    async def _let_nobody_in(self) -> None:
        """A server that is closed drops whom it has just accepted, and leaves the socket open."""
        for line in self._server.sockets:
            asyncio.get_running_loop().remove_reader(line.fileno())
        for _turn in range(10):
            await asyncio.sleep(0)

    async def _until_closed(self) -> None:
        """Each connection, also one that is in its handshake or says goodbye in TLS: the garbage
        collector would blame a later test for it."""
        async with asyncio.timeout(BOUND_SECONDS):
            while getattr(self._server, "_active_count", 0):  # noqa: ASYNC110  # for 3.11
                await asyncio.sleep(0)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.leaving.is_set():
            writer.transport.abort()
            return
        self._callers.add(task)
        self._writers.append(writer)
        behave = self.behaviours[min(self.connected, len(self.behaviours) - 1)]
        self.connected += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await behave(Caller(self, reader, writer))
            async with self._news:
                self.parted += 1
                self._news.notify_all()
        except asyncio.CancelledError:
            pass  # the receiver ends; asyncio's server would log it
        finally:
            self._callers.discard(task)
            writer.transport.abort() if self.leaving.is_set() else writer.close()
