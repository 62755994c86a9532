"""Finding tasks by filter: the narrowest index is walked, and each record is compared.

Pages are in the order of ids. Where several parts of an index match, they are walked side by
side and merged; rows are read as they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter, Page
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.tasks.records import RecordRow, readable, record_row

LOOK_LIMIT = 1000  # records compared for one page, even if few of them match
GROUPS_LIMIT = 200  # parts of an index walked side by side; with more, all tasks are walked
DATED_LIMIT = 50_000  # ids of a time span that are sorted; with more, matches are not rare
TOP = "\U0010ffff"  # greater than every id
EVER = float("inf")

Rows = Iterator[RecordRow]


def find(view: ReadView, where: Filter, limit: int, cursor: str | None) -> Page:
    seen_limit = max(limit + 1, LOOK_LIMIT)
    tasks: list[Task] = []
    seen, last = 0, ""
    for row in islice(newest(view, where, cursor or TOP, seen_limit), seen_limit):
        task = readable(row)
        if task is not None and where.matches(task):
            if len(tasks) == limit:
                return Page(tasks=tuple(tasks), cursor=tasks[-1].id)
            tasks.append(task)
        seen, last = seen + 1, row.position.id
    return Page(tasks=tuple(tasks), cursor=last if seen == seen_limit else None)


def newest(view: ReadView, where: Filter, before: str, limit: int) -> Rows:
    statuses = tuple(dict.fromkeys(where.statuses or Status))
    suspended = SUSPENDED.issuperset(statuses)
    parts: list[tuple[Any, ...]]
    if where.error is not None:
        parts = [("find_error", where.error, status) for status in statuses]
    elif where.tenant is not None and suspended:
        parts = [("find_suspended_tenant", where.tenant, status) for status in statuses]
    elif where.plan is not None:
        parts = [("find_plan", where.plan)]
    elif where.tenant is not None:
        parts = [("find_tenant", where.tenant)]
    elif suspended and _is_narrow(view, where, statuses):
        parts = [("find_suspended", status, *_span(where)) for status in statuses]
    else:
        parts = _groups(view, where, statuses)
    return _merge_pages(map(record_row, view.iterate(*part, before, limit)) for part in parts)


def _merge_pages(parts: Iterable[Rows]) -> Rows:
    """Merge the pages; a running task may come twice, also under the status before its claim."""
    rows = merge(*parts, key=attrgetter("position.id"), reverse=True)
    return (next(same) for _, same in groupby(rows, key=attrgetter("position.id")))


def _groups(view: ReadView, where: Filter, statuses: Iterable[Status]) -> list[tuple[Any, ...]]:
    """Return a query for each status, type and queue that may match."""
    if where.statuses or where.type is not None or where.queue is not None:
        groups = list(islice(_all_groups(view, where, statuses), GROUPS_LIMIT + 1))
        if len(groups) <= GROUPS_LIMIT:
            named = [("find_group", *group) for group in groups if where.queue in (None, group[2])]
            return [*named, ("find_leased",)]
    return [("find_any",)]


def _all_groups(
    view: ReadView, where: Filter, statuses: Iterable[Status]
) -> Iterator[tuple[str, str, str]]:
    """Yield each group, stepping from one to the next past all the tasks between them."""
    for status in statuses:
        group = (str(status), where.type or "", "")
        while (group := view.row("find_next_group", *group, TOP)) is not None:
            if group[0] != status or where.type not in (None, group[1]):
                break
            yield group


def _is_narrow(view: ReadView, where: Filter, statuses: Iterable[Status]) -> bool:
    """Return whether the filter has a span of time with few enough tasks to sort them."""
    return (where.updated_after is not None or where.updated_before is not None) and not any(
        view.row("find_many_suspended", status, *_span(where), DATED_LIMIT) for status in statuses
    )


def _span(where: Filter) -> tuple[float, float]:
    after, before = where.updated_after, where.updated_before
    return (-EVER if after is None else after), (EVER if before is None else before)
