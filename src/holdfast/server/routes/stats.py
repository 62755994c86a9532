"""The routes of statistics: how many tasks are where, and the latest of them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import Query
from pydantic import Field

from holdfast.domain.task.envelope import ENVELOPE_STATUS
from holdfast.insight.views.stats import StatsView, counts_view
from holdfast.insight.views.tasks import task_view
from holdfast.insight.views.tenants import hold_count_view
from holdfast.ports import Filter
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("stats")


class StatsQuery(sc.Sent):
    latest: int = Field(default=10, ge=0, le=50, description="The number of newest tasks to show")


@router.get("/internal/tasks/stats", **needs(Role.VIEWER, everywhere=True))
async def stats(query: Annotated[StatsQuery, Query()], service: ServiceOf) -> StatsView:
    """Count the tasks, and list the latest ones. The counts are at most two seconds old."""
    snapshot = await service.monitor.snapshot()
    stats, hide = snapshot.stats, service.app.redactor
    latest = (
        await service.app.store.views.find(Filter(), limit=query.latest) if query.latest else None
    )
    counts = Counter(dict.fromkeys(ENVELOPE_STATUS.values(), 0))
    for status, count in stats.by_status.items():
        counts[ENVELOPE_STATUS[status]] += count
    return {
        "counts": counts,
        "latest": [task_view(task, hide) for task in latest.tasks] if latest else [],
        **counts_view(stats),
        "checkpoints": stats.checkpoints,
        "tenantLocks": stats.locks,
        **hold_count_view(snapshot.switches, hide),
        "liveWorkers": len(snapshot.live),
        "durable": snapshot.durable,
        "degraded": snapshot.degraded,
    }
