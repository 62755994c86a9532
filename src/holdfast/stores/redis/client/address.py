"""An address says where the servers are; it is parsed from a URL.

The URL may hold secrets, so errors show it without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput, InvalidSetting

FORMS = (
    "redis://[USER:PASSWORD@]HOST[:PORT][/DB], redis+sentinel://HOST[:PORT],…/NAME[/DB] or "
    "redis+cluster://HOST[:PORT],… (rediss… for TLS)"
)
TIMEOUT_SECONDS = 5.0
TIMEOUTS_SECONDS = (0.05, 600.0)
PARTITIONS = 16
PARTITIONS_MAX = 1024

Host = tuple[str, int]


class AddressKind(StrEnum):
    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


SCHEMES = {
    "redis": (AddressKind.SINGLE, False),
    "rediss": (AddressKind.SINGLE, True),
    "redis+sentinel": (AddressKind.SENTINEL, False),
    "rediss+sentinel": (AddressKind.SENTINEL, True),
    "redis+cluster": (AddressKind.CLUSTER, False),
    "rediss+cluster": (AddressKind.CLUSTER, True),
}
PORTS = {AddressKind.SINGLE: 6379, AddressKind.SENTINEL: 26379, AddressKind.CLUSTER: 6379}
NOT_SECRET = {"ca", "cert", "key", "verify", "partitions", "straight", "timeout"}
SECRET = {"sentinel_user", "sentinel_password"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d+))?")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    kind: AddressKind
    hosts: tuple[Host, ...]  # of the server, the Sentinels, or some of the Cluster's nodes
    shown: str  # the URL without secrets
    user: str | None = None
    password: str | None = None
    db: int = 0
    name: str = ""  # of the primary, for Sentinel
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    partitions: int = 1
    timeout_seconds: float = TIMEOUT_SECONDS
    straight: bool = True  # whether what goes well takes the straight path (stores/redis/straight)
    sentinel_user: str | None = None
    sentinel_password: str | None = None

    @property
    def clustered(self) -> bool:
        return self.kind is AddressKind.CLUSTER

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def parse(url: str) -> Address:
    scheme, _, after_scheme = url.partition("://")
    if scheme not in SCHEMES:
        refuse(url, f"write {FORMS}")
    if "#" in after_scheme:
        refuse(url, "write # as %23")
    kind, tls = SCHEMES[scheme]
    body, _, query = after_scheme.partition("?")
    login, _, place = body.rpartition("@")
    hosts, _, path = place.partition("/")
    user, password = _login(url, login)
    name, db = _path(url, kind, path)
    options = _options(url, kind, query, tls=tls)
    places = tuple(_host(url, text, PORTS[kind]) for text in hosts.split(","))
    if kind is AddressKind.SINGLE and len(places) > 1:
        refuse(url, "several hosts need redis+sentinel:// or redis+cluster://")
    return Address(
        kind=kind,
        hosts=places,
        shown=_public_url(scheme, places, path, query),
        user=user,
        password=password,
        db=db,
        name=name,
        tls=tls,
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
        insecure="verify" in options,
        partitions=_partitions(url, options) if kind is AddressKind.CLUSTER else 1,
        timeout_seconds=_timeout(url, options),
        straight="straight" not in options,
        sentinel_user=options.get("sentinel_user"),
        sentinel_password=options.get("sentinel_password"),
    )


def redact_url(url: str) -> str:
    """Return a URL without its secrets, even if it cannot be parsed."""
    scheme, separator, after_scheme = url.partition("://")
    if not separator:
        return url if "@" not in url else "…"
    body, _, query = after_scheme.partition("?")
    if "@" not in body and ("@" in query or "#" in body):  # a password with ? or # in it
        return f"{scheme}://…"
    return f"{scheme}://{body.rpartition('@')[2]}{_shown_query(query)}"


def refuse(url: str, reason: str) -> NoReturn:
    raise InvalidSetting("HOLDFAST_STORE", redact_url(url), reason)


def _public_url(scheme: str, hosts: tuple[Host, ...], path: str, query: str) -> str:
    places = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts
    )
    return f"{scheme}://{places}{'/' if path else ''}{path}{_shown_query(query)}"


def _shown_query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    shown = urlencode([pair for pair in pairs if pair[0] in NOT_SECRET], safe="/", quote_via=quote)
    return f"?{shown}" if shown else ""


def _login(url: str, login: str) -> tuple[str | None, str | None]:
    if not login:
        return None, None
    user, _, password = login.partition(":")
    if not password or "/" in login or "@" in login:
        refuse(url, "before the @ write USER:PASSWORD or :PASSWORD, with / @ : ? # % as %2F %40 …")
    return unquote(user) or None, unquote(password)


def _host(url: str, text: str, default_port: int) -> Host:
    match = _HOST.fullmatch(text)
    if match is None:
        refuse(url, f"{text!r} is not HOST or HOST:PORT" if text else "a host is missing")
    port = int(match[3] or default_port)
    if not 1 <= port <= 65_535:
        refuse(url, f"{port} is not a port: write 1 to 65535")
    return match[1] or match[2], port


def _path(url: str, kind: AddressKind, path: str) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    name = ""
    if kind is AddressKind.CLUSTER and parts:
        refuse(url, "a Cluster has only one database: write nothing after the hosts")
    if kind is AddressKind.SENTINEL:
        if not parts:
            refuse(url, "after the hosts write /NAME, as Sentinel calls the primary")
        name = parts.pop(0)
    if not parts:
        return name, 0
    if len(parts) > 1 or not re.fullmatch(r"[0-9]{1,5}", parts[0]):
        refuse(url, f"{'/'.join(parts)!r} is not the number of a database")
    return name, int(parts[0])


def _options(url: str, kind: AddressKind, query: str, *, tls: bool) -> dict[str, str]:
    known = {"timeout", "straight"}
    known |= {"ca", "cert", "key", "verify"} if tls else set()
    known |= {"sentinel_user", "sentinel_password"} if kind is AddressKind.SENTINEL else set()
    known |= {"partitions"} if kind is AddressKind.CLUSTER else set()
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            named = f"setting {name}" if _may_be_shown(name, query, options) else "such setting"
            refuse(url, f"there is no {named} here; known: {', '.join(sorted(known))}")
        if name in options or not value:
            refuse(url, f"write {name}= once, and a value after it")
        options[name] = value
    if options.get("straight", "off") != "off":
        refuse(url, "straight= is left out, or off")
    for name in ("ca", "cert", "key"):
        if name in options and not Path(options[name]).is_file():
            refuse(url, f"{name}: there is no file {options[name]}")
    if options.get("verify", "insecure") != "insecure":
        refuse(url, "certificates are verified; if nobody can listen in, write verify=insecure")
    if "key" in options and "cert" not in options:
        refuse(url, "key= needs cert= beside it")
    if "sentinel_user" in options and "sentinel_password" not in options:
        refuse(url, "sentinel_user= needs sentinel_password= beside it")
    return options


def _may_be_shown(name: str, query: str, before: Iterable[str]) -> bool:
    """Return whether the name is certainly not part of a password with a ? or & in it."""
    whole = "@" not in query and not SECRET.intersection(before)
    return whole and _NAME.fullmatch(name) is not None


def _partitions(url: str, options: dict[str, str]) -> int:
    text = options.get("partitions", str(PARTITIONS))
    number = int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
    if not 1 <= number <= PARTITIONS_MAX:
        refuse(url, f"partitions= is a number from 1 to {PARTITIONS_MAX}")
    return number


def _timeout(url: str, options: dict[str, str]) -> float:
    least, most = TIMEOUTS_SECONDS
    try:
        timeout_seconds = seconds(options.get("timeout", TIMEOUT_SECONDS))
    except InvalidInput as error:
        refuse(url, f"timeout: {error}")
    if not least <= timeout_seconds <= most:
        refuse(url, f"timeout= is between {least:g}s and {most:g}s")
    return timeout_seconds
