"""Questions that a person asks by tenant, after a restart or in the night."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.app.control import Control
from holdfast.app.handle import Info, info
from holdfast.domain.errors import TaskNotFound
from holdfast.domain.task import Task
from holdfast.ports import Store


class TenantStatus(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    task: Info | None  # the tenant's active task
    has_checkpoint: bool
    waiting: int


class Query:
    def __init__(self, store: Callable[[], Store], control: Control) -> None:
        self._store = store
        self._control = control

    async def query_task_status_by_tenant(self, tenant: str) -> TenantStatus:
        [status] = await self.query_task_status_by_tenants([tenant])
        return status

    async def query_task_status_by_tenants(self, tenants: Sequence[str]) -> list[TenantStatus]:
        store = self._store()
        found = []
        for view in await store.tenants(tenants):
            detail = await store.detail(view.active) if view.active else None
            found.append(
                TenantStatus(
                    tenant=view.tenant,
                    task=info(detail) if detail else None,
                    has_checkpoint=detail is not None and detail.checkpoint is not None,
                    waiting=view.waiting,
                )
            )
        return found

    async def has_checkpoint(self, tenant: str) -> bool:
        """Reads the checkpoint itself, not the record."""
        task_id = await self._active(tenant)
        return task_id is not None and await self._store().checkpoint(task_id) is not None

    async def retry_task_by_tenant(
        self, tenant: str, *, from_checkpoint: bool = True, force: bool = False
    ) -> Task:
        task_id = await self._active(tenant)
        if task_id is None:
            raise TaskNotFound(f"of tenant {tenant}")
        return await self._control.retry(task_id, from_checkpoint=from_checkpoint, force=force)

    async def _active(self, tenant: str) -> str | None:
        [view] = await self._store().tenants([tenant])
        return view.active
