"""An overview of tenants, for a person who looks after the system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain import names
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.task import Task
from holdfast.engine.query import TenantStatus
from holdfast.engine.visibility import WHOLE, Sight
from holdfast.insight.views.tasks import task_view
from holdfast.insight.views.tenants import TenantState, hold_view
from holdfast.ports import Filter, SwitchSetting, TenantView

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

LINE_SHOWN = 10


class TenantOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant with its active task, its line and its lock, read once."""

    status: TenantStatus
    lock: TenantView
    active: Task | None
    latest: Task | None  # the newest of all its tasks
    line: tuple[str, ...]
    next: str
    hold: SwitchSetting | None = None
    limited: bool = False  # the reader may not know who holds the tenant and why

    def view(self, hide: Redactor) -> TenantState:
        active = self.status.task
        return {
            "tenantId": self.lock.tenant,
            "active": task_view(self.active, hide) if self.active else None,
            "progress": active.progress if active else None,
            "hasCheckpoint": self.status.has_checkpoint,
            "waiting": self.lock.waiting,
            "line": self.line,
            "lockedBy": self.lock.locked_by,
            "fence": self.lock.fence,
            "latest": task_view(self.latest, hide) if self.latest else None,
            "next": hide.text(self.next),
            "held": None if self.hold is None else hold_view(self.hold, hide, self.limited),
        }


async def overviews(
    app: Holdfast, tenants: Sequence[str], sight: Sight = WHOLE
) -> list[TenantOverview]:
    checked = [names.check("tenant", tenant) for tenant in tenants]
    statuses = await app.query.query_task_status_by_tenants(checked)
    views = await app.store.views.tenants(checked, line_limit=LINE_SHOWN)
    holds = {hold.name: hold for hold in await app.tenants.holds()}
    return [
        await _overview(app, status, view, holds.get(view.tenant), sight)
        for status, view in zip(statuses, views, strict=True)
    ]


async def _overview(
    app: Holdfast, status: TenantStatus, view: TenantView, hold: SwitchSetting | None, sight: Sight
) -> TenantOverview:
    active = (await app.store.views.load([view.active]))[0] if view.active else None
    latest = await app.store.views.find(Filter(tenant=view.tenant), limit=1)
    return TenantOverview(
        status=status,
        lock=view,
        active=sight.task(active) if active else None,
        latest=sight.task(latest.tasks[0]) if latest.tasks else None,
        line=view.line,
        next=await _next(app, active, latest.tasks[0] if latest.tasks else None, sight),
        hold=hold,
        limited=sight.limited,
    )


async def _next(app: Holdfast, active: Task | None, latest: Task | None, sight: Sight) -> str:
    if active is not None:
        return await app.why(active.id, sight=sight)
    if latest is None:
        return "No task of this tenant is known."
    return f"Nothing runs or waits; its latest task, {latest.id}, is {latest.status}."
