"""`holdfast audit`: who did what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.app.phrases import span
from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.cli.shapes import audit_shape
from holdfast.cli.show import Row, hint, print_json, print_table
from holdfast.domain.transition import Audit
from holdfast.ports import Store

PAGE = 500
LOOKS = 50  # pages; after so many the cursor says where to go on

OfTask = Annotated[
    str | None,
    typer.Option("--task", metavar="ID", help="About this task, or plan:ID, or trigger:ID."),
]
Cursor = Annotated[int, typer.Option(metavar="N", min=0, help="Go on after a former list.")]


def audit(
    context: typer.Context,
    *,
    task: OfTask = None,
    limit: opt.Limit = 50,
    cursor: Cursor = 0,
    json: opt.Json = False,
) -> None:
    """Who did what, the newest first: done or refused.

    JSON: entries (each: at, actor, origin, reason, command, taskId, before, after, refused),
    cursor (null: the last page). The taskId of a plan is plan:ID, of a trigger trigger:ID.
    """

    async def look(session: Session) -> tuple[Sequence[Audit], int | None, float]:
        return *await entries_from(session.store, cursor, limit, task), session.now

    entries, more, now = run(context, look)
    if json:
        print_json({"entries": [audit_shape(entry) for entry in entries], "cursor": more})
        return
    print_table([_row(entry, now) for entry in entries], keep=3)
    if not entries:
        hint("no such entries here" if task or cursor else "nobody has asked for anything yet")
    if more is not None:
        hint(f"more with --cursor {more}")


async def entries_from(
    store: Store, start: int, limit: int, task_id: str | None
) -> tuple[Sequence[Audit], int | None]:
    """As many as were asked for, and where the next ones begin. A look is bounded."""
    found: list[Audit] = []
    size = PAGE if task_id else limit + 1
    at = start
    for _ in range(LOOKS):
        page = await store.audits(limit=size, cursor=str(at))
        for entry in page:
            if len(found) == limit:
                return found, at
            at += 1
            if task_id in (None, entry.task_id):
                found.append(entry)
        if len(page) < size:
            return found, None
    return found, at


def _row(entry: Audit, now: float) -> Row:
    return {
        "ID": entry.task_id,
        "COMMAND": entry.command,
        "OUTCOME": "refused" if entry.refused else entry.after,
        "AGO": span(now - entry.at),
        "ACTOR": entry.by.actor,
        "WAS": entry.before,
        "REASON": entry.by.reason or "-",
        "REFUSED": entry.refused or "-",
        "FROM": entry.by.origin or "-",
    }
