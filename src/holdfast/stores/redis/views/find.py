"""Finding tasks by filter: a walk through the narrowest index compares the other conditions.

Pages are in the order of ids, in every index and in every partition, so a cursor is the last id
that was compared, whichever index the next page comes from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter, Page
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import unless_foreign
from holdfast.stores.redis.encoding.record import DEFAULTS, from_iso, loaded_task
from holdfast.stores.redis.partition import BATCH, Partition
from holdfast.stores.redis.partition_pages import LOOK_LIMIT, Leaf, one_page

AT_ONCE = 250  # ids of one step, if few of them match or the page is long
DATED_LIMIT = 50_000  # ids of a time span that are sorted; with more, matches are not rare
ROUNDING_SECONDS = 0.00001  # records hold microseconds, the index the exact time
EVER = float("inf")

_TIMES = ("updatedAt", "createdAt")

# Takes an id and a count, and returns the ids below it, the greatest first.
Walk = Callable[[str | None, int], Awaitable[list[str]]]


async def find(part: Partition, where: Filter, limit: int, cursor: str | None) -> Page:
    look_limit = max(limit + 1, LOOK_LIMIT)
    walk = await _narrowest(part, where, cursor)
    tasks: list[Task] = []
    seen = 0
    while seen < look_limit:
        rare = 2 * len(tasks) < seen
        wanted = max(BATCH, limit + 1 - len(tasks))  # one more tells whether there is a next page
        count = min(AT_ONCE if rare else wanted, AT_ONCE, look_limit - seen)
        ids = await walk(cursor, count)
        likely = await _sift_ids(part, ids, where) if rare else ids
        replies = await part.call_in_batches(scripts.LOAD, likely)
        for task_id, reply in zip(likely, replies, strict=True):
            task = loaded_task(task_id, reply)
            if task is not None and where.matches(task):
                if len(tasks) == limit:
                    return Page(tasks=tuple(tasks), cursor=tasks[-1].id)
                tasks.append(task)
        if len(ids) < count:
            return Page(tasks=tuple(tasks), cursor=None)
        seen, cursor = seen + len(ids), ids[-1]
    return Page(tasks=tuple(tasks), cursor=cursor)


async def _sift_ids(part: Partition, ids: Sequence[str], where: Filter) -> list[str]:
    """Return the ids whose filtered fields may match: reading whole records costs much more."""
    right = _right_values(where)
    fields = (*right, *_TIMES) if _is_spanned(where) else tuple(right)
    commands = [("HMGET", part.keys("task", task_id), *fields) for task_id in ids]
    replies = await part.client.many(part.keys, commands)
    values = list(right.values())
    return [
        task_id
        for task_id, reply in zip(ids, replies, strict=True)
        if isinstance(reply, Exception)  # loading it logs that it cannot be read
        or (
            all(value in matching for value, matching in zip(reply, values, strict=False))
            and _may_be_in_time(reply[len(values) :], where)
        )
    ]


def _right_values(where: Filter) -> dict[str, set[bytes | None]]:
    """Return the values that match, for each field that the filter names."""
    wanted = {
        "type": where.type,
        "tenantId": where.tenant,
        "planId": where.plan,
        "queue": where.queue,
        "error": where.error,
    }
    right = {name: {_bytes(value)} for name, value in wanted.items() if value is not None}
    if where.queue == DEFAULTS["queue"]:
        right["queue"].add(None)  # left out of the record
    if where.statuses or not right:
        right["status"] = set(map(_bytes, _statuses(where)))
    return right


def _bytes(text: str) -> bytes | None:
    return text.encode(errors="replace")


def _may_be_in_time(texts: Sequence[bytes | None], where: Filter) -> bool:
    text = next((text for text in texts if text), None)  # of its last change, else of its submit
    if text is None:
        return True
    try:
        at = from_iso(text.decode())
    except ValueError:
        return True
    after, before = _bounds(where)
    return after < at < before


async def _narrowest(part: Partition, where: Filter, cursor: str | None) -> Walk:
    ways = _ways(part, where)
    size, names = min([(await _size(part, names), names) for names in ways])
    if _is_spanned(where) and SUSPENDED.issuperset(_statuses(where)):
        dated = await _count_dated(part, where)
        if dated < size and dated <= DATED_LIMIT:
            return await _by_time(part, where, cursor)
    return _by_id(part, names)


def _ways(part: Partition, where: Filter) -> list[list[str]]:
    """Return sets of indexes, each of which has all tasks that can match."""
    ways = [[part.keys("by_status", status) for status in _statuses(where)]]
    narrow = {"by_error": where.error, "by_plan": where.plan, "by_tenant": where.tenant}
    return ways + [[part.keys(kind, of)] for kind, of in narrow.items() if of is not None]


def _statuses(where: Filter) -> tuple[Status, ...]:
    return tuple(dict.fromkeys(where.statuses or Status))


async def _size(part: Partition, names: Sequence[str]) -> int:
    replies = await part.client.many(part.keys, [("ZCARD", name) for name in names])
    return sum(int(unless_foreign(reply)) for reply in replies)


def _by_id(part: Partition, names: Sequence[str]) -> Walk:
    async def walk(below: str | None, count: int) -> list[str]:
        start = "+" if below is None else f"({below}"
        pages = await part.call(scripts.NEWEST_IDS, start, count, *names)
        ids = {task_id for page in pages for task_id in page}
        return [task_id.decode() for task_id in sorted(ids, reverse=True)[:count]]

    return walk


# -- suspended tasks have an index by time


def _is_spanned(where: Filter) -> bool:
    return where.updated_after is not None or where.updated_before is not None


def _bounds(where: Filter) -> tuple[float, float]:
    after = -EVER if where.updated_after is None else where.updated_after
    before = EVER if where.updated_before is None else where.updated_before
    return after - ROUNDING_SECONDS, before + ROUNDING_SECONDS


def _span(where: Filter) -> tuple[str, str]:
    after, before = _bounds(where)
    return repr(after), repr(before)


async def _count_dated(part: Partition, where: Filter) -> int:
    command = ("ZCOUNT", part.keys("suspended"), *_span(where))
    [reply] = await part.client.many(part.keys, [command])
    return int(unless_foreign(reply))


async def _by_time(part: Partition, where: Filter, cursor: str | None) -> Walk:
    limit = ("LIMIT", 0, DATED_LIMIT)
    command = ("ZRANGEBYSCORE", part.keys("suspended"), *_span(where), *limit)
    [reply] = await part.client.many(part.keys, [command])
    ids = sorted((task_id.decode() for task_id in unless_foreign(reply)), reverse=True)
    remaining = (task_id for task_id in ids if cursor is None or task_id < cursor)

    async def walk(below: str | None, count: int) -> list[str]:
        del below  # the iterator keeps its position
        return list(islice(remaining, count))

    return walk


# -- several partitions


def merge_pages(pages: Sequence[Page], limit: int) -> Page:
    leaves = (Leaf([(task.id, task) for task in page.tasks], page.cursor) for page in pages)
    tasks, end = one_page(leaves, limit, newest_first=True)
    return Page(tasks=tasks, cursor=end)
