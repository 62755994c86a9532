"""Checks that the namespace in the server is ours, and that its format is known.

No namespace may begin with the name of another: ``prod:executor`` lies below ``prod``, and a walk
through the keys of ``prod`` would find those of the other, too.
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
    """Refuse a namespace of another program; create a missing store unless it ``must_exist``."""
    await _check_parents(parts.first.client, namespace)
    for part in parts:
        await _make_one_ours(part, parts, namespace, must_exist=must_exist)


async def _make_one_ours(
    part: Partition, parts: Partitions, namespace: str, *, must_exist: bool
) -> None:
    partitions = len(parts)
    keys, where = part.keys, f"{part.keys.prefix} on {part.client.address.shown}"
    meta = keys("meta")
    read_meta = ("HMGET", meta, "format", "partitions")
    (stored,) = await part.client.many(keys, [read_meta])
    if must_exist and set(unless_foreign(stored)) == {None}:
        if await _has_remains(part):
            raise StoreUnavailable(f"{where}: {EMPTIED}")
        raise StoreUnavailable(
            f"no store at {where}: nothing of it is there. Either the store was emptied "
            "(FLUSHALL, a restart without its data), or it is another one: "
            "name one with --store, HOLDFAST_STORE and HOLDFAST_NAMESPACE"
        )
    if set(unless_foreign(stored)) == {None} and await _has_remains(part):
        await part.note_emptied()
        (stored,) = await part.client.many(keys, [read_meta])
    if None in unless_foreign(
        stored
    ):  # written only if it is missing: a full server refuses writes
        if part is parts.first:
            await _check_children(part.client, namespace)
        writes = [("HSETNX", meta, "format", FORMAT), ("HSETNX", meta, "partitions", partitions)]
        *_, stored = await part.client.many(keys, [*writes, read_meta])
    format_, stored_partitions = (_number(text) for text in unless_foreign(stored))
    if format_ is None or stored_partitions is None:
        raise StoreForeign(
            f"{where} has {meta} of another program: rename it, or set HOLDFAST_NAMESPACE"
        )
    if format_ > FORMAT:
        raise StoreTooNew(
            f"{where} has format {format_}, this Holdfast knows up to {FORMAT}: upgrade Holdfast"
        )
    if stored_partitions != partitions:
        raise StoreForeign(
            f"{where} was made with {stored_partitions} partitions, not {partitions}: "
            f"add ?partitions={stored_partitions} to the URL, or choose another namespace"
        )


async def _has_remains(part: Partition) -> bool:
    """Return whether there are keys of a store, apart from the key meta."""
    names = [part.keys(kind) for kind in TYPES]
    (count,) = await part.client.many(part.keys, [("EXISTS", *names)])
    return bool(count)


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# -- other namespaces


async def _check_parents(client: RedisClient, namespace: str) -> None:
    """Refuse a namespace that lies below an existing one."""
    for parent in names.parents(namespace):
        if await _is_there(client, parent):
            raise _refusal(client, namespace, parent)


async def _check_children(client: RedisClient, namespace: str) -> None:
    """Refuse a namespace below which others lie.

    This reads all keys of the server, so it is done only when a namespace is created.
    """
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
    """Return whether a store of that name exists; no, if an ACL hides its keys."""
    [first, *_] = prefixes(namespace, 1, clustered=client.address.clustered)
    keys = KeyNames(first)
    try:
        [stored] = await client.many(keys, [("HMGET", keys("meta"), "format", "partitions")])
    except StoreUnusable:
        return False
    return isinstance(stored, list) and all(text is not None and text.isdigit() for text in stored)


def _refusal(client: RedisClient, namespace: str, neighbour: str) -> StoreForeign:
    return StoreForeign(
        f"namespace {namespace!r} cannot be beside {neighbour!r} on {client.address.shown}: "
        "the keys of the shorter one would begin as those of the longer; "
        "choose another HOLDFAST_NAMESPACE"
    )
