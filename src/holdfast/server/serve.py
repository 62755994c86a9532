"""Answer HTTP on an address until told to stop: uvicorn, bounded, with our own way to an end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn import Config

from holdfast.domain.errors import InvalidInput
from holdfast.server.api import bare_api
from holdfast.server.auth import tokens as tk
from holdfast.server.http.edge import ConnectionPlace, ServiceEdge
from holdfast.server.http.listener import Listener
from holdfast.server.service import Service
from holdfast.settings import Settings

log = logging.getLogger("holdfast.server")

BACKLOG = 1024
HEAD_MAX_BYTES = 64 * 1024  # and of what may stand behind a body
FIRST_BYTE_SECONDS = 5.0  # for the first request's first byte, from the connection
HEAD_SECONDS = 10.0  # for the head of a request, from its first byte
ARRIVE_SECONDS = 60.0  # for its body, from the end of the head
KEEP_ALIVE_SECONDS = 15
STALLED_SECONDS = 30.0  # within which a reader takes some of its answer
STALLED_STOPPING_SECONDS = 1.0  # the same, when the service stops
TAKEN_MIN_BYTES = 16 * 1024  # so much is some
FINISH_SECONDS = 10  # for the requests under way, when the service stops
ONE_TIME = "one-time"


class NoTokens(InvalidInput, stored_name="NoTokens"):
    code = "no-tokens"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} can be reached from elsewhere, and no token is configured. Make one: "
            "holdfast tokens create NAME --role admin --file tokens.json, "
            "and set HOLDFAST_TOKENS=tokens.json; or stay on 127.0.0.1"
        )


class CannotBind(InvalidInput, stored_name="CannotBind"):
    code = "cannot-bind"

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}, port {port}: {reason}")


# -- who may come in


def one_time_token(settings: Settings, host: str, *, now: float) -> tuple[tk.Token, str] | None:
    """Return a token for this process, on loopback only; None: tokens are configured."""
    if settings.tokens is not None and tk.read(settings.tokens):
        return None
    if not is_loopback(host):
        raise NoTokens(host)
    return tk.make(ONE_TIME, tk.Role.ADMIN, now=now)


def is_loopback(host: str) -> bool:
    """Tell whether a host is loopback: a name is if all its addresses are."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(one).is_loopback for one in found)


# -- the address


def bind(host: str, port: int) -> socket.socket:
    """Bind the address at once, so that a wrong one is reported before anything has begun."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError) as error:
        raise CannotBind(host, port, _reason(error)) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise CannotBind(host, port, _reason(error)) from error
    return bound


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return url_at(host, port)


def url_at(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# -- answering


async def answer(
    service: Service,
    bound: socket.socket,
    *,
    stop: asyncio.Event,
    stop_now: asyncio.Event,
    on_listening: Callable[[], None],
) -> None:
    """Answer requests until ``stop`` is set. Then callers who wait for long are answered, nobody
    new is let in, and requests under way are finished, unless ``stop_now`` is set. From the moment
    when the service is leaving, every answer closes its connection."""
    if service.connection_limit < (wanted := service.settings.connection_limit):
        message = "%d connections instead of %d: half of the files that this process may open"
        log.warning(message, service.connection_limit, wanted)
    server = _Server(_config(service), service, on_listening)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    leaving = asyncio.create_task(_leave(service, server))
    stopping = asyncio.create_task(_stop(service, server, stop, stop_now))
    try:
        await serving
    finally:
        leaving.cancel()
        stopping.cancel()
        service.stopping.set()


async def _leave(service: Service, server: _Server) -> None:
    await service.leaving.wait()
    for connection in list(server.server_state.connections):
        if close := getattr(connection, "close_after_answer", None):
            close()


async def _stop(
    service: Service, server: _Server, stop: asyncio.Event, stop_now: asyncio.Event
) -> None:
    await stop.wait()
    service.leaving.set()
    service.stopping.set()
    server.should_exit = True
    await stop_now.wait()
    server.hang_up()


def _config(service: Service) -> Config:
    protocol = _protocol()
    return Config(
        ServiceEdge(bare_api(service, None), service),
        http=protocol or "h11",
        ws="none",
        lifespan="off",  # the service is opened before and closed after
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # anybody could write there where he comes from
        server_header=False,
        backlog=BACKLOG,
        # Our own bounds leave health out; h11, where there is no other, has but this one.
        limit_concurrency=None if protocol is not None else service.connection_limit,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FINISH_SECONDS,
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
    )


def _protocol() -> Any | None:
    try:
        from holdfast.server.http.protocol import BoundedHttp
    except ModuleNotFoundError:  # there is no httptools for this system
        return None
    return BoundedHttp


class _Server(uvicorn.Server):
    def __init__(self, config: Config, service: Service, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if sockets is None or (protocol := _protocol()) is None:
            await super().startup(sockets)
        else:
            self.servers = [self._listen(one, protocol) for one in sockets]
            self.started = True
        self._on_listening()

    def _listen(self, bound: socket.socket, protocol: Any) -> Any:
        lines = self._service.lines

        def make(place: ConnectionPlace) -> asyncio.Protocol:
            made: asyncio.Protocol = protocol(
                config=self.config,
                server_state=self.server_state,
                app_state={},
                place=place,
                lines=lines,
                leaving=self._service.leaving,
            )
            return made

        listener = Listener(bound, self._service.connections, make, lines)
        listener.listen(BACKLOG)
        return listener

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs the service: there is more to end than this."""
        yield

    def hang_up(self) -> None:
        self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.abort()
