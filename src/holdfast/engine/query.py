"""Queries by tenant, for people on call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain import names
from holdfast.domain.errors import PlanNotFound, SerialisationError, TaskNotFound
from holdfast.domain.task.task import Progress, Task
from holdfast.engine.handle import Info, info_of
from holdfast.engine.operations import transitions
from holdfast.engine.operations.control import Control, StoreSlot
from holdfast.engine.operations.transitions import TransitionPage, Window
from holdfast.engine.plans.handle import PlanInfo, info
from holdfast.ports import Filter, TenantView


class TenantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The active task of a tenant, and how many tasks wait behind it."""

    tenant: str
    task: Info | None  # the tenant's active task
    has_checkpoint: bool
    waiting: int


class Query:
    """The queries of an app by tenant, and the transitions of tasks."""

    def __init__(self, slot: StoreSlot, control: Control, now: Callable[[], float]) -> None:
        self._slot = slot
        self._control = control
        self._now = now

    async def query_task_status_by_tenant(self, tenant: str) -> TenantStatus:
        """Return the active task of a tenant, and how many tasks wait."""
        [status] = await self.query_task_status_by_tenants([tenant])
        return status

    async def query_task_status_by_tenants(self, tenants: Sequence[str]) -> list[TenantStatus]:
        """Return the same for several tenants, in their order."""
        store = self._slot.require()
        views = await store.views.tenants([names.normalise(tenant) for tenant in tenants])
        tasks = await store.views.load([view.active for view in views if view.active])
        active = {task.id: task for task in tasks if task is not None}
        statuses = (self._status(view, active.get(view.active or "")) for view in views)
        return await asyncio.gather(*statuses)

    async def _status(self, view: TenantView, task: Task | None) -> TenantStatus:
        return TenantStatus(
            tenant=view.tenant,
            task=info_of(task, await self._progress(task)) if task else None,
            has_checkpoint=task is not None and await self._checkpoint_is_there(task),
            waiting=view.waiting,
        )

    async def _progress(self, task: Task) -> Progress | None:
        """Return the progress of a task that runs; any other has none."""
        detail = await self._slot.require().views.detail(task.id) if task.lease else None
        return detail.progress if detail else None

    async def _checkpoint_is_there(self, task: Task) -> bool:
        """Load the checkpoint itself: the record tells only that there should be one."""
        if task.last_completed < 0:
            return False
        try:
            return await self._slot.require().views.checkpoint(task.id) is not None
        except SerialisationError:
            return True  # a checkpoint that cannot be read exists all the same

    async def query_plan_status(self, plan_id: str) -> PlanInfo:
        """Return the state of a plan."""
        [plan] = await self._slot.require().plans.load([names.normalise(plan_id)])
        if plan is None:
            raise PlanNotFound(plan_id)
        return info(plan, now=self._now())

    async def transitions(
        self,
        where: Filter | None = None,
        *,
        task: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TransitionPage:
        """List the transitions of one task, or of the tasks that match, with who made each.

        ``since`` and ``until`` are seconds since the epoch."""
        store, window = self._slot.require(), Window(since=since, until=until)
        if task is not None:
            return await transitions.of_task(store, task, window, limit=limit, cursor=cursor)
        given = where or Filter()
        return await transitions.page(store, given, window, limit=limit, cursor=cursor)

    async def has_checkpoint(self, tenant: str) -> bool:
        """Return whether the tenant's task has a checkpoint; the checkpoint itself is loaded."""
        return (await self.query_task_status_by_tenant(tenant)).has_checkpoint

    async def retry_task_by_tenant(
        self, tenant: str, *, reason: str = "", from_checkpoint: bool = True, force: bool = False
    ) -> Task:
        """Run the suspended task of a tenant again."""
        [view] = await self._slot.require().views.tenants([names.normalise(tenant)])
        if view.active is None:
            raise TaskNotFound(f"of tenant {tenant}")
        return await self._control.retry(
            view.active, reason=reason, from_checkpoint=from_checkpoint, force=force
        )
