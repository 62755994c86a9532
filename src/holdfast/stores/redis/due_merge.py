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

AWAY_SECONDS = 5.0  # a partition that does not answer is asked again so often
ROUNDS = 10  # other processes may take what we have just found

log = logging.getLogger("holdfast.stores.redis.dues")

T = TypeVar("T")


class DueItems(msgspec.Struct, Generic[T], frozen=True):
    """Items that were handed out, or only the times at which they are due."""

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
        looked, missed = await _try_each([find(part, limit) for part in parts], needed=not items)
        shares = _shares(parts, looked, limit - len(items))
        calls = [take(part, number) for part, number in shares.items()]
        taken, missed_then = await _try_each(calls, needed=False)
        items += [item for some in taken if not isinstance(some, StoreError) for item in some.items]
        waits = _waits(parts, looked, dict(zip(shares, taken, strict=True)))
        if missed := missed_then or missed:
            log.warning("part of the store does not answer; what is due there waits: %s", missed)
            waits.append(AWAY_SECONDS)
        if not shares or missed or len(items) >= limit:
            break
    return DueItems(items, min(waits, default=None))


async def _try_each(
    calls: Sequence[Awaitable[DueItems[T]]], *, needed: bool
) -> tuple[list[DueItems[T] | StoreError], StoreError | None]:
    """Await all: one that fails keeps nothing back that others have handed out."""
    try:
        return await try_all(calls)
    except StoreError as error:
        if needed:
            raise
        return [error] * len(calls), error


def _shares(
    parts: Partitions, looked: Sequence[DueItems[Any] | StoreError], limit: int
) -> Counter[Partition]:
    times = (
        (at, number)
        for number, found in enumerate(looked)
        if not isinstance(found, StoreError)
        for at in found.items
    )
    every = list(parts)
    return Counter(every[number] for _, number in nsmallest(limit, times))


def _waits(
    parts: Partitions,
    looked: Sequence[DueItems[Any] | StoreError],
    taken: dict[Partition, DueItems[T] | StoreError],
) -> list[float]:
    """Return the waits; a partition that has handed out knows better than one only looked at."""
    newest = (taken.get(part, found) for part, found in zip(parts, looked, strict=True))
    known = (found.next_seconds for found in newest if not isinstance(found, StoreError))
    return [seconds for seconds in known if seconds is not None]


class Leaf(msgspec.Struct, Generic[T], frozen=True):
    """A part of a page: items by the name that they are sorted by, and where to go on."""

    items: list[tuple[str, T]]
    cursor: str | None


def one_page(
    leaves: Iterable[Leaf[T]], limit: int, *, newest_first: bool
) -> tuple[tuple[T, ...], str | None]:
    """Merge pages into one, which ends where the first of them was not read further."""
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


LOOK_LIMIT = 1000  # records compared for one page, however few of them match
PAGE = 50

Walk = Callable[[str | None, int], Awaitable[list[str]]]  # so many names behind one
Load = Callable[[list[str]], Awaitable[list[T | None]]]


async def leaf(
    walk: Walk, load: Load[T], matches: Callable[[T], bool], limit: int, cursor: str | None
) -> Leaf[T]:
    found: list[tuple[str, T]] = []
    seen, look_limit = 0, max(limit + 1, LOOK_LIMIT)
    while seen < look_limit:
        wanted = min(PAGE, look_limit - seen)
        names = await walk(cursor, wanted)
        for name, item in zip(names, await load(names), strict=True):
            if item is not None and matches(item):
                if len(found) == limit:
                    return Leaf(found, found[-1][0] if found else None)
                found.append((name, item))
        if len(names) < wanted:
            return Leaf(found, None)
        seen, cursor = seen + len(names), names[-1]
    return Leaf(found, cursor)
