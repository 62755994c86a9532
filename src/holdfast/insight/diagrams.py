"""Diagrams of the state machines, with live counts, for the command line and the API."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from typing import Any

from holdfast.domain import diagram, layouts
from holdfast.domain.errors import InvalidInput
from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.task.state import Status
from holdfast.ports import Stats, Store

PLANS_LOOKED_AT, PAGE = 1000, 100


class Format(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class Of(StrEnum):
    TASKS = "tasks"
    PLANS = "plans"
    TRIGGERS = "triggers"


_DRAW = {Format.TEXT: diagram.text, Format.MERMAID: diagram.mermaid, Format.SVG: diagram.svg}
PICTURES: dict[Of, diagram.AnyPicture] = {
    Of.TASKS: layouts.TASKS,
    Of.PLANS: layouts.PLANS,
    Of.TRIGGERS: layouts.TRIGGERS,
}


def draw(of: Of, format: Format, live: diagram.LiveCounts[Any] | None = None) -> str:
    return _DRAW[format](PICTURES[of], live)


async def live(of: Of, store: Store, *, now: float) -> diagram.LiveCounts[Any]:
    if of is Of.TRIGGERS:
        raise InvalidInput("live counts and times are kept of tasks and plans, not of triggers")
    if of is Of.PLANS:
        return await live_plans(store, now=now)
    return as_live(await store.views.stats())


async def live_plans(store: Store, *, now: float) -> diagram.LiveCounts[PlanStatus]:
    """Count the newest plans by status; plans are few, and no store keeps counts of them."""
    since: dict[PlanStatus, list[float]] = defaultdict(list)
    cursor = None
    for _ in range(PLANS_LOOKED_AT // PAGE):
        page = await store.plans.find(limit=PAGE, cursor=cursor)
        for plan in page.plans:
            since[plan.status].append(now - plan.status_since)
        cursor = page.cursor
        if cursor is None:
            break
    return diagram.LiveCounts(
        counts={status: len(ages) for status, ages in since.items()},
        moves={},
        dwell_seconds={status: sum(ages) / len(ages) for status, ages in since.items()},
    )


def as_live(stats: Stats) -> diagram.LiveCounts[Status]:
    left: Counter[Status] = Counter()
    dwelt: dict[Status, float] = {}
    for move in stats.transitions:
        left[move.before] += move.count
        dwelt[move.before] = dwelt.get(move.before, 0.0) + move.dwell_seconds
    return diagram.LiveCounts(
        counts=stats.by_status,
        moves={(move.before, move.after): move.count for move in stats.transitions},
        dwell_seconds={status: dwelt[status] / count for status, count in left.items() if count},
    )
