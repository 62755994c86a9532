"""How tenants stand, for a person after a restart or in the night."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.domain import names
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.task import Task
from holdfast.engine.query import TenantStatus
from holdfast.engine.visibility import WHOLE, Sight
from holdfast.insight.views.tasks import at, task_shape
from holdfast.ports import Filter, Switch, TenantView, Thrown

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

LINE_SHOWN = 10
HOLDS_SHOWN = 100  # in statistics; `holdfast tenants holds` has all


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, as far as one look shows."""

    status: TenantStatus
    view: TenantView
    active: Task | None
    latest: Task | None  # the newest of all its tasks
    line: tuple[str, ...]
    next: str
    hold: Thrown | None = None
    limited: bool = False  # who looks may not know who did it and why

    def shape(self, hide: Redactor) -> dict[str, Any]:
        told = self.status.task
        return {
            "tenantId": self.view.tenant,
            "active": task_shape(self.active, hide) if self.active else None,
            "progress": told.progress if told else None,
            "hasCheckpoint": self.status.has_checkpoint,
            "waiting": self.view.waiting,
            "line": self.line,
            "lockedBy": self.view.locked_by,
            "fence": self.view.fence,
            "latest": task_shape(self.latest, hide) if self.latest else None,
            "next": hide.text(self.next),
            "held": None if self.hold is None else hold_shape(self.hold, hide, self.limited),
        }


def hold_shape(hold: Thrown, hide: Redactor, limited: bool = False) -> dict[str, Any]:
    return {
        "tenantId": hold.name,
        "actor": "" if limited else hold.by.actor,
        "origin": "" if limited else hold.by.origin,
        "reason": "" if limited else hide.text(hold.by.reason),
        "at": at(hold.at),
        "until": None if hold.until is None else at(hold.until),
    }


def holds_shape(thrown: Iterable[Thrown], hide: Redactor) -> dict[str, Any]:
    """Return how many tenants are held, and the first of the holds by the tenants' names."""
    holds = sorted((one for one in thrown if one.switch is Switch.HOLD), key=lambda one: one.name)
    shown = [hold_shape(one, hide) for one in holds[:HOLDS_SHOWN]]
    return {"tenantsHeld": len(holds), "holds": shown}


async def standings(app: Holdfast, tenants: Sequence[str], sight: Sight = WHOLE) -> list[Standing]:
    asked = [names.check("tenant", tenant) for tenant in tenants]
    statuses = await app.query.query_task_status_by_tenants(asked)
    views = await app.store.tenants(asked)
    holds = {one.name: one for one in await app.tenants.holds()}
    return [
        await _stand(app, status, view, holds.get(view.tenant), sight)
        for status, view in zip(statuses, views, strict=True)
    ]


async def _stand(
    app: Holdfast, status: TenantStatus, view: TenantView, hold: Thrown | None, sight: Sight
) -> Standing:
    active = (await app.store.load([view.active]))[0] if view.active else None
    latest = await app.store.find(Filter(tenant=view.tenant), limit=1)
    return Standing(
        status=status,
        view=view,
        active=sight.task(active) if active else None,
        latest=sight.task(latest.tasks[0]) if latest.tasks else None,
        line=tuple(await app.store.line(view.tenant, limit=LINE_SHOWN)),
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
