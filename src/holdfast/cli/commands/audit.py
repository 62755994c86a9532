"""`holdfast audit` shows who did what, and whether somebody changed the record since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import (
    GAP,
    console,
    hint,
    print_fields,
    print_json,
    print_list,
    say,
)
from holdfast.cli.output.progress import is_watched, progress
from holdfast.cli.session import Session, in_session, run
from holdfast.domain.audit import Audit
from holdfast.domain.durations import seconds
from holdfast.domain.phrases import count, span
from holdfast.domain.task.history import HistoryStep
from holdfast.engine.operations import audit as audit_ops
from holdfast.engine.operations.audit import ChainVerdict, anchor_from
from holdfast.insight.views import audit as views
from holdfast.insight.views.view import keys

IMPORTANT = ("ID", "ACTOR", "COMMAND", "OUTCOME", "AGO", "REASON")  # ids are shortened for them
SHRINKS = {"COMMAND": 9, "REASON": 6}
REASON_CHARS = 20  # for more of the reason, no id is shortened

OfTask = Annotated[
    str | None,
    typer.Option("--task", metavar="ID", help="Only this task, or plan:ID, or trigger:ID."),
]
Cursor = Annotated[
    int, typer.Option(metavar="N", min=0, help="Continue after the page that gave this cursor.")
]
Head = Annotated[
    str | None,
    typer.Option(
        metavar="SEQ:HASH", help="Check that this head, noted earlier, is still in the chain."
    ),
]

audit = typer.Typer()


@audit.callback(
    invoke_without_command=True,
    epilog=f"JSON: entries (each: {keys(views.AuditView)}), cursor (null: the last page). "
    "The taskId of a plan is plan:ID, of a trigger trigger:ID.",
)
def list_entries(
    context: typer.Context,
    *,
    task: OfTask = None,
    limit: opt.Limit = 50,
    cursor: Cursor = 0,
    json: opt.Json = False,
) -> None:
    """Show who did what, the newest first, done or refused. "verify" checks whether the record was
    changed.
    """
    if context.invoked_subcommand is not None:
        return

    async def load(session: Session) -> tuple[Sequence[Audit], int | None, float]:
        return *await audit_ops.entries_from(session.store, cursor, limit, task), session.now

    entries, more, now = run(context, load)
    rows = [_row(entry, now) for entry in entries]
    if not json and _important_width(rows) > console().width:
        rows = [row | {"ID": _id(row["ID"]), "ACTOR": _short(row["ACTOR"], 8, 8)} for row in rows]
        hint("ids are shortened; a wider terminal or --json shows them in full")
    print_list(
        "entries",
        [views.audit_view(entry, redaction.current()) for entry in entries],
        rows,
        json=json,
        empty="no matching entries" if task or cursor else "the audit has no entries yet",
        keep=4,
        shrinks=SHRINKS,
        cursor=more,
    )


def _important_width(rows: Sequence[dict[str, str]]) -> int:
    """Return the width that the important columns need."""
    wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in IMPORTANT if rows}
    wide["REASON"] = min(wide.get("REASON", 0), REASON_CHARS)
    return sum(wide.values()) + GAP * (len(wide) - 1)


def _id(text: str) -> str:
    """Shorten an id: keep the end of a task's id, and the prefix of plan:ID and the like."""
    return _short(text, 8, 4) if ":" in text else _short(text, 0, 6)


def _short(text: str, first: int, last: int) -> str:
    return text if len(text) <= first + 1 + last else f"{text[:first]}…{text[-last:]}"


def _row(entry: Audit, now: float) -> dict[str, str]:
    return {
        "ID": entry.task_id,
        "ACTOR": entry.by.actor,
        "COMMAND": _command(entry),
        "OUTCOME": f"refused: {entry.refused}" if entry.refused else entry.after,
        "AGO": span(now - entry.at),
        "REASON": redaction.text(entry.by.reason or "-"),
        "WAS": entry.before,
        "FROM": entry.by.origin or "-",
    }


