"""The edge of `holdfast serve`: what is decided about a request before it has a route.

Connections are bounded for the process and for each address, with room for health checks. At the
bound of the process, the connection that has had no request under way for longest gives way to a
new one. Where none gives way, and at the bound of an address, a few reserved places are left. In
those only health is answered, and the oldest one without a request gives way.

A request has exactly one Host header, well formed, and one of those that were allowed.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.errors import HoldfastError
from holdfast.observe.metrics import Metrics
from holdfast.server.http import problems
from holdfast.server.http.problems import Overloaded, TooManyConnections, WrongHost
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.http.log_lines import LogLines
    from holdfast.server.service import Service

HEADERS = [  # of every answer; no route sets one of these itself
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
REFUSAL = "holdfast.refusal"  # in the scope: why the connection has no place of its own
TARGET = "holdfast.target"  # in the scope: the authority of a target in absolute form
NO_ROUTE = "other"  # the route of the metric, where a request has not come to one
HEALTH = frozenset({"/livez", "/readyz", "/metrics"})  # outside every limit of the process
CONNECTIONS_MIN = 16
RESERVED_MAX = 16  # places of each reserve
NAME_MAX_CHARS = 255
PORT_MAX = 65_535

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


class ServiceEdge:
    """The ASGI application around the API."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._requests_max = service.connection_limit  # with those whose clients have gone
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_health = scope["path"] in HEALTH
        error: HoldfastError | None = self._wrong_host(scope, is_health=is_health)
        if error is None and not is_health:
            error = self._refusal(scope)
        if error is not None:
            await self._refuse(error, scope, receive, send)
        elif is_health:
            await self._app(scope, receive, send)
        else:
            self._under_way += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._under_way -= 1

    def _refusal(self, scope: Scope) -> HoldfastError | None:
        match scope.get(REFUSAL):
            case Refusal.ADDRESS:
                return TooManyConnections()
            case Refusal.PROCESS:
                return Overloaded("the service has reached its limit of open connections")
        return Overloaded() if self._under_way >= self._requests_max else None

    def _wrong_host(self, scope: Scope, *, is_health: bool) -> WrongHost | None:
        """Return what is wrong with the Host header. Health checks name an address, or in HTTP/1.0
        none."""
        try:
            name = host_of(scope["headers"])
            if name is None:
                is_old = is_health and scope["http_version"] == "1.0"
                return None if is_old else WrongHost("the request has no Host header")
            target = scope.get(TARGET)
            if target is not None and name_of(target) != name:
                return WrongHost("the Host header is not the host of the request's target")
        except WrongHost as error:
            return error
        if is_health or is_allowed(name, self._service.settings.hosts):
            return None
        return WrongHost("the Host header names a host that is not served here")

    async def _refuse(
        self, error: HoldfastError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        response = problems.problem(error, Request(scope))
        response.raw_headers.extend([*HEADERS, (b"connection", b"close")])
        if isinstance(error, WrongHost):
            host = scope["client"][0] if scope["client"] else ""
            self._service.lines.say(logging.WARNING, "a request from %s: %s", host, error, of=host)
        self._service.metrics.http(scope["method"], NO_ROUTE, response.status_code, 0.0)
        await response(scope, receive, send)


# -- connections


class Refusal(StrEnum):
    """The reason why a connection has no place of its own."""

    ADDRESS = "address"  # its address has as many as it may have
    PROCESS = "process"  # the process has


GAVE_WAY = "gave-way"  # an older one was closed instead
REASONS = (*Refusal, GAVE_WAY)


class ConnectionPlace:
    """The place of one connection, from its first moment to its last."""

    __slots__ = ("_owner", "address", "hang_up", "is_dropped", "refusal")

    def __init__(self, owner: _Places, address: str | None, refusal: Refusal | None) -> None:
        self.address = address  # None: not counted
        self.refusal = refusal  # None: it is served with everything
        self.hang_up: Callable[[], None] | None = None  # set when there is a transport
        self.is_dropped = False
        self._owner: _Places | None = owner

    def begin(self) -> None:
        """Note that a request is under way."""
        if self._owner is not None:
            self._owner.idle.pop(self, None)

    def rest(self) -> None:
        """Note that no request is under way."""
        if self._owner is not None:
            self._owner.idle[self] = None

    def leave(self) -> None:
        """Give the place back; done once, however often it is called."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.release(self)

    def drop(self) -> None:
        self.is_dropped = True
        self.leave()
        if self.hang_up is not None:
            self.hang_up()


class _Places:
    """A bounded number of places."""

    def __init__(self, limit: int, on_release: Callable[[ConnectionPlace], None]) -> None:
        self.limit = limit
        self.taken = 0
        self.idle: OrderedDict[ConnectionPlace, None] = (
            OrderedDict()
        )  # the longest without a request first
        self._on_release = on_release

    def take(self, address: str | None, refusal: Refusal | None = None) -> ConnectionPlace:
        place = ConnectionPlace(self, address, refusal)
        self.taken += 1
        self.idle[place] = None
        return place

    def release(self, place: ConnectionPlace) -> None:
        self.taken -= 1
        self.idle.pop(place, None)
        self._on_release(place)

    def make_room(self) -> bool:
        """Drop the place that has been without a request for longest, if there is one."""
        if not self.idle:
            return False
        next(iter(self.idle)).drop()
        return True


class Connections:
    """The connections of one process."""

    def __init__(
        self,
        *,
        limit: int,
        of_address: int,
        exempt: Sequence[str] = (),
        on_refused: Callable[[str, str], None],
    ) -> None:
        """Allow ``limit`` connections in all and ``of_address`` of one address; those from the
        networks in ``exempt`` count for no address. ``on_refused`` is called with the reason and
        the address of each connection that is refused, or for which an older one was closed."""
        self.limit = limit
        self._of_address = of_address
        self._exempt = [ipaddress.ip_network(one, strict=False) for one in exempt]
        self._on_refused = on_refused
        self._by_address = Counter[str]()
        self._places = _Places(limit, self._forget)
        self._reserved = {refusal: _Places(RESERVED_MAX, lambda _: None) for refusal in Refusal}

    @property
    def taken(self) -> int:
        return self._places.taken + sum(places.taken for places in self._reserved.values())

    def take(self, host: str) -> ConnectionPlace | None:
        """Give a new connection its place; None: it is refused."""
        address = self._count_key(host)
        if address is not None and self._by_address[address] >= self._of_address:
            return self._reserve(Refusal.ADDRESS, host)
        if self._places.taken >= self._places.limit:
            if not self._places.make_room():
                return self._reserve(Refusal.PROCESS, host)
            self._on_refused(GAVE_WAY, host)
        if address is not None:
            self._by_address[address] += 1
        return self._places.take(address)

    def make_room(self) -> None:
        """Drop the connection that has been without a request for longest."""
        self._places.make_room()

    def _reserve(self, refusal: Refusal, host: str) -> ConnectionPlace | None:
        self._on_refused(refusal, host)
        places = self._reserved[refusal]
        if places.taken >= places.limit and not places.make_room():
            return None
        return places.take(None, refusal)

    def _forget(self, place: ConnectionPlace) -> None:
        if place.address is not None:
            self._by_address[place.address] -= 1
            if not self._by_address[place.address]:
                del self._by_address[place.address]

    def _count_key(self, host: str) -> str | None:
        """Return by what an address is counted; None: not at all."""
        found = plain_address(host)
        if any(found in network for network in self._exempt):
            return None
        return counted_address(host)


def plain_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address without its zone; an IPv4 address that is written as IPv6 becomes IPv4."""
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def counted_address(host: str) -> str:
    """Return the address, or the /64 network of an IPv6 address: one customer has all of it."""
    found = plain_address(host)
    if found.version == 6:
        return str(ipaddress.IPv6Network((int(found), 64), strict=False))
    return str(found)


def limit_within_files(wanted: int) -> int:
    """Return how many connections leave half of the files that the process may open to its work."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(CONNECTIONS_MIN, min(wanted, files // 2))


_REFUSED = {
    Refusal.ADDRESS: "only health is answered to a new connection from %s, which has too many",
    Refusal.PROCESS: "only health is answered to a new connection from %s: all are busy here",
    GAVE_WAY: "a connection without a request was closed for a new one from %s: there are too many",
}


def bounded_connections(settings: Settings, metrics: Metrics, lines: LogLines) -> Connections:
    """Return the connections of a process, within the settings and the limit on open files."""
    limit = limit_within_files(settings.connection_limit)
    of_address = settings.address_limit or settings.connection_limit // 4

    def note_refusal(reason: str, host: str) -> None:
        metrics.connection_refused(reason)
        lines.say(logging.WARNING, _REFUSED[reason], host)

    connections = Connections(
        limit=limit,
        of_address=max(1, of_address * limit // settings.connection_limit),
        exempt=settings.trusted_proxies,
        on_refused=note_refusal,
    )
    metrics.count_connections(lambda: connections.taken, REASONS)
    return connections


# -- hosts


def host_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the name in the Host header, in lower case and without its port; None: there is no
    such header."""
    given = [value for name, value in headers if name == b"host"]
    if not given:
        return None
    if len(given) > 1:
        raise WrongHost("the request has more than one Host header")
    return name_of(given[0])


def name_of(authority: bytes) -> str:
    """Return the name in ``name:port``, as hosts are compared."""
    found = _HOST.fullmatch(authority)
    if found is None or len(authority) > NAME_MAX_CHARS or int(found[2] or 0) > PORT_MAX:
        raise WrongHost("the Host header is not well formed: NAME or NAME:PORT")
    name = found[1].decode().lower()
    if name.startswith("["):
        try:
            return str(ipaddress.IPv6Address(name.strip("[]")))
        except ValueError:
            raise WrongHost("the Host header has no proper IPv6 address in it") from None
    return name.removesuffix(".")


def is_allowed(name: str, allowed: Sequence[str]) -> bool:
    """Tell whether a name is in the list; an empty list allows all."""
    return not allowed or any(
        name.endswith(one[1:]) if one.startswith("*.") else name == one for one in allowed
    )
