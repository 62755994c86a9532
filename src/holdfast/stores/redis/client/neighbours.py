"""Other namespaces on the server whose names of keys begin as ours do, or ours as theirs.

``prod:executor`` lies below ``prod``: whoever walks through the keys of the one meets the other's.
"""

from __future__ import annotations

from holdfast.domain import names
from holdfast.domain.errors import InvalidName, StoreForeign, StoreUnusable
from holdfast.stores.redis.client.client import RedisClient
from holdfast.stores.redis.keys import KeyNames, number_of, prefixes
from holdfast.stores.redis.views.walks import escape_pattern


async def check_parents(client: RedisClient, namespace: str) -> None:
    """Refuse a namespace that lies below one which is there."""
    for parent in names.parents(namespace):
        if await _is_there(client, parent):
            raise _refusal(client, namespace, parent)


async def check_children(client: RedisClient, namespace: str) -> None:
    """Refuse a namespace below which others lie. This looks at all keys of the server, so it is
    for the one time when a namespace is made."""
    before, after = "", ":meta"
    if client.address.clustered:
        before, after = "{", f"-{number_of(0)}}}:meta"
    for name in await client.names(f"{before}{escape_pattern(namespace)}:*{after}"):
        child = name.removeprefix(before).removesuffix(after)
        if _is_namespace(child) and await _is_there(client, child):
            raise _refusal(client, namespace, child)


def _is_namespace(name: str) -> bool:
    try:
        return bool(names.check("namespace", name))
    except InvalidName:
        return False


async def _is_there(client: RedisClient, namespace: str) -> bool:
    """Return whether a store of that name is there; an ACL that hides the name hides its keys."""
    [first, *_] = prefixes(namespace, 1, clustered=client.address.clustered)
    keys = KeyNames(first)
    try:
        [found] = await client.many(keys, [("HMGET", keys("meta"), "format", "partitions")])
    except StoreUnusable:
        return False
    return isinstance(found, list) and all(text is not None and text.isdigit() for text in found)


def _refusal(client: RedisClient, namespace: str, other: str) -> StoreForeign:
    return StoreForeign(
        f"namespace {namespace!r} cannot be beside {other!r} on {client.address.shown}: the keys "
        "of the shorter one would begin as those of the longer; choose another HOLDFAST_NAMESPACE"
    )
