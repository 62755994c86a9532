"""`holdfast states`: the state machines, seen."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.options import WrongUsage
from holdfast.cli.session import Session, run
from holdfast.domain import diagram
from holdfast.insight import diagrams
from holdfast.insight.diagrams import Format, Of


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

    async def look(session: Session) -> diagram.LiveCounts[Any]:
        return await diagrams.live(of, session.store, now=session.now)

    print(diagrams.drawn(of, format, run(context, look) if live else None), end="")
