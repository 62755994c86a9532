"""A task, live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Annotated, TypeVar

from fastapi import Header, Query
from fastapi.responses import StreamingResponse

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.task import events as ev
from holdfast.domain.task.task import Progress
from holdfast.engine.visibility import Sight
from holdfast.insight.views.tasks import event_view, progress_view
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http import sse
from holdfast.server.http.routing import Routes, needs
from holdfast.server.http.sse import Position
from holdfast.server.live.task_reads import TaskId, visible
from holdfast.server.openapi.schemas import Absent, EventId
from holdfast.server.service import Service, ServiceOf

router = Routes("tasks")

LastEventId = Annotated[EventId | Absent, Header(description="Of the last event that was read")]
After = Annotated[EventId | Absent, Query(description="As Last-Event-ID")]

_needs = needs(Role.VIEWER, 404)


@router.get(
    "/api/tasks/{task_id}/events",
    response_class=StreamingResponse,
    **_needs | {"responses": _needs["responses"] | sse.DOCUMENTED},
)
async def task_events(
    task_id: TaskId,
    service: ServiceOf,
    caller: CallerOf,
    last_event_id: LastEventId = None,
    after: After = None,
) -> StreamingResponse:
    """Every event from the first, or from behind `Last-Event-ID`, then each new one; `progress` in
    between, without an id. Ends with `end` when the task has settled."""
    await visible(service, caller, task_id)
    begin = sse.position(last_event_id or after)
    return service.long_requests.stream(caller, _told(service, task_id, begin, caller.sight))


async def _told(service: Service, task_id: str, at: Position, sight: Sight) -> AsyncIterator[bytes]:
    hide = service.app.redactor
    async with aclosing(service.feeds.tasks.watch(task_id)) as looks:
        said: Progress | None = None
        seen: int | None = None  # the version at the last look
        async for detail in looks:
            if detail is None:
                yield sse.event("end", {"taskId": task_id, "status": None})
                return
            seen = service.feeds.note_lag(detail.task, seen)
            for place, event in numbered(sight.detail(detail).events):
                if place > at:
                    at = place
                    yield sse.event(ev.name_of(event), event_view(event, hide), at)
            if detail.progress is not None and _is_news(detail.progress, said):
                said = detail.progress
                yield sse.event("progress", progress_view(said, hide))
            if detail.task.settled and detail.task.version <= at.version:
                yield sse.event("end", {"taskId": task_id, "status": detail.task.status})
                return


E = TypeVar("E", ev.Event, PlanEvent)


def numbered(events: Iterable[E]) -> Iterator[tuple[Position, E]]:
    """Each with its place: its version, and its number among the events of that."""
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
