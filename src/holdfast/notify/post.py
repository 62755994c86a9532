"""The poster sends one message to an address that a stranger may have chosen. It needs
``holdfast-engine[webhooks]``.

It resolves the name once, checks each address, and connects to an address that it checked: a name
server that changes its answer is not asked again. It takes only the status and ``retry-after`` of
the answer. It does not read the body, and no text of the answer gets into an error.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any

import msgspec

from holdfast.domain.errors import NotDelivered
from holdfast.notify.addresses import Address, Allowed, Target, unmap
from holdfast.notify.name_lookup import CannotResolveNow, addresses_of

try:
    import httpcore
except ImportError as error:
    reason = "holdfast.notify.post needs httpcore: pip install 'holdfast-engine[webhooks]'"
    raise ImportError(reason, name=error.name) from error

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

TIMEOUT_SECONDS = 10.0
ADDRESSES_TRIED_MAX = 4
HEAD_BYTES_MAX = 64 * 1024  # of everything that is read, interim answers included
RETRY_AFTER_SECONDS_MAX = 3600.0

_posting: ContextVar[bool] = ContextVar("holdfast_posting", default=False)
_SECONDS = re.compile(r"[0-9]{1,20}")


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The status of an answer, and how long its sender asks us to wait."""

    status: int
    retry_after_seconds: float | None


class Poster:
    """A poster keeps nothing between posts: no connection, no cookie, no resolved name."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = allowed
        self._timeout_seconds = timeout_seconds
        self._resolve = resolve or addresses_of
        self._ssl_context = ssl_context

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        """Post a message and return the answer.

        Raise UrlRefused if the message must not go there, NotDelivered if no answer in HTTP came in
        time, and CannotResolveNow if no slot for a lookup was free.
        """
        target = self._allowed.target(url)
        request = _request(target, body, headers)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(request, await self._allowed_addresses(target))
        except TimeoutError:
            problem = f"did not answer in {self._timeout_seconds:g} s"
        except CannotResolveNow:
            raise
        except _FAILURES as error:
            problem = _describe(error)
        # Raised out here: within ``except`` it would carry the error, and that one the answer.
        raise NotDelivered(f"{target.shown} {problem}")

    async def _allowed_addresses(self, target: Target) -> list[Address]:
        literal = target.literal
        if literal is not None:
            return [literal]  # checked with the URL
        addresses = [ip_address(text) for text in await self._resolve(target.host, target.port)]
        self._allowed.check_addresses(target, addresses)
        return addresses

    async def _exchange(self, request: httpcore.Request, addresses: list[Address]) -> Answered:
        network = _CheckedNetwork(addresses, self._timeout_seconds)
        tls = self._tls() if request.url.scheme == b"https" else None
        connection = httpcore.AsyncHTTPConnection(
            request.url.origin, ssl_context=tls, network_backend=network
        )
        before = _posting.set(True)
        try:
            response = await connection.handle_async_request(request)
            return Answered(response.status, _retry_after(response.headers))
        finally:
            _posting.reset(before)
            await network.close()

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            # The authorities of certifi and of the system, SSL_CERT_FILE too.
            self._ssl_context = httpcore.default_ssl_context()
        return self._ssl_context


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that were checked, whatever host it is asked for."""

    def __init__(self, addresses: list[Address], timeout_seconds: float) -> None:
        self._addresses = [unmap(address) for address in addresses[:ADDRESSES_TRIED_MAX]]
        self._timeout_seconds = timeout_seconds
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        share_seconds = self._timeout_seconds / max(len(self._addresses), 1)
        for number, address in enumerate(self._addresses, start=1):
            last = number == len(self._addresses)
            try:
                self._stream = await httpcore.AnyIOBackend().connect_tcp(
                    str(address),
                    port,
                    None if last else share_seconds,
                    local_address,
                    socket_options,
                )
                return _ShortReading(self._stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if last:
                    raise
        raise httpcore.ConnectError("the name has no address")

    async def close(self) -> None:
        """Close the connection, also one that broke off during its TLS handshake."""
        if self._stream is not None:
            await self._stream.aclose()


class _ShortReading(httpcore.AsyncNetworkStream):
    """A stream that gives up on an answer whose head is too long."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left_bytes = HEAD_BYTES_MAX

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._left_bytes <= 0:
            raise httpcore.RemoteProtocolError("the head is too long")
        data = await self._stream.read(min(max_bytes, self._left_bytes), timeout)
        self._left_bytes -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _ShortReading(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Unheard(logging.Filter):
    """Drops httpcore's DEBUG lines about our own posts, which contain the head of the answer."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _posting.get()


for _name in ("httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_Unheard())

_FAILURES = (
    httpcore.NetworkError,
    httpcore.RemoteProtocolError,
    httpcore.TimeoutException,
    OSError,  # a name that does not resolve; TLS that breaks after its handshake
    UnicodeError,  # a name that the system cannot ask for
)


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> httpcore.Request:
    added = {"host": target.authority, "content-length": str(len(body)), "connection": "close"}
    url = httpcore.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )
    return httpcore.Request("POST", url, headers=[*added.items(), *headers.items()], content=body)


def _describe(error: Exception) -> str:
    """Describe the error in our own words, because a library may quote what the receiver sent."""
    match error:
        case socket.gaierror() | UnicodeError():
            return "has a name that does not resolve"
        case httpcore.ConnectTimeout():
            return "could not be connected to in time"
        case httpcore.ConnectError() if isinstance(error.__cause__, ssl.SSLError):
            return _describe_tls(error.__cause__)
        case httpcore.ConnectError():
            return "could not be connected to"
        case httpcore.RemoteProtocolError():
            return "did not answer in HTTP"
        case _:
            return "broke the connection"


def _describe_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {error.verify_message}"
    return "failed in the TLS handshake"


def _retry_after(headers: Sequence[tuple[bytes, bytes]]) -> float | None:
    for name, value in headers:
        if name.lower() == b"retry-after":
            return retry_after_seconds(value.decode("latin-1"), datetime.now(UTC))
    return None


def retry_after_seconds(text: str, now: datetime) -> float | None:
    """Return the delay that a number of seconds or a date describes, 0 to 3600 s; None if it is
    neither.
    """
    if _SECONDS.fullmatch(text):
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    try:
        then = parsedate_to_datetime(text[:64])
        delay = (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(delay, 0.0), RETRY_AFTER_SECONDS_MAX)
