"""`holdfast tasks`: list them, look at one, and ask something of some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.batch import BatchReport, act, act_onward, print_report
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, hint, print_json, print_table, status_text
from holdfast.cli.output.task_json import DETAIL_KEYS, TASK_KEYS, detail_view, task_view
from holdfast.cli.output.task_view import print_task
from holdfast.cli.session import Session, run
from holdfast.domain.errors import TaskNotFound
from holdfast.domain.phrases import span
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Detail, Filter, Page

LOOKS = 50  # a page may come back short; after so many the cursor error_message where to go on

tasks = typer.Typer(help="List, show, pause, resume, cancel, retry, roll back tasks.")


@tasks.command("list", epilog=f"JSON: tasks (each: {TASK_KEYS}), cursor (null: the last page).")
def list_tasks(
    context: typer.Context,
    *,
    status: opt.Statuses = [],  # noqa: B006  (Typer copies it)
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    plan: opt.Plan = None,
    older_than: opt.OlderThan = None,
    newer_than: opt.NewerThan = None,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List tasks, the newest first."""

    async def load(session: Session) -> tuple[Page, float]:
        where = opt.filtered(
            session.now,
            statuses=tuple(status),
            type=type,
            tenant=tenant,
            queue=queue,
            plan=plan,
            older_than=older_than,
            newer_than=newer_than,
        )
        return await full_page(session, where, limit, cursor), session.now

    page, now = run(context, load)
    if json:
        print_json({"tasks": [task_view(task) for task in page.tasks], "cursor": page.cursor})
        return
    rows = [task_row(task, now) for task in page.tasks]
    print_table(rows, keep=2, room=_room(status, type, tenant, queue))
    if not page.tasks:
        hint("no matching tasks")
    if page.cursor:
        hint(f"more with --cursor {page.cursor}")


async def full_page(session: Session, where: Filter, limit: int, cursor: str | None) -> Page:
    """Return as many tasks as were asked for, if there are so many."""
    found: list[Task] = []
    for _ in range(LOOKS):
        page = await session.store.views.find(where, limit=limit - len(found), cursor=cursor)
        found += page.tasks
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return Page(tasks=tuple(found), cursor=cursor)


def task_row(task: Task, now: float) -> Row:
    return {
        "ID": task.id,
        "STATUS": status_text(task.status),
        "SINCE": span(now - task.status_since),
        "TYPE": task.type,
        "SAYS": error_message(task),
        "TENANT": task.tenant or "-",
        "STAGE": task.at_stage or "-",
        "QUEUE": task.queue,
    }


def _room(
    status: Sequence[Status], type: str | None, tenant: str | None, queue: str | None
) -> list[str]:
    """Order the columns: errors come early when the list is filtered by status, filtered fields
    last.
    """
    told = ("SAYS", "TYPE") if status else ("TYPE", "SAYS")
    names = ("ID", "STATUS", "SINCE", *told, "TENANT", "STAGE", "QUEUE")
    known = {"STATUS": len(status) == 1, "TYPE": type, "TENANT": tenant, "QUEUE": queue}
    return sorted(names, key=lambda name: bool(known.get(name)))


def error_message(task: Task) -> str:
    """Return the message of the task's error, with the last part of the error's name."""
    if task.failure is None:
        return "-"
    return f"{task.failure.error.rpartition('.')[2]}: {redaction.text(task.failure.message)}"


@tasks.command(epilog=f"JSON: {TASK_KEYS}; {DETAIL_KEYS}.")
def show(context: typer.Context, id: opt.Id, json: opt.Json = False) -> None:
    """Show everything about one task."""

    async def load(session: Session) -> tuple[Detail, Session]:
        detail = await session.store.views.detail(id)
        if detail is None:
            raise TaskNotFound(id)
        return detail, session

    detail, session = run(context, load)
    if json:
        print_json(detail_view(detail, session.now))
    else:
        print_task(detail, session.now)


JSON_REPORT = "JSON: done (taskId, status, pauseRequested, cancelRequested), refused (taskId, "
JSON_REPORT += "code, message)."


@tasks.command(epilog=JSON_REPORT)
def pause(
    context: typer.Context, ids: opt.Ids, reason: opt.Reason = "", json: opt.Json = False
) -> int:
    """Pause tasks at once, or after the stage that runs."""
    return _each(context, ids, json, lambda s, i: s.control.pause(i, reason=reason))


@tasks.command(epilog=JSON_REPORT)
def resume(
    context: typer.Context,
    *,
    ids: opt.Ids,
    reason: opt.Reason = "",
    force: opt.Force = False,
    json: opt.Json = False,
) -> int:
    """Resume paused tasks, or withdraw a requested pause."""
    return _each(
        context,
        ids,
        json,
        lambda s, i: s.control.resume(i, reason=reason, force=force),
        onward=True,
    )


@tasks.command(epilog=JSON_REPORT)
def cancel(
    context: typer.Context, ids: opt.Ids, reason: opt.Reason = "", json: opt.Json = False
) -> int:
    """Cancel tasks at once, or after the stage that runs."""
    return _each(context, ids, json, lambda s, i: s.control.cancel(i, reason=reason))


@tasks.command(epilog=JSON_REPORT)
def retry(
    context: typer.Context,
    *,
    ids: opt.Ids,
    reason: opt.Reason = "",
    force: opt.Force = False,
    from_scratch: Annotated[
        bool,
        typer.Option("--from-scratch", help="Ignore the checkpoint: start from the first stage."),
    ] = False,
    json: opt.Json = False,
) -> int:
    """Retry tasks from their checkpoints; failures count from zero."""
    return _each(
        context,
        ids,
        json,
        lambda s, i: s.control.retry(
            i, reason=reason, from_checkpoint=not from_scratch, force=force
        ),
        onward=not from_scratch,
    )


@tasks.command(epilog=JSON_REPORT)
def rollback(
    context: typer.Context,
    *,
    ids: opt.Ids,
    reason: opt.Reason = "",
    force: opt.Force = False,
    json: opt.Json = False,
) -> int:
    """Undo the stages that ran, last stage first."""
    return _each(context, ids, json, lambda s, i: s.control.rollback(i, reason=reason, force=force))


def _each(
    context: typer.Context,
    ids: Sequence[str],
    json: bool,
    ask: Callable[[Session, str], Awaitable[Task]],
    *,
    onward: bool = False,
) -> int:
    async def whole(session: Session) -> BatchReport:
        if onward:
            return await act_onward(session, ids, lambda task_id: ask(session, task_id))
        return await act(ids, lambda task_id: ask(session, task_id))

    return print_report(run(context, whole), json=json)
