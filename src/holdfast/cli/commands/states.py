"""`holdfast states` draws the state machines."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.domain import diagram
from holdfast.insight import diagrams
from holdfast.insight.diagrams import Format, Of


def states(
    context: typer.Context,
    of: Annotated[Of, typer.Option(help="Whose states to draw.")] = Of.TASKS,
    format: Annotated[Format, typer.Option(help="The format of the drawing.")] = Format.TEXT,
    live: Annotated[bool, opt.flag("--live", "Add counts and times from the store.")] = False,
) -> None:
    """Draw a state machine from the table that the code uses."""
    if live and of is Of.TRIGGERS:
        raise opt.WrongUsage("--live: the store counts tasks and plans, not triggers")

    async def load(session: Session) -> diagram.LiveCounts[Any]:
        return await diagrams.live(of, session.store, now=session.now)

    print(diagrams.draw(of, format, run(context, load) if live else None), end="")
