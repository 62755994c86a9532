"""Connections to a server: made, kept ready, and asked.

Nothing here sends anything twice: the driver's own resending is off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import redis
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    RedisSSLContext,
    SSLConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.stores.redis.address import Address, Host
from holdfast.stores.redis.line import Command, Line

CONNECT_SECONDS_MAX = 2.0


class Wire(Protocol):
    """What we use of the driver's connection."""

    @property
    def is_connected(self) -> bool: ...
    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    async def can_read(self) -> bool: ...
    def pack_commands(self, commands: Iterable[Command]) -> list[bytes]: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Any: ...


class Pool:
    """A few connections to one server.

    Ours, as the driver's gives a place back with an await, which a cancelled call may not reach.
    """

    def __init__(self, make: Callable[[], Wire], *, limit: int, wait_seconds: float) -> None:
        self._make = make
        self._wait_seconds = wait_seconds
        self._room = asyncio.Semaphore(limit)
        self._idle: list[Wire] = []
        self._closed = False

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        await self._enter()
        wire = self._idle.pop() if self._idle else self._make()
        sound = False
        try:
            await _connected(wire)
            yield wire
            sound = True
        finally:
            self._room.release()
            if sound and not self._closed:
                self._idle.append(wire)
            else:  # a reply may still be on its way
                await wire.disconnect(nowait=True)

    async def _enter(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._room.acquire()
        except TimeoutError:
            raise redis.TimeoutError("all connections are busy") from None

    async def close(self, *, wait: bool) -> None:
        """Those in use are closed when they come back."""
        self._closed = True
        idle, self._idle = self._idle, []
        closing = (wire.disconnect(nowait=not wait) for wire in idle)
        await asyncio.gather(*closing, return_exceptions=True)


def tls_of(address: Address) -> RedisSSLContext | None:
    if not address.tls:
        return None
    return RedisSSLContext(
        ca_certs=address.ca,
        certfile=address.cert,
        keyfile=address.key,
        cert_reqs="none" if address.insecure else "required",
        check_hostname=not address.insecure,
    )


def make_wire(
    address: Address,
    host: Host,
    tls: RedisSSLContext | None,
    *,
    sentinel: bool = False,
    once: bool = False,
) -> Wire:
    connect_seconds = min(address.timeout_seconds, CONNECT_SECONDS_MAX)
    options: dict[str, Any] = {
        "host": host[0],
        "port": host[1],
        "db": 0 if sentinel else address.db,
        "username": address.sentinel_user if sentinel else address.user,
        "password": address.sentinel_password if sentinel else address.password,
        "socket_timeout": connect_seconds if once else address.timeout_seconds,
        "socket_connect_timeout": connect_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "protocol": 2,
        "driver_info": None,  # no CLIENT SETINFO, which an ACL may forbid
    }
    if tls is None:
        return cast("Wire", Connection(**options))
    wire = SSLConnection(**options)
    wire.ssl_context = tls
    return cast("Wire", wire)


async def open_line(wire: Wire, timeout_seconds: float) -> Line:
    try:
        await wire.connect()
    except BaseException:
        await wire.disconnect(nowait=True)
        raise
    return Line(cast("AbstractConnection", wire), timeout_seconds)


async def ask_once(wire: Wire, command: Command) -> Any:
    try:
        await wire.connect()
        [reply] = await exchange(wire, [command])
    finally:
        await wire.disconnect(nowait=True)
    if isinstance(reply, redis.ResponseError):
        raise reply
    return reply


async def _connected(wire: Wire) -> None:
    if wire.is_connected and await wire.can_read():  # the server has closed it meanwhile
        await wire.disconnect(nowait=True)
    await wire.connect()


async def exchange(wire: Wire, commands: Sequence[Command]) -> list[Any]:
    await wire.send_packed_command(wire.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await wire.read_response())
        except redis.ResponseError as error:
            replies.append(error)
    return replies
