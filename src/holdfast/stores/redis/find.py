"""Finding tasks by filter: the narrowest index is walked, the rest is compared on the way.

Pages are in the order of ids, in every index and in every partition, so a cursor is the last id
that was looked at, wherever the next page is taken from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from holdfast.domain.state import SUSPENDED, Status
from holdfast.domain.task import Task
from holdfast.ports import Filter, Page
from holdfast.stores.redis import scripts
from holdfast.stores.redis.partition import BATCH, Partition
from holdfast.stores.redis.reads import load, unless_foreign

LOOK_LIMIT = 1000  # records compared for one page, however few of them match
DATED_LIMIT = 50_000  # ids of a span of time put in order; with more, matches are not rare
ROUNDING_SECONDS = 0.00001  # records tell the time in microseconds, the index as it came
EVER = float("inf")

Walk = Callable[[str | None, int], Awaitable[list[str]]]  # so many ids below one, greatest first


async def find(part: Partition, where: Filter, limit: int, cursor: str | None) -> Page:
    look_limit = max(limit + 1, LOOK_LIMIT)
    walk = await _narrowest(part, where, cursor)
    found: list[Task] = []
    seen = 0
    while seen < look_limit:
        asked = min(BATCH, look_limit - seen)
        ids = await walk(cursor, asked)
        for task in await load(part, ids):
            if task is not None and where.matches(task):
                if len(found) == limit:
                    return Page(tasks=tuple(found), cursor=found[-1].id)
                found.append(task)
        if len(ids) < asked:
            return Page(tasks=tuple(found), cursor=None)
        seen, cursor = seen + len(ids), ids[-1]
    return Page(tasks=tuple(found), cursor=cursor)


async def _narrowest(part: Partition, where: Filter, cursor: str | None) -> Walk:
    ways = _ways(part, where)
    size, names = min([(await _size(part, names), names) for names in ways])
    if _is_dated(where):
        dated = await _count_dated(part, where)
        if dated < size and dated <= DATED_LIMIT:
            return await _by_time(part, where, cursor)
    return _by_id(part, names)


def _ways(part: Partition, where: Filter) -> list[list[str]]:
    """Each a set of indexes that together have all that can match."""
    ways = [[part.keys("by_status", status) for status in _statuses(where)]]
    narrow = {"by_error": where.error, "by_plan": where.plan, "by_tenant": where.tenant}
    return ways + [[part.keys(kind, of)] for kind, of in narrow.items() if of is not None]


def _statuses(where: Filter) -> tuple[Status, ...]:
    return tuple(dict.fromkeys(where.statuses or Status))


async def _size(part: Partition, names: Sequence[str]) -> int:
    replies = await part.link.many(part.keys, [("ZCARD", name) for name in names])
    return sum(int(unless_foreign(reply)) for reply in replies)


def _by_id(part: Partition, names: Sequence[str]) -> Walk:
    async def walk(below: str | None, count: int) -> list[str]:
        start = "+" if below is None else f"({below}"
        found = await part.call(scripts.NEWEST, start, count, *names)
        ids = {task_id for some in found for task_id in some}
        return [task_id.decode() for task_id in sorted(ids, reverse=True)[:count]]

    return walk


# -- suspended tasks have an index by time


def _is_dated(where: Filter) -> bool:
    spanned = where.updated_after is not None or where.updated_before is not None
    return spanned and SUSPENDED.issuperset(_statuses(where))


def _span(where: Filter) -> tuple[str, str]:
    after = -EVER if where.updated_after is None else where.updated_after
    before = EVER if where.updated_before is None else where.updated_before
    return repr(after - ROUNDING_SECONDS), repr(before + ROUNDING_SECONDS)


async def _count_dated(part: Partition, where: Filter) -> int:
    command = ("ZCOUNT", part.keys("suspended"), *_span(where))
    [found] = await part.link.many(part.keys, [command])
    return int(unless_foreign(found))


async def _by_time(part: Partition, where: Filter, cursor: str | None) -> Walk:
    limit = ("LIMIT", 0, DATED_LIMIT)
    command = ("ZRANGEBYSCORE", part.keys("suspended"), *_span(where), *limit)
    [found] = await part.link.many(part.keys, [command])
    ids = sorted((task_id.decode() for task_id in unless_foreign(found)), reverse=True)
    rest = (task_id for task_id in ids if cursor is None or task_id < cursor)

    async def walk(below: str | None, count: int) -> list[str]:
        del below  # it goes on where it was
        return list(islice(rest, count))

    return walk


# -- several partitions


def merge_pages(pages: Sequence[Page], limit: int) -> Page:
    """One page of all. Where one of them has not been looked at further, none is shown further."""
    ends = [page.cursor for page in pages if page.cursor is not None]
    end = max(ends, default=None)
    tasks = sorted(
        (task for page in pages for task in page.tasks if end is None or task.id >= end),
        key=lambda task: task.id,
        reverse=True,
    )
    if len(tasks) > limit:
        return Page(tasks=tuple(tasks[:limit]), cursor=tasks[limit - 1].id)
    return Page(tasks=tuple(tasks), cursor=end)
