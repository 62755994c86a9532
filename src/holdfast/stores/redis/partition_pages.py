"""Due triggers and plans of several partitions: each hands out a share, and pages are merged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.domain.errors import StoreError
from holdfast.stores.redis.partition import Partition, Partitions, try_all

AWAY_SECONDS = 5.0  # the pause before a partition that did not answer is asked again
ROUNDS = 10  # other processes may claim what we have just found

log = logging.getLogger("holdfast.stores.redis.dues")

T = TypeVar("T")


class DueItems(msgspec.Struct, Generic[T], frozen=True):
    """Items that were handed out, or the times at which items are due."""

    items: list[T]
    next_seconds: float | None


def seconds_of(wait: bytes) -> float | None:
    return float(wait) if wait else None


FindDue = Callable[[Partition, int], Awaitable[DueItems[Any]]]
Take = Callable[[Partition, int], Awaitable[DueItems[T]]]


async def hand_out(parts: Partitions, limit: int, find: FindDue, take: Take[T]) -> DueItems[T]:
    """Hand out the earliest of all partitions; one that does not answer stops no other."""
    if len(parts) == 1:
        return await take(parts.first, limit)
    items: list[T] = []
    waits: list[float] = []
    for _ in range(ROUNDS):
        due, missed = await _try_each([find(part, limit) for part in parts], needed=not items)
        shares = _shares(parts, due, limit - len(items))
        calls = [take(part, number) for part, number in shares.items()]
        handed_out, missed_then = await _try_each(calls, needed=False)
        items += [
            item
            for share in handed_out
            if not isinstance(share, StoreError)
            for item in share.items
        ]
        waits = _waits(parts, due, dict(zip(shares, handed_out, strict=True)))
        if missed := missed_then or missed:
            log.warning("part of the store does not answer; what is due there waits: %s", missed)
            waits.append(AWAY_SECONDS)
        if not shares or missed or len(items) >= limit:
            break
    return DueItems(items, min(waits, default=None))


async def _try_each(
    calls: Sequence[Awaitable[DueItems[T]]], *, needed: bool
) -> tuple[list[DueItems[T] | StoreError], StoreError | None]:
    """Await all calls; one that fails does not lose what the others have handed out."""
    try:
        return await try_all(calls)
    except StoreError as error:
        if needed:
            raise
        return [error] * len(calls), error


def _shares(
    parts: Partitions, due: Sequence[DueItems[Any] | StoreError], limit: int
) -> Counter[Partition]:
    times = (
        (at, number)
        for number, items_due in enumerate(due)
        if not isinstance(items_due, StoreError)
        for at in items_due.items
    )
    every = list(parts)
    return Counter(every[number] for _, number in nsmallest(limit, times))


def _waits(
    parts: Partitions,
    due: Sequence[DueItems[Any] | StoreError],
    handed_out: dict[Partition, DueItems[T] | StoreError],
) -> list[float]:
    """Return the waits; where a partition handed out items, its answer is the newer one."""
    newest = (handed_out.get(part, items_due) for part, items_due in zip(parts, due, strict=True))
    known = (
        items_due.next_seconds for items_due in newest if not isinstance(items_due, StoreError)
    )
    return [seconds for seconds in known if seconds is not None]


class Leaf(msgspec.Struct, Generic[T], frozen=True):
    """A part of a page: items with the names that sort them, and the cursor of the next."""

    items: list[tuple[str, T]]
    cursor: str | None


def one_page(
    leaves: Iterable[Leaf[T]], limit: int, *, newest_first: bool
) -> tuple[tuple[T, ...], str | None]:
    """Merge pages into one, which ends at the first cursor of the pages that have more."""
    pages = list(leaves)
    ends = [page.cursor for page in pages if page.cursor is not None]
    end = (max if newest_first else min)(ends, default=None)
    within = [
        item
        for page in pages
        for item in page.items
        if end is None or (item[0] >= end if newest_first else item[0] <= end)
    ]
    within.sort(key=lambda item: item[0], reverse=newest_first)
    if len(within) > limit:
        end = within[limit - 1][0]
    return tuple(item for _, item in within[:limit]), end


LOOK_LIMIT = 1000  # records compared for one page, even if few of them match
PAGE = 50

Walk = Callable[[str | None, int], Awaitable[list[str]]]  # name, count → the names that follow
Load = Callable[[list[str]], Awaitable[list[T | None]]]


async def leaf(
    walk: Walk, load: Load[T], matches: Callable[[T], bool], limit: int, cursor: str | None
) -> Leaf[T]:
    matching: list[tuple[str, T]] = []
    seen, look_limit = 0, max(limit + 1, LOOK_LIMIT)
    while seen < look_limit:
        wanted = min(PAGE, look_limit - seen)
        names = await walk(cursor, wanted)
        for name, item in zip(names, await load(names), strict=True):
            if item is not None and matches(item):
                if len(matching) == limit:
                    return Leaf(matching, matching[-1][0] if matching else None)
                matching.append((name, item))
        if len(names) < wanted:
            return Leaf(matching, None)
        seen, cursor = seen + len(names), names[-1]
    return Leaf(matching, cursor)
