"""Messages go to public addresses over https, and to addresses that an operator allows.

A URL is parsed here and nowhere else. ``Allowed.target`` returns the parts that the poster connects
to, so no second parser can see another host in the same text. Whatever two parsers could read
differently (user info, backslashes, ``0x7f.1``) is refused, not repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from holdfast.domain.errors import InvalidInput, UrlRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_CHARS_MAX = 2000
HOST_CHARS_MAX = 253
DEFAULT_PORTS = {"https": 443, "http": 80}

_PRINTABLE = re.compile(r"[!-~]+")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?(?P<target>[/?].*)?",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[1-9][0-9]{0,4}))?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# IANA's registries of special addresses, written down: ``is_global`` differs between Pythons.
_NOT_PUBLIC_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
        "192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 "
        "192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
    ).split()
)
_GLOBAL_V6 = IPv6Network("2000::/3")  # outside it: loopback, link-local, private, multicast, …
_NOT_PUBLIC_V6 = tuple(
    IPv6Network(text)
    for text in "2001::/23 2001:db8::/32 2620:4f:8000::/48 3fff::/20".split()  # first: Teredo, too
)
_SIX_TO_FOUR = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")
_LOOPBACKS: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Target(msgspec.Struct, frozen=True, gc=False):
    """A parsed URL. ``host`` is in small letters, without brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        """Return the value of the ``host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """Return the URL without path and query, because both may contain secrets."""
        return f"{self.scheme}://{self.authority}"

    @property
    def literal(self) -> Address | None:
        return _literal(self.host)


class Allowed:
    """The addresses that ``HOLDFAST_WEBHOOK_ALLOW`` and ``HOLDFAST_CALLBACK_ALLOW`` allow beyond
    https to public addresses.

    A host, with or without a port, may be called over plain http and wherever its name leads. A
    network allows its addresses; plain http then only for URLs that contain such an address,
    because otherwise the name server would decide where an unprotected message goes.
    """

    def __init__(
        self,
        hosts: Iterable[tuple[str, int | None]] = (),
        networks: Iterable[Network] = (),
        setting: str = "",
    ) -> None:
        self._hosts = frozenset(hosts)
        self._networks = tuple(networks)
        self._where = f" in {setting}" if setting else ""

    @classmethod
    def parse(cls, words: str | Iterable[str], setting: str = "") -> Allowed:
        """Parse words such as ``host``, ``host:port``, ``[v6]:port`` or a network, ``10.1.0.0/16``.

        ``setting`` names the setting that they come from, for error messages.
        """
        listed = words.split(",") if isinstance(words, str) else words
        cleaned = [word.strip() for word in listed if word.strip()]
        networks = [_network_word(word) for word in cleaned if "/" in word]
        return cls([_host_word(word) for word in cleaned if "/" not in word], networks, setting)

    def check_url(self, url: str) -> str:
        """Return the URL unchanged if it may be stored for later. No name server is asked."""
        self.target(url)
        return url

    def target(self, url: str) -> Target:
        target = _read(url)
        if self._host_allowed(target):
            return target
        literal = target.literal
        if target.scheme == "http" and not (literal and self._in_networks(literal)):
            needed = f"https is needed, unless the host is allowed{self._where}"
            raise UrlRefused(f"{target.shown}: {needed}")
        if literal is not None:
            self.check_addresses(target, [literal])
        elif _is_localhost(target.host) and not any(map(self._in_networks, _LOOPBACKS)):
            raise UrlRefused(f"{target.shown} is this machine, which is not allowed{self._where}")
        return target

    def check_addresses(self, target: Target, addresses: Iterable[Address]) -> None:
        """Refuse the target if one of its addresses is not allowed: no honest name mixes them."""
        if self._host_allowed(target):
            return
        if not all(is_public(each) or self._in_networks(each) for each in addresses):
            # Without the address: whoever gave the URL is not told what our name server knows.
            where = f"leads to an address that is not public and not allowed{self._where}"
            raise UrlRefused(f"{target.shown} {where}")

    def _host_allowed(self, target: Target) -> bool:
        return not self._hosts.isdisjoint({(target.host, None), (target.host, target.port)})

    def _in_networks(self, address: Address) -> bool:
        plain = unmap(address)
        return any(plain in network for network in self._networks)


def is_public(address: Address) -> bool:
    address = unmap(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address in _SIX_TO_FOUR:
        return is_public(IPv4Address(address.packed[2:6]))
    if address in _NAT64:
        return is_public(IPv4Address(address.packed[12:]))
    return address in _GLOBAL_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def unmap(address: Address) -> Address:
    """Return 10.0.0.1 for ``::ffff:10.0.0.1``, because the system connects to that."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _read(url: str) -> Target:
    if len(url) > URL_CHARS_MAX:
        raise UrlRefused(f"the URL has {len(url)} characters, the limit is {URL_CHARS_MAX}")
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise UrlRefused(
            "the URL contains a blank, a backslash or characters beyond printable ASCII"
        )
    if "#" in url:
        raise UrlRefused("the URL contains a fragment (#…), which is never sent")
    found = _URL.fullmatch(url)
    if not found:
        raise UrlRefused(_why_unreadable(url))
    host = _host(found["host"])
    if host is None:
        raise UrlRefused("the URL's host is neither a DNS name nor an address in its usual form")
    scheme = found["scheme"].lower()
    port = int(found["port"] or DEFAULT_PORTS[scheme])
    if port > 65535:
        raise UrlRefused("the URL's port is above 65535")
    path = found["target"] or "/"
    return Target(scheme, host, port, path if path.startswith("/") else f"/{path}")


def _why_unreadable(url: str) -> str:
    """Say what is wrong without quoting the URL: an unreadable URL cannot be shortened safely."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in DEFAULT_PORTS:
        return "the URL does not begin with https://"
    if "@" in re.split("[/?]", rest, maxsplit=1)[0]:
        return "the URL contains user info (…@): credentials do not belong there"
    return "the URL's host or port cannot be read"


def _host(text: str) -> str | None:
    """Return the host in normal form; None if it is neither a DNS name nor an address in its usual
    form.
    """
    host = text.lower()
    if host.startswith("["):
        literal = _literal(host[1:-1])
        return str(literal) if isinstance(literal, IPv6Address) else None
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # systems read 2130706433, 0177.1 and 0x7f.1 as addresses
        return host if _literal(host) else None
    fits = len(host) <= HOST_CHARS_MAX and all(map(_LABEL.fullmatch, labels))
    return host if fits else None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _host_word(word: str) -> tuple[str, int | None]:
    found = _WORD.fullmatch(word)
    host = _host(found["host"]) if found else None
    port = int(found["port"]) if found and found["port"] else None
    if host is None or (port or 0) > 65535:
        raise InvalidInput(f"{word!r} is not a host, host:port, [v6 address]:port or network")
    return host, port


def _network_word(word: str) -> Network:
    try:
        return ip_network(word)
    except ValueError:
        raise InvalidInput(f"{word!r} is not a network such as 10.1.0.0/16") from None
