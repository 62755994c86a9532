"""Is anybody there who would do it?"""

from __future__ import annotations

from holdfast.cli.session import Session
from holdfast.domain.plan.plan import Plan
from holdfast.insight.why.plan import is_driven
from holdfast.ports import LIVE_LEASES


async def no_worker_warning(session: Session) -> str:
    """Return what to say when no worker lives."""
    within = LIVE_LEASES * session.settings.lease
    workers = await session.store.views.workers(live_within_seconds=within)
    if any(worker.live for worker in workers):
        return ""
    return "no worker is alive: nobody runs it yet. Start one: holdfast worker APP"


async def undriven_plan_warning(session: Session, plan: Plan | None) -> str:
    """The same of a plan that would go on by itself."""
    return await no_worker_warning(session) if plan is not None and is_driven(plan) else ""
