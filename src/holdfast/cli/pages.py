"""Commands read long lists page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.domain.task.task import Task
from holdfast.ports import Filter, Store

T = TypeVar("T")
Cursor = str | None

PAGES_MAX = 50  # a page may come back short; after so many the cursor says where to continue
PAGE = 500


async def fill_page(
    find: Callable[[int, Cursor], Awaitable[tuple[Sequence[T], Cursor]]], limit: int, cursor: Cursor
) -> tuple[list[T], Cursor]:
    """Return ``limit`` records, if there are as many, and the cursor of the next page."""
    records: list[T] = []
    for _ in range(PAGES_MAX):
        page, cursor = await find(limit - len(records), cursor)
        records += page
        if cursor is None or len(records) >= limit:
            break
    return records, cursor


async def matching_tasks(store: Store, where: Filter) -> AsyncIterator[Task]:
    """Yield all tasks that match, the newest first."""
    cursor = None
    while True:
        page = await store.views.find(where, limit=PAGE, cursor=cursor)
        for task in page.tasks:
            yield task
        if (cursor := page.cursor) is None:
            return
