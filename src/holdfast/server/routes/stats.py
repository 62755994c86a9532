"""How many tasks are where, and the latest of them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from holdfast.domain.task.envelope import ENVELOPE_STATUS
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.insight.tenant_overview import holds_shape
from holdfast.insight.views import tasks
from holdfast.ports import Filter
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.routes.tenants import HoldView
from holdfast.server.service import ServiceOf

router = Routes("stats")


class MoveView(sc.Answer):
    before: Status = Field(alias="from")
    after: Status = Field(alias="to")
    count: int
    mean_dwell_seconds: float


class StatsView(sc.Answer):
    counts: dict[str, int] = Field(
        examples=[{"pending": 3, "processing": 1, "retry": 0, "suspended": 0, "completed": 9}]
    )
    latest: list[sc.TaskView]
    by_status: dict[Status, int]
    by_queue: dict[str, dict[Place, int]]
    transitions: list[MoveView]
    refused: dict[str, int] = Field(description="STATUS and command → how often")
    checkpoints: int = Field(description="Of tasks that have not settled")
    tenant_locks: int
    tenants_held: int
    holds: list[HoldView] = Field(description="The first 100 of them, by the tenants' names")
    live_workers: int
    durable: bool
    degraded: bool


class StatsQuery(sc.Sent):
    latest: int = Field(default=10, ge=0, le=50, description="So many of the newest tasks")


@router.get(
    "/internal/tasks/stats", response_model=StatsView, **needs(Role.VIEWER, everywhere=True)
)
async def stats(query: Annotated[StatsQuery, Query()], service: ServiceOf) -> dict[str, Any]:
    """At most two seconds old, but for the latest tasks."""
    found = await service.monitor.snapshot()
    stats, hide = found.stats, service.app.redactor
    latest = await service.app.store.find(Filter(), limit=query.latest) if query.latest else None
    counts = Counter(dict.fromkeys(ENVELOPE_STATUS.values(), 0))
    for status, count in stats.by_status.items():
        counts[ENVELOPE_STATUS[status]] += count
    return {
        "counts": counts,
        "latest": [tasks.task_shape(task, hide) for task in latest.tasks] if latest else [],
        "byStatus": {status: stats.by_status.get(status, 0) for status in Status},
        "byQueue": {
            queue: {place: places.get(place, 0) for place in Place}
            for queue, places in stats.by_queue.items()
        },
        "transitions": [
            {
                "from": move.before,
                "to": move.after,
                "count": move.count,
                "meanDwellSeconds": move.dwell_seconds / move.count if move.count else 0.0,
            }
            for move in stats.transitions
        ],
        "refused": stats.refused,
        "checkpoints": stats.checkpoints,
        "tenantLocks": stats.locks,
        "liveWorkers": len(found.live),
        "durable": found.durable,
        "degraded": found.degraded,
        **holds_shape(found.thrown, hide),
    }
