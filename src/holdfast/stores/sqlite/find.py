"""Finding tasks by filter: the narrowest index is walked, the rest is compared on the way."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Any

from holdfast.domain.task import Task
from holdfast.ports import Filter, Page
from holdfast.stores.sqlite.readers import Look
from holdfast.stores.sqlite.reads import readable

LOOK_LIMIT = 1000  # records compared for one page, however few of them match
TOP = "\U0010ffff"  # behind every id


def find(look: Look, where: Filter, limit: int, cursor: str | None) -> Page:
    exact = _by_index_alone(where)
    seen_limit = limit + 1 if exact else max(limit + 1, LOOK_LIMIT)
    found: list[Task] = []
    seen, last = 0, ""
    for task_id, record, until in islice(_newest(look, where, cursor, seen_limit), seen_limit):
        task = readable(task_id, record, until)
        if task is not None and where.matches(task):
            if len(found) == limit:
                return Page(tasks=tuple(found), cursor=found[-1].id)
            found.append(task)
        seen, last = seen + 1, task_id
    return Page(tasks=tuple(found), cursor=last if seen == seen_limit else None)


def _newest(look: Look, where: Filter, cursor: str | None, limit: int) -> Iterator[Any]:
    before = cursor or TOP
    for name, value in (
        ("find_error", where.error),
        ("find_plan", where.plan),
        ("find_tenant", where.tenant),
    ):
        if value is not None:
            return iter(look.rows(name, value, before, limit))
    if where.statuses:
        by_status = [
            look.rows("find_status", status, before, limit)
            for status in dict.fromkeys(where.statuses)
        ]
        return merge(*by_status, key=lambda row: str(row[0]), reverse=True)
    for name, value in (("find_type", where.type), ("find_queue", where.queue)):
        if value is not None:
            return iter(look.rows(name, value, before, limit))
    return iter(look.rows("find_any", before, limit))


def _by_index_alone(where: Filter) -> bool:
    """One condition or none: every record of the index's range matches."""
    conditions = (
        where.error,
        where.plan,
        where.tenant,
        where.statuses or None,
        where.type,
        where.queue,
        where.updated_before,
        where.updated_after,
    )
    given = [condition for condition in conditions if condition is not None]
    dated = where.updated_before is not None or where.updated_after is not None
    return len(given) <= 1 and not dated
