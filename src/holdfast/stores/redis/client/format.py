"""Is this place in the server ours, and of a kind that we know?

Other namespaces must not begin as ours does, nor ours as theirs: ``prod:executor`` lies below
``prod``, and whoever walks through the keys of the one meets the other's.
"""

from __future__ import annotations

from holdfast.domain import names
from holdfast.domain.errors import (
    InvalidName,
    StoreForeign,
    StoreTooNew,
    StoreUnavailable,
    StoreUnusable,
)
from holdfast.stores.redis.client.client import RedisClient, unless_foreign
from holdfast.stores.redis.keys import TYPES, KeyNames, number_of, prefixes
from holdfast.stores.redis.partition import EMPTIED, FORMAT, Partition, Partitions
from holdfast.stores.redis.views.walks import escape_pattern


async def make_ours(parts: Partitions, namespace: str, *, must_exist: bool) -> None:
    """Refuse what is another's; make what is not there yet, unless somebody only looks."""
    await _check_parents(parts.first.client, namespace)
    for part in parts:
        await _make_one_ours(part, parts, namespace, must_exist=must_exist)


async def _make_one_ours(
    part: Partition, parts: Partitions, namespace: str, *, must_exist: bool
) -> None:
    partitions = len(parts)
    keys, where = part.keys, f"{part.keys.prefix} on {part.client.address.shown}"
    meta = keys("meta")
    ask = ("HMGET", meta, "format", "partitions")
    (found,) = await part.client.many(keys, [ask])
    if must_exist and set(unless_foreign(found)) == {None}:
        if await _has_remains(part):
            raise StoreUnavailable(f"{where}: {EMPTIED}")
        raise StoreUnavailable(
            f"no store at {where}: nothing of it is there. Either the store was emptied "
            "(FLUSHALL, a restart without its data), or it is another one: "
            "name one with --store, HOLDFAST_STORE and HOLDFAST_NAMESPACE"
        )
    if set(unless_foreign(found)) == {None} and await _has_remains(part):
        await part.note_emptied()
        (found,) = await part.client.many(keys, [ask])
    if None in unless_foreign(found):  # only then: a full server can be worked on, not written to
        if part is parts.first:
            await _check_children(part.client, namespace)
        made = [
            ("HSETNX", meta, "format", FORMAT),
            ("HSETNX", meta, "partitions", partitions),
        ]
        *_, found = await part.client.many(keys, [*made, ask])
    known, divided = (_number(text) for text in unless_foreign(found))
    if known is None or divided is None:
        raise StoreForeign(
            f"{where} has {meta} of another program: rename it, or set HOLDFAST_NAMESPACE"
        )
    if known > FORMAT:
        raise StoreTooNew(
            f"{where} has format {known}, this Holdfast knows up to {FORMAT}: upgrade Holdfast"
        )
    if divided != partitions:
        raise StoreForeign(
            f"{where} was made with {divided} partitions, not {partitions}: "
            f"add ?partitions={divided} to the URL, or choose another namespace"
        )


async def _has_remains(part: Partition) -> bool:
    """Return whether there are keys of a store other than the one that says it is a store."""
    names = [part.keys(kind) for kind in TYPES]
    (found,) = await part.client.many(part.keys, [("EXISTS", *names)])
    return bool(found)


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# -- other namespaces


async def _check_parents(client: RedisClient, namespace: str) -> None:
    """Refuse a namespace that lies below one which is there."""
    for parent in names.parents(namespace):
        if await _is_there(client, parent):
            raise _refusal(client, namespace, parent)


async def _check_children(client: RedisClient, namespace: str) -> None:
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
