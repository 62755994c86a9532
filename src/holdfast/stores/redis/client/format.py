"""Is this place in the server ours, and of a kind that we know?"""

from __future__ import annotations

from holdfast.domain.errors import StoreForeign, StoreTooNew, StoreUnavailable
from holdfast.stores.redis.client import neighbours
from holdfast.stores.redis.client.client import unless_foreign
from holdfast.stores.redis.keys import TYPES
from holdfast.stores.redis.partition import EMPTIED, FORMAT, Partition, Partitions


async def make_ours(parts: Partitions, namespace: str, *, must_exist: bool) -> None:
    """Refuse what is another's; make what is not there yet, unless somebody only looks."""
    await neighbours.check_parents(parts.first.client, namespace)
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
            await neighbours.check_children(part.client, namespace)
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
