"""`holdfast states`: the state machines, seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli.options import WrongUsage
from holdfast.cli.session import Session, run
from holdfast.domain import diagram, layouts
from holdfast.domain.plan import PlanStatus
from holdfast.domain.state import Status
from holdfast.ports import Stats


class Format(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class Of(StrEnum):
    TASKS = "tasks"
    PLANS = "plans"
    TRIGGERS = "triggers"


PLANS_LOOKED_AT, PAGE = 1000, 100

DRAW = {Format.TEXT: diagram.text, Format.MERMAID: diagram.mermaid, Format.SVG: diagram.svg}
PICTURES: dict[Of, diagram.AnyPicture] = {
    Of.TASKS: layouts.TASKS,
    Of.PLANS: layouts.PLANS,
    Of.TRIGGERS: layouts.TRIGGERS,
}


def states(
    context: typer.Context,
    of: Annotated[Of, typer.Option(help="Whose states.")] = Of.TASKS,
    format: Annotated[Format, typer.Option(help="How to draw them.")] = Format.TEXT,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="With the store's counts and dwell times; of plans, for how long they are there.",
        ),
    ] = False,
) -> None:
    """Draw a state machine from the table that all code obeys."""
    if live and of is Of.TRIGGERS:
        raise WrongUsage("--live: counts and times are kept of tasks and plans, not of triggers")

    async def look(session: Session) -> diagram.Live[Any]:
        if of is Of.PLANS:
            return await live_plans(session)
        return as_live(await session.store.stats())

    shown = run(context, look) if live else None
    print(DRAW[format](PICTURES[of], shown), end="")


async def live_plans(session: Session) -> diagram.Live[PlanStatus]:
    """Of the newest: plans are few, and nobody keeps counts of them."""
    since: dict[PlanStatus, list[float]] = defaultdict(list)
    cursor, now = None, session.now
    for _ in range(PLANS_LOOKED_AT // PAGE):
        page = await session.store.plans.find_all(limit=PAGE, cursor=cursor)
        for plan in page.plans:
            since[plan.status].append(now - plan.status_since)
        cursor = page.cursor
        if cursor is None:
            break
    return diagram.Live(
        counts={status: len(ages) for status, ages in since.items()},
        moves={},
        dwell_seconds={status: sum(ages) / len(ages) for status, ages in since.items()},
    )


def as_live(stats: Stats) -> diagram.Live[Status]:
    left: Counter[Status] = Counter()
    dwelt: dict[Status, float] = {}
    for move in stats.moves:
        left[move.before] += move.count
        dwelt[move.before] = dwelt.get(move.before, 0.0) + move.dwell_seconds
    return diagram.Live(
        counts=stats.by_status,
        moves={(move.before, move.after): move.count for move in stats.moves},
        dwell_seconds={status: dwelt[status] / count for status, count in left.items() if count},
    )
