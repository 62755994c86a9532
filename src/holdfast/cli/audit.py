"""`holdfast audit`: who did what, and whether that was changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast.app import auditing
from holdfast.app.auditing import Verdict, anchor_from
from holdfast.app.phrases import count, span
from holdfast.cli import hiding
from holdfast.cli import options as opt
from holdfast.cli.exits import Exit
from holdfast.cli.session import Session, run
from holdfast.cli.shapes import audit_shape
from holdfast.cli.show import Row, hint, print_fields, print_json, print_table, say
from holdfast.domain.audit import Audit

OfTask = Annotated[
    str | None,
    typer.Option("--task", metavar="ID", help="About this task, or plan:ID, or trigger:ID."),
]
Cursor = Annotated[int, typer.Option(metavar="N", min=0, help="Go on after a former list.")]
Head = Annotated[
    str | None,
    typer.Option(metavar="SEQ:HASH", help="A head noted before: is it still in the chain?"),
]

audit = typer.Typer()


@audit.callback(invoke_without_command=True)
def listed(
    context: typer.Context,
    *,
    task: OfTask = None,
    limit: opt.Limit = 50,
    cursor: Cursor = 0,
    json: opt.Json = False,
) -> None:
    """Who did what, the newest first: done or refused. "verify" says if it was changed since.

    JSON: entries (each: at, actor, origin, reason, command, taskId, before, after, refused),
    cursor (null: the last page). The taskId of a plan is plan:ID, of a trigger trigger:ID.
    """
    if context.invoked_subcommand is not None:
        return

    async def look(session: Session) -> tuple[Sequence[Audit], int | None, float]:
        return *await auditing.entries_from(session.store, cursor, limit, task), session.now

    entries, more, now = run(context, look)
    if json:
        print_json({"entries": [audit_shape(entry) for entry in entries], "cursor": more})
        return
    print_table([_row(entry, now) for entry in entries], keep=3)
    if not entries:
        hint("no such entries here" if task or cursor else "nobody has asked for anything yet")
    if more is not None:
        hint(f"more with --cursor {more}")


def _row(entry: Audit, now: float) -> Row:
    return {
        "ID": entry.task_id,
        "COMMAND": entry.command,
        "OUTCOME": "refused" if entry.refused else entry.after,
        "AGO": span(now - entry.at),
        "ACTOR": entry.by.actor,
        "WAS": entry.before,
        "REASON": hiding.text(entry.by.reason or "-"),
        "REFUSED": entry.refused or "-",
        "FROM": entry.by.origin or "-",
    }


@audit.command()
def verify(context: typer.Context, *, head: Head = None, json: opt.Json = False) -> int:
    """Walk the chain of all entries. Exit code 1: one was changed, put in, moved or removed.

    Who can write to the store can write the whole chain anew. Note the head elsewhere now and
    then: with --head that is found, too, as is an end that was cut off.

    JSON: holds, links, head, base (what the oldest link that is kept hangs on), loose (not in the
    chain yet), broken (null, or: seq, says).
    """
    noted = anchor_from(head) if head is not None else None

    async def walk(session: Session) -> Verdict:
        return await auditing.verify(session.store, noted=noted)

    verdict = run(context, walk)
    if json:
        print_json(_verdict_shape(verdict))
    else:
        _tell(verdict)
    return Exit.FAILED if verdict.broken else Exit.OK


def _tell(verdict: Verdict) -> None:
    if verdict.broken is None:
        say(f"the chain holds: {count(verdict.links, 'link')}", style="green")
    else:
        say(f"BROKEN at number {verdict.broken.seq}: {verdict.broken.says}", style="bold red")
    print_fields(
        {
            "head": auditing.written(verdict.head),
            "base": auditing.written(verdict.base) if verdict.base.seq else None,
            "loose": f"{verdict.loose} not in the chain yet" if verdict.loose else None,
        }
    )
    if verdict.broken is None:
        hint("note the head elsewhere: --head compares a later chain with it")


def _verdict_shape(verdict: Verdict) -> dict[str, Any]:
    broken = verdict.broken
    return {
        "holds": broken is None,
        "links": verdict.links,
        "head": auditing.written(verdict.head),
        "base": auditing.written(verdict.base),
        "loose": verdict.loose,
        "broken": {"seq": broken.seq, "says": broken.says} if broken else None,
    }
