"""The view part of the SQLite store: reads go to the readers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.task import Task
from holdfast.ports import (
    Detail,
    ErrorGroup,
    Filter,
    Page,
    Peek,
    Stats,
    TenantView,
    WorkerInfo,
)
from holdfast.stores.sqlite.file.opened import Door
from holdfast.stores.sqlite.views import find, measures, reads


class SqliteViews:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._door().readers.do(partial(reads.load, ids=ids))

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._door().readers.do(partial(reads.peek, ids=ids))

    async def detail(self, task_id: str) -> Detail | None:
        return await self._door().readers.do(partial(reads.detail, task_id=task_id))

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        return await self._door().readers.do(partial(reads.checkpoint, task_id=task_id))

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._door().readers.do(
            partial(find.find, where=where, limit=limit, cursor=cursor)
        )

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        read = partial(reads.tenants, names=names, line_limit=line_limit)
        return await self._door().readers.do(read)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        now = self._door().clock.now()
        read = partial(reads.workers, now=now, live_within_seconds=live_within_seconds)
        return await self._door().readers.do(read)

    async def stats(self) -> Stats:
        clock = self._door().clock
        return await self._door().readers.do(partial(measures.stats, clock=clock))

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await self._door().readers.do(partial(measures.errors, limit=limit))
