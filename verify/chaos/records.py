"""All records of a store, read page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from holdfast import Status
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task.task import Task
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Filter, Store

PAGE = 500


class CursorPage(Protocol):
    @property
    def cursor(self) -> str | None: ...


P = TypeVar("P", bound=CursorPage)
R = TypeVar("R")


async def all_tasks(store: Store, *statuses: Status) -> list[Task]:
    """Load the tasks that have one of these statuses, or all tasks."""
    wanted = Filter(statuses=statuses)
    return await _read_pages(
        lambda cursor: store.views.find(wanted, limit=PAGE, cursor=cursor), lambda page: page.tasks
    )


async def all_plans(store: Store) -> list[Plan]:
    return await _read_pages(
        lambda cursor: store.plans.find(limit=PAGE, cursor=cursor), lambda page: page.plans
    )


async def all_triggers(store: Store) -> list[Trigger]:
    return await _read_pages(
        lambda cursor: store.triggers.find_all(limit=PAGE, cursor=cursor),
        lambda page: page.triggers,
    )


async def all_plan_events(store: Store, plan_id: str) -> list[PlanEvent]:
    events: list[PlanEvent] = []
    while True:
        after = events[-1].version if events else 0
        page = await store.plans.events(plan_id, limit=PAGE, after_version=after)
        if not page:
            return events
        events += page


async def _read_pages(
    load: Callable[[str | None], Awaitable[P]], records_of: Callable[[P], Sequence[R]]
) -> list[R]:
    records: list[R] = []
    cursor: str | None = None
    while True:
        page = await load(cursor)
        records += records_of(page)
        cursor = page.cursor
        if cursor is None:
            return records
