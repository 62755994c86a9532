"""What a caller may look at: another's is as if it were not there."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import Path

from holdfast.domain.errors import InvalidInput, TaskNotFound
from holdfast.domain.task import Task
from holdfast.ports import Detail, Peek
from holdfast.server.access import Caller, foreign
from holdfast.server.service import Service

TaskId = Annotated[
    str,
    Path(min_length=1, max_length=200, description="Of a task", examples=["0199a0b2c3d47e5f"]),
]


async def visible(service: Service, caller: Caller, task_id: str) -> Task:
    [task] = await service.app.store.load([_sound(task_id)])
    if task is None:
        raise TaskNotFound(task_id)
    if not caller.sees(task.tenant):
        raise foreign(TaskNotFound(task_id))
    return task


async def visible_detail(service: Service, caller: Caller, task_id: str) -> Detail:
    detail = await service.app.store.detail(_sound(task_id))
    if detail is None:
        raise TaskNotFound(task_id)
    if not caller.sees(detail.task.tenant):
        raise foreign(TaskNotFound(task_id))
    return detail


def _sound(task_id: str) -> str:
    """An id that no store could have given out is not looked up."""
    if not task_id.isascii() or not task_id.isprintable():
        raise TaskNotFound(task_id)
    return task_id


async def rested(service: Service, task_id: str, seconds: float) -> Peek | None:
    """Until the task has come to rest; None: not within that time, or the service stops."""
    if seconds <= 0:
        return None
    waiting = asyncio.create_task(service.app.waiters.rested(task_id))
    stop = asyncio.create_task(service.stopping.wait())
    try:
        await asyncio.wait({waiting, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
        stop.cancel()


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
