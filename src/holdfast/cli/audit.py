"""`holdfast audit`: who did what."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from holdfast.app.phrases import span
from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.cli.shapes import audit_shape
from holdfast.cli.show import Row, hint, print_json, print_table
from holdfast.domain.transition import Audit


def audit(context: typer.Context, limit: opt.Limit = 50, json: opt.Json = False) -> None:
    """Who did what, the newest first: done or refused.

    JSON: entries (each: at, actor, origin, reason, command, taskId, before, after, refused).
    """

    async def look(session: Session) -> tuple[Sequence[Audit], float]:
        return await session.store.audits(limit=limit), session.now

    entries, now = run(context, look)
    if json:
        print_json({"entries": [audit_shape(entry) for entry in entries]})
        return
    print_table([_row(entry, now) for entry in entries], keep=3)
    if not entries:
        hint("nobody has asked for anything yet")


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
