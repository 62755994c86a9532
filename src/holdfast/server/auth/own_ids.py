"""Ids of plans and triggers that a token of some tenants gives: they count among its tenants only.

An id is one for the whole store. If a token of some tenants took it as it is, the refusal of one
that is taken would tell it what others have. So its ids get a suffix made of its tenants, whether
or not anybody has that id: the answer is the same. In a path it may use the id with the suffix, as
answers have it, or the id that it gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from holdfast.domain.errors import InvalidInput
from holdfast.server.auth.access import Caller

SUFFIX_CHARS = 16
ID_MAX_CHARS = 100
TENANTS_TRIED = 20  # a token of more uses its triggers' ids as answers have them


def own_id(given: str, tenants: Iterable[str]) -> str:
    """Return the id under which the store keeps what a token of these tenants names so."""
    if len(given) > (most := ID_MAX_CHARS - SUFFIX_CHARS - 1):
        raise InvalidInput(
            f"an id that a token of some tenants gives has {most} characters at most"
        )
    named = "\n".join(sorted(tenants)).encode()
    return f"{given}.{hashlib.sha256(named).hexdigest()[:SUFFIX_CHARS]}"


def plan_ids(caller: Caller, given: str) -> list[str]:
    """Return what a caller may mean by a plan's id, in the order in which to look."""
    if caller.tenants is None:
        return [given]
    return [given, *_try_own_id(given, caller.tenants)]


def trigger_ids(caller: Caller, given: str) -> list[tuple[str, str | None]]:
    """Return what a caller may mean by a trigger's id, each with the tenant it would be of."""
    found: list[tuple[str, str | None]] = [(given, None)]
    for tenant in sorted(caller.tenants or ())[:TENANTS_TRIED]:
        found += [(own, tenant) for own in _try_own_id(given, [tenant])]
    return found


def _try_own_id(given: str, tenants: Iterable[str]) -> list[str]:
    try:
        return [own_id(given, tenants)]
    except InvalidInput:
        return []  # nobody could have named anything so
