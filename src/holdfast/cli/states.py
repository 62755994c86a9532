"""`holdfast states`: the state machines, seen."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli.options import WrongUsage
from holdfast.cli.session import Session, run
from holdfast.domain import diagram, layouts
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
        bool, typer.Option("--live", help="With the counts and dwell times of the store: of tasks.")
    ] = False,
) -> None:
    """Draw a state machine from the table that all code obeys."""
    if live and of is not Of.TASKS:
        raise WrongUsage(f"--live: counts and times are kept of tasks, not of {of}")

    async def look(session: Session) -> Stats:
        return await session.store.stats()

    shown = as_live(run(context, look)) if live else None
    print(DRAW[format](PICTURES[of], shown), end="")


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
