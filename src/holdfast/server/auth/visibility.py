"""What a caller may look at: another's is as if it were not there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Request, Response
from starlette.requests import ClientDisconnect

from holdfast.domain.errors import InvalidInput, TaskNotFound
from holdfast.domain.task.task import Task
from holdfast.insight.views import tasks
from holdfast.ports import Detail, Peek
from holdfast.server.auth.access import Caller, Unauthenticated, foreign
from holdfast.server.live.large_views import size_of
from holdfast.server.service import Service

TaskId = Annotated[
    str,
    Path(min_length=1, max_length=200, description="Of a task", examples=["0199a0b2c3d47e5f"]),
]


async def visible(service: Service, caller: Caller, task_id: str) -> Task:
    [task] = await service.app.store.views.load([_sound(task_id)])
    if task is None:
        raise TaskNotFound(task_id)
    if not caller.sees(task.tenant):
        raise foreign(TaskNotFound(task_id))
    return task


async def visible_detail(service: Service, caller: Caller, task_id: str) -> Detail:
    async with service.large_views.read():
        detail = await service.app.store.views.detail(_sound(task_id))
    if detail is None:
        raise TaskNotFound(task_id)
    if not caller.sees(detail.task.tenant):
        raise foreign(TaskNotFound(task_id))
    return caller.sight.detail(detail)


async def detail_answer(
    service: Service, caller: Caller, detail: Detail
) -> Mapping[str, Any] | Response:
    """Return all that is kept of a task, with its secrets hidden."""
    app = service.app
    now, find = app.clock.now(), app.registry.find
    view = partial(tasks.detail_view, detail, app.redactor, now=now, find=find)
    return await service.large_views.answer(caller, size_of(detail), view)


def _sound(task_id: str) -> str:
    """An id that no store could have given out is not looked up."""
    if not task_id.isascii() or not task_id.isprintable():
        raise TaskNotFound(task_id)
    return task_id


async def rested(
    service: Service, request: Request, task_id: str, seconds: float, revoked: asyncio.Event
) -> Peek | None:
    """Wait until the task has come to rest; None: not within that time, or the service stops.

    The wait ends as well when its client has gone, or ``revoked`` is set."""
    waiting = asyncio.create_task(service.app.waiters.rested(task_id))
    stop = asyncio.create_task(service.stopping.wait())
    leave = asyncio.create_task(_gone(request))
    end = asyncio.create_task(revoked.wait())
    running = {waiting, stop, leave, end}
    try:
        await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            raise Unauthenticated("this token was revoked, or has expired; the task is kept")
        if waiting.done():
            return waiting.result()
        if leave.done():
            raise ClientDisconnect
        return None
    finally:
        for task in running:
            task.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client has hung up. Its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def moment(text: str | None, what: str) -> float | None:
    """A time as ISO 8601 with its zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{what}: {text!r} is no time with a zone, such as 2026-01-31T12:00:00Z")
