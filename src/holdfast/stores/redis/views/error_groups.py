"""Suspended tasks grouped by the fingerprints of their failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.ports import ErrorGroup
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, pairs_of, unless_foreign
from holdfast.stores.redis.encoding.record import readable
from holdfast.stores.redis.partition import Partition, Partitions, gather_all

CAUSES_MAX = 10_000  # of one partition, the most frequent; a program has far fewer


async def errors(parts: Partitions, limit: int) -> list[ErrorGroup]:
    """The counts of all partitions tell which are the most frequent; only these are looked at."""
    counts: Counter[str] = Counter()
    for some in await gather_all(_counts(part) for part in parts):
        counts.update(some)
    ranked = sorted(counts, key=lambda cause: (-counts[cause], cause))[: max(0, limit)]
    found = await gather_all(_groups(part, ranked) for part in parts)
    merged = [_merge_groups([group for group in of if group]) for of in zip(*found, strict=True)]
    groups = [group for group in merged if group is not None]
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint))


async def _counts(part: Partition) -> Counter[str]:
    most = ("ZREVRANGE", part.keys("errors"), 0, CAUSES_MAX - 1, "WITHSCORES")
    (reply,) = await part.client.many(part.keys, [most])
    return Counter({cause.decode(): int(n) for cause, n in pairs_of(unless_foreign(reply))})


async def _groups(part: Partition, causes: Sequence[str]) -> list[ErrorGroup | None]:
    answers = await part.call_in_batches(scripts.ERROR_GROUPS, causes)
    return [_group(cause, found) for cause, found in zip(causes, answers, strict=True)]


def _group(cause: str, found: Sequence[Any] | None) -> ErrorGroup | None:
    if found is None:
        return None
    reply = by_name(found)
    newest = readable(reply["id"].decode(), reply)
    return ErrorGroup(fingerprint=cause, count=reply["count"], newest=newest) if newest else None


def _merge_groups(groups: Sequence[ErrorGroup]) -> ErrorGroup | None:
    if not groups:
        return None
    return ErrorGroup(
        fingerprint=groups[0].fingerprint,
        count=sum(group.count for group in groups),
        newest=max((group.newest for group in groups), key=lambda task: task.id),
    )
