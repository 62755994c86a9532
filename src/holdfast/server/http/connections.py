"""Connections are bounded for the process and for each address, with room for health checks.

At the bound of the process, the connection that has had no request under way for longest gives way
to a new one. Where none gives way, and at the bound of an address, a few reserved places are left.
In those only health is answered, and the oldest one without a request gives way.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from enum import StrEnum

CONNECTIONS_MIN = 16
RESERVED_MAX = 16  # places of each reserve


class Refusal(StrEnum):
    """Why a connection has no place of its own."""

    ADDRESS = "address"  # its address has as many as it may have
    PROCESS = "process"  # the process has


GAVE_WAY = "gave-way"  # an older one was closed instead
REASONS = (*Refusal, GAVE_WAY)


class Place:
    """What one connection has, from its first moment to its last."""

    __slots__ = ("_owner", "address", "hang_up", "is_dropped", "refusal")

    def __init__(self, owner: _Places, address: str | None, refusal: Refusal | None) -> None:
        self.address = address  # None: not counted
        self.refusal = refusal  # None: it is served with everything
        self.hang_up: Callable[[], None] | None = None  # set when there is a transport
        self.is_dropped = False
        self._owner: _Places | None = owner

    def begin(self) -> None:
        """A request is under way."""
        if self._owner is not None:
            self._owner.idle.pop(self, None)

    def rest(self) -> None:
        """No request is under way."""
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

    def __init__(self, limit: int, on_release: Callable[[Place], None]) -> None:
        self.limit = limit
        self.taken = 0
        self.idle: OrderedDict[Place, None] = OrderedDict()  # the longest without a request first
        self._on_release = on_release

    def take(self, address: str | None, refusal: Refusal | None = None) -> Place:
        place = Place(self, address, refusal)
        self.taken += 1
        self.idle[place] = None
        return place

    def release(self, place: Place) -> None:
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
        """``exempt``: networks whose addresses are not counted. ``on_refused``: is told why, and
        from where a connection came that has no place of its own."""
        self._of_address = of_address
        self._exempt = networks(exempt)
        self._on_refused = on_refused
        self._by_address = Counter[str]()
        self._places = _Places(limit, self._forget)
        self._reserved = {refusal: _Places(RESERVED_MAX, lambda _: None) for refusal in Refusal}

    @property
    def taken(self) -> int:
        return self._places.taken + sum(places.taken for places in self._reserved.values())

    def take(self, host: str) -> Place | None:
        """Give a new connection its place; None: it is refused."""
        address = self._counted(host)
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

    def _reserve(self, refusal: Refusal, host: str) -> Place | None:
        self._on_refused(refusal, host)
        places = self._reserved[refusal]
        if places.taken >= places.limit and not places.make_room():
            return None
        return places.take(None, refusal)

    def _forget(self, place: Place) -> None:
        if place.address is not None:
            self._by_address[place.address] -= 1
            if not self._by_address[place.address]:
                del self._by_address[place.address]

    def _counted(self, host: str) -> str | None:
        """Return by what an address is counted; None: not at all."""
        found = plain_address(host)
        if any(found in network for network in self._exempt):
            return None
        return counted_address(host)


def plain_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address without its zone; an IPv4 address that is written as IPv6 counts as IPv4."""
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


def networks(
    written: Sequence[str],
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(one, strict=False) for one in written)


def limit_within_files(wanted: int) -> int:
    """How many connections leave half of the files that the process may open to its work."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(CONNECTIONS_MIN, min(wanted, files // 2))
