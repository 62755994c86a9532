"""The driver's connection to one server (TCP or TLS, login), and one question asked on it.

Nothing here sends anything twice: the driver's own resending is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import redis
from redis.asyncio import connection as driver
from redis.asyncio.connection import RedisSSLContext
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.stores.redis.client.address import Address, Host
from holdfast.stores.redis.client.connection import Command, PipelinedConnection

CONNECT_SECONDS_MAX = 2.0


class DriverConnection(Protocol):
    """The part of the driver's connection that we use."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    def pack_commands(self, commands: Iterable[Command]) -> list[bytes]: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Any: ...


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


def make_driver_connection(
    address: Address,
    host: Host,
    tls: RedisSSLContext | None,
    *,
    sentinel: bool = False,
    once: bool = False,
) -> DriverConnection:
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
        return cast("DriverConnection", driver.Connection(**options))
    secured = driver.SSLConnection(**options)
    secured.ssl_context = tls
    return cast("DriverConnection", secured)


async def open_connection(made: DriverConnection, timeout_seconds: float) -> PipelinedConnection:
    try:
        await made.connect()
    except BaseException:
        await made.disconnect(nowait=True)
        raise
    return PipelinedConnection(cast("driver.AbstractConnection", made), timeout_seconds)


async def ask_once(made: DriverConnection, command: Command) -> Any:
    try:
        await made.connect()
        [reply] = await exchange(made, [command])
    finally:
        await made.disconnect(nowait=True)
    if isinstance(reply, redis.ResponseError):
        raise reply
    return reply


async def exchange(made: DriverConnection, commands: Sequence[Command]) -> list[Any]:
    await made.send_packed_command(made.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await made.read_response())
        except redis.ResponseError as error:
            replies.append(error)
    return replies
