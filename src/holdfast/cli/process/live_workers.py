"""Commands warn here when no live worker would carry out what they ask for."""

from __future__ import annotations

from holdfast.cli.session import Session
from holdfast.domain.plan.plan import Plan
from holdfast.insight.why.plan import is_driven


async def no_worker_warning(session: Session) -> str:
    """Return a warning if no worker is alive, otherwise an empty text."""
    if any(worker.live for worker in await session.load_workers()):
        return ""
    return "no worker is alive, so nothing runs yet; start one: holdfast worker APP"


async def undriven_plan_warning(session: Session, plan: Plan | None) -> str:
    """Return the same warning for a plan that needs a worker to proceed."""
    return await no_worker_warning(session) if plan is not None and is_driven(plan) else ""
