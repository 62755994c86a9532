"""Suspended tasks grouped by the fingerprints of their failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from holdfast.ports import ErrorGroup
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, pairs_of, unless_foreign
from holdfast.stores.redis.encoding.record import readable
from holdfast.stores.redis.partition import Partition, Partitions, gather_all

GROUPS_MAX = 10_000  # of one partition, the most frequent; a program has far fewer


async def errors(parts: Partitions, limit: int) -> list[ErrorGroup]:
    """Return the most frequent groups; the counts of all partitions decide which are read."""
    counts: Counter[str] = Counter()
    for counted in await gather_all(_counts(part) for part in parts):
        counts.update(counted)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))[: max(0, limit)]
    merged: dict[str, ErrorGroup] = {}
    for group in chain.from_iterable(await gather_all(_groups(part, ranked) for part in parts)):
        known = merged.get(group.fingerprint)
        merged[group.fingerprint] = group if known is None else _merge(known, group)
    return sorted(merged.values(), key=lambda group: (-group.count, group.fingerprint))


async def _counts(part: Partition) -> Counter[str]:
    most = ("ZREVRANGE", part.keys("errors"), 0, GROUPS_MAX - 1, "WITHSCORES")
    (reply,) = await part.client.many(part.keys, [most])
    return Counter({name.decode(): int(n) for name, n in pairs_of(unless_foreign(reply))})


async def _groups(part: Partition, names: Sequence[str]) -> list[ErrorGroup]:
    answers = await part.call_in_batches(scripts.ERROR_GROUPS, names)
    pairs = zip(names, answers, strict=True)
    replies = [(name, by_name(answer)) for name, answer in pairs if answer is not None]
    return [
        ErrorGroup(fingerprint=name, count=reply["count"], newest=newest)
        for name, reply in replies
        if (newest := readable(reply["id"].decode(), reply)) is not None
    ]


def _merge(known: ErrorGroup, more: ErrorGroup) -> ErrorGroup:
    newest = max(known.newest, more.newest, key=lambda task: task.id)
    return replace(known, count=known.count + more.count, newest=newest)
