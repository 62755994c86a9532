"""`holdfast audit` shows who did what, and whether somebody changed the record since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.cli.output.progress import is_watched, progress
from holdfast.cli.session import Session, in_session, run
from holdfast.domain.audit import Audit
from holdfast.domain.durations import seconds
from holdfast.domain.phrases import count, span
from holdfast.domain.task.history import HistoryStep
from holdfast.engine.operations import audit as audit_log
from holdfast.engine.operations.audit import ChainVerdict, anchor_from, format_link
from holdfast.insight.views import audit as views
from holdfast.insight.views.view import keys

IMPORTANT = ("ID", "ACTOR", "COMMAND", "OUTCOME", "AGO", "REASON")  # ids are shortened for them
SHRINKS = {"COMMAND": 9, "REASON": 6}
REASON_CHARS = 20  # for more of the reason, no id is shortened

OfTask = Annotated[
    str | None, opt.takes("ID", "Only this task, or plan:ID, or trigger:ID.", "--task")
]
Cursor = Annotated[int, opt.takes("N", "Continue after the page that gave this cursor.", min=0)]
Head = Annotated[
    str | None,
    opt.takes(
        "SEQ:HASH", "Check that this head, noted earlier, is still in the chain.", check=anchor_from
    ),
]

audit = CommandGroup(no_args_is_help=False)


@audit.callback(
    invoke_without_command=True,
    epilog=f"JSON: {keys(views.AuditList, entries=views.AuditView)} (null: the last page). "
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
        return *await audit_log.entries_from(session.store, cursor, limit, task), session.now

    entries, more, now = run(context, load)
    rows = [_row(entry, now) for entry in entries]
    is_short = not json and _important_width(rows) > out.console().width
    if is_short:
        rows = [row | {"ID": _id(row["ID"]), "ACTOR": _short(row["ACTOR"], 8, 8)} for row in rows]
    views_shown = [views.audit_view(entry, redaction.current()) for entry in entries]
    out.print_list(
        views.AuditList(entries=views_shown, cursor=more),
        rows,
        json=json,
        empty="no matching entries" if task or cursor else "the audit has no entries yet",
        keep=4,
        shrinks=SHRINKS,
    )
    if is_short:
        out.hint("ids are shortened; a wider terminal or --json shows them in full")


def _important_width(rows: Sequence[dict[str, str]]) -> int:
    """Return the width that the important columns need."""
    wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in IMPORTANT if rows}
    wide["REASON"] = min(wide.get("REASON", 0), REASON_CHARS)
    return sum(wide.values()) + out.GAP * (len(wide) - 1)


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
    "transitions",
    epilog=f"JSON: {keys(views.TransitionList, transitions=views.TransitionView)} "
    "(null: the last page).",
)
@opt.with_filters("type", "tenant", "queue", "plan")
@in_session
async def transitions(
    session: Session,
    *,
    task: Annotated[str | None, opt.takes("ID", "Only this task.", "--task")] = None,
    status: opt.Statuses = [],  # noqa: B006  (Typer copies it)
    filters: opt.Filters,
    since: Annotated[
        str | None, opt.duration("AGE", "Only transitions within: 30s, 2h, 7d.")
    ] = None,
    until: Annotated[
        str | None, opt.duration("AGE", "Only transitions longer ago than this.")
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
    steps = [views.transition_view(step, redaction.current()) for step in page.transitions]
    out.print_list(
        views.TransitionList(transitions=steps, cursor=page.cursor),
        [_step_row(step, now) for step in page.transitions],
        json=json,
        empty="no matching transitions",
        keep=6,
        shrinks=SHRINKS,
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
    "verify",
    epilog=f"JSON: {keys(views.VerdictView)}. base: the link before the oldest that is kept; "
    "loose: how many entries are not in the chain yet; "
    f"broken: null, or {keys(views.BrokenView)}; missing: null, or {keys(views.MissingView)}.",
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
        verdict = await audit_log.verify(
            session.store,
            noted=noted,
            walked=walked,
            keep_seconds=session.settings.audit_keep,
            now=session.now,
        )
    if json:
        out.print_json(views.verdict_view(verdict))
    else:
        _print_verdict(verdict)
    return Exit.OK if verdict.holds else Exit.FAILED


def _print_verdict(verdict: ChainVerdict) -> None:
    missing = verdict.missing
    if verdict.broken is not None:
        out.say(
            f"BROKEN at number {verdict.broken.seq}: {verdict.broken.message}", style="bold red"
        )
    elif verdict.holds:
        out.say(f"the chain is intact: {count(verdict.links, 'link')}", style="green")
    if missing is not None and not missing.explained:
        out.say(f"MISSING: {missing.message}", style="bold red")
    out.print_fields(
        {
            "head": format_link(verdict.head),
            "base": format_link(verdict.base) if verdict.base.seq else None,
            "gone": missing.message if missing is not None and missing.explained else None,
            "loose": f"{verdict.loose} not in the chain yet" if verdict.loose else None,
        }
    )
    if verdict.holds:
        out.hint("keep this head outside the store; `audit verify --head` compares a later chain")
