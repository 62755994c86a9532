"""The view part of the Redis store: reads are spread over the partitions."""

from __future__ import annotations

from collections.abc import Sequence

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
from holdfast.stores.redis.partition import Partition, Partitions, gather_all, nowhere
from holdfast.stores.redis.views import counts, error_groups, find, reads


class RedisViews:
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._parts.spread(ids, self._parts.of_task, reads.load, lambda _: None)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._parts.spread(ids, self._parts.of_task, reads.peek, lambda _: None)

    async def detail(self, task_id: str) -> Detail | None:
        part = self._parts.of_task(task_id)
        return await reads.detail(part, task_id) if part else None

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        part = self._parts.of_task(task_id)
        return await reads.checkpoint(part, task_id) if part else None

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        parts = [self._parts.of_tenant(where.tenant)] if where.tenant else [*self._parts]
        pages = await gather_all(find.find(part, where, limit, cursor) for part in parts)
        return find.merge_pages(pages, limit)

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        async def ask(part: Partition, some: list[str]) -> list[TenantView]:
            return await reads.tenants(part, some, line_limit)

        return await self._parts.spread(names, self._parts.of_tenant, ask, nowhere)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        return await reads.workers(self._parts.first, live_within_seconds)

    async def stats(self) -> Stats:
        return counts.merge_stats(await gather_all(counts.stats(part) for part in self._parts))

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await error_groups.errors(self._parts, limit)
