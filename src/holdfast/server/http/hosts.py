"""The Host header: exactly one, well formed, and one of those that were allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from holdfast.domain.errors import HoldfastError

NAME_MAX_CHARS = 255
PORT_MAX = 65_535

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


class WrongHost(HoldfastError, stored_name="WrongHost"):
    code = "wrong-host"


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