def _command(entry: Audit) -> str:
    """Return the command, or the last words of the route that refused the request."""
    method, _, path = entry.command.partition(" /")
    words = [word for word in path.split("/")[1:] if word and not word.startswith("{")]
    return " ".join(words[-2:]) if method.isupper() and words else entry.command


@audit.command(
    epilog=f"JSON: transitions (each: {keys(views.TransitionView)}), cursor (null: the last page)."
)
@opt.with_filters("type", "tenant", "queue", "plan")
@in_session
async def transitions(
    session: Session,
    *,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="Only this task.")
    ] = None,
    status: opt.Statuses = [],  # noqa: B006  (Typer copies it)
    filters: opt.Filters,
    since: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only transitions within: 30s, 2h, 7d.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only transitions longer ago than this.")
    ] = None,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """Show every transition and who made it. The maker is a worker, operator, plan, trigger, client
    or the store.

    The newest tasks come first; within a task, the oldest transition comes first. The transitions
    are read from the events of the tasks, so they exist as long as the tasks are kept.
    """
    now = session.now
    page = await session.app.query.transitions(
        opt.task_filter(now, statuses=status, **filters),
        task=task,
        since=None if since is None else now - seconds(since),
        until=None if until is None else now - seconds(until),
        limit=limit,
        cursor=cursor,
    )
    print_list(
        "transitions",
        [views.transition_view(step, redaction.current()) for step in page.transitions],
        [_step_row(step, now) for step in page.transitions],
        json=json,
        empty="no matching transitions",
        keep=6,
        shrinks=SHRINKS,
        cursor=page.cursor,
    )


def _step_row(step: HistoryStep, now: float) -> dict[str, str]:
    return {
        "ID": step.task_id,
        "AGO": span(now - step.at),
        "COMMAND": step.command,
        "FROM": step.before or "-",
        "TO": step.after,
        "BY": step.maker,
        "NAME": step.name or "-",
        "REASON": redaction.text(step.reason or "-"),
    }


@audit.command(
    epilog=f"JSON: {keys(views.VerdictView)}. base: the link before the oldest that is kept; "
    "loose: how many entries are not in the chain yet; "
    f"broken: null, or {keys(views.BrokenView)}; missing: null, or {keys(views.MissingView)}."
)
@in_session
async def verify(session: Session, *, head: Head = None, json: opt.Json = False) -> int:
    """Check the audit chain. Exit code 1: an entry was changed, added, moved or removed.

    Anyone who can write to the store can rewrite the whole chain. Note the head elsewhere from time
    to time: with --head, a rewritten or shortened chain is found, too.
    """
    noted = anchor_from(head) if head is not None else None
    chain = await session.store.admin.chain(limit=0)
    total = chain.head.seq - chain.base.seq
    with progress("links compared", total, shown=is_watched(json=json)) as walked:
        verdict = await audit_ops.verify(
            session.store,
            noted=noted,
            walked=walked,
            keep_seconds=session.settings.audit_keep,
            now=session.now,
        )
    if json:
        print_json(views.verdict_view(verdict))
    else:
        _print_verdict(verdict)
    return Exit.OK if verdict.holds else Exit.FAILED


def _print_verdict(verdict: ChainVerdict) -> None:
    missing = verdict.missing
    if verdict.broken is not None:
        say(f"BROKEN at number {verdict.broken.seq}: {verdict.broken.message}", style="bold red")
    elif verdict.holds:
        say(f"the chain is intact: {count(verdict.links, 'link')}", style="green")
    if missing is not None and not missing.explained:
        say(f"MISSING: {missing.message}", style="bold red")
    print_fields(
        {
            "head": audit_ops.format_link(verdict.head),
            "base": audit_ops.format_link(verdict.base) if verdict.base.seq else None,
            "gone": missing.message if missing is not None and missing.explained else None,
            "loose": f"{verdict.loose} not in the chain yet" if verdict.loose else None,
        }
    )
    if verdict.holds:
        hint("note the head elsewhere; --head compares a later chain with it")
