"""The routes of live events of a task or a plan, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Annotated, TypeVar

import msgspec
from fastapi import Header, Query
from fastapi.responses import StreamingResponse

from holdfast.domain.errors import StoreError
from holdfast.domain.plan.events import PlanEvent, name_of
from holdfast.domain.task import events as ev
from holdfast.domain.task.task import Progress
from holdfast.engine.plans.handle import info
from holdfast.engine.visibility import Sight
from holdfast.insight.views.plans import plan_view
from holdfast.insight.views.tasks import event_view, progress_view
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http import sse
from holdfast.server.http.route import Routes, needs
from holdfast.server.http.sse import Position
from holdfast.server.live import live_feed
from holdfast.server.live.task_reads import TaskId, visible
from holdfast.server.openapi.schemas import Absent, EventId
from holdfast.server.routes.plans import PlanInPath, visible_plan
from holdfast.server.service import Service, ServiceOf

router = Routes("tasks")
plan_router = Routes("plans")

EVENTS_AT_ONCE = 1000

LastEventId = Annotated[
    EventId | Absent, Header(description="The id of the last event that was read")
]
After = Annotated[EventId | Absent, Query(description="The same as Last-Event-ID")]

_needs = needs(Role.VIEWER, 404, also=sse.DOCUMENTED)


@router.get("/api/tasks/{task_id}/events", response_class=StreamingResponse, **_needs)
async def task_events(
    task_id: TaskId,
    service: ServiceOf,
    caller: CallerOf,
    last_event_id: LastEventId = None,
    after: After = None,
) -> StreamingResponse:
    """Stream the events of a task. The stream begins with the first event, or with the one after
    `Last-Event-ID`, and continues with each new one. `progress` comes in between, without an id.
    The stream ends with `end` when the task has settled."""
    await visible(service, caller, task_id)
    begin = sse.position(last_event_id or after)
    return service.long_requests.stream(caller, _task_stream(service, task_id, begin, caller.sight))


async def _task_stream(
    service: Service, task_id: str, at: Position, sight: Sight
) -> AsyncIterator[bytes]:
    hide = service.app.redactor
    async with aclosing(service.feeds.tasks.watch(task_id)) as versions:
        shown: Progress | None = None
        seen: int | None = None  # the version that was seen last
        async for detail in versions:
            if detail is None:
                yield sse.event("end", {"taskId": task_id, "status": None})
                return
            seen = service.feeds.note_lag(detail.task, seen)
            for place, event in number_events(sight.detail(detail).events):
                if place > at:
                    at = place
                    yield sse.event(ev.name_of(event), event_view(event, hide), at)
            if detail.progress is not None and _is_news(detail.progress, shown):
                shown = detail.progress
                yield sse.event("progress", progress_view(shown, hide))
            if detail.task.settled and detail.task.version <= at.version:
                yield sse.event("end", {"taskId": task_id, "status": detail.task.status})
                return


E = TypeVar("E", ev.Event, PlanEvent)


def number_events(events: Iterable[E]) -> Iterator[tuple[Position, E]]:
    """Yield each event with its position: its version, and its number among the events of that
    version."""
    before, index = 0, 0
    for event in events:
        index = index + 1 if event.version == before else 1
        before = event.version
        yield Position(before, index), event


def _is_news(now: Progress, before: Progress | None) -> bool:
    return before is None or (now.at, now.fraction, now.message) != (
        before.at,
        before.fraction,
        before.message,
    )


# -- plans


@plan_router.get("/api/plans/{plan_id}/events", response_class=StreamingResponse, **_needs)
async def plan_events(
    plan_id: PlanInPath,
    service: ServiceOf,
    caller: CallerOf,
    last_event_id: LastEventId = None,
    after: After = None,
) -> StreamingResponse:
    """Stream the events of a plan. The stream begins with the first event, or with the one after
    `Last-Event-ID`, and continues with each new one. `progress` comes in between. The stream ends
    with `end` when the plan has settled."""
    plan = await visible_plan(service, caller, plan_id)
    begin = sse.position(last_event_id or after)
    return service.long_requests.stream(caller, _plan_stream(service, plan.id, begin, caller.sight))


async def _plan_stream(
    service: Service, plan_id: str, at: Position, sight: Sight
) -> AsyncIterator[bytes]:
    hide, seen = service.app.redactor, None
    async with aclosing(service.feeds.plans.watch(plan_id)) as versions:
        async for plan in versions:
            if plan is None:
                yield sse.event("end", {"planId": plan_id, "status": None})
                return
            seen = service.feeds.note_lag(plan, seen)
            for place, event in number_events(await _events_after(service, plan_id, at)):
                if place > at:
                    at = place
                    name = name_of(event)
                    yield sse.event(name, event_view(sight.event(event), hide), at)
            progress = plan_view(info(plan, now=service.app.clock.now()), hide)
            yield sse.event("progress", msgspec.to_builtins(progress))
            if plan.settled and plan.version <= at.version:
                yield sse.event("end", {"planId": plan_id, "status": plan.status})
                return


async def _events_after(service: Service, plan_id: str, at: Position) -> list[PlanEvent]:
    """Return the events after a position; an outage of the store is waited out."""
    while True:
        try:
            return await _load_events(service, plan_id, at)
        except StoreError:
            await asyncio.sleep(live_feed.POLL_SECONDS)  # the watcher says so in the log


async def _load_events(service: Service, plan_id: str, at: Position) -> list[PlanEvent]:
    events, after = list[PlanEvent](), max(0, at.version - 1)
    while True:
        page = await service.app.store.plans.events(
            plan_id, limit=EVENTS_AT_ONCE, after_version=after
        )
        events += page
        if not page or len(events) >= 100 * EVENTS_AT_ONCE:
            return events
        after = page[-1].version
