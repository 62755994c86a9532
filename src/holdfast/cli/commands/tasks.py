"""`holdfast tasks` lists tasks, shows one, and sends commands to some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.batch import act, act_onward, print_report
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, print_json, print_list, status_text
from holdfast.cli.output.task_view import print_task
from holdfast.cli.pages import Cursor, fill_page
from holdfast.cli.session import Session, in_session
from holdfast.domain.phrases import span
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.engine.operations.control import Control
from holdfast.insight.views import tasks as views
from holdfast.insight.views.view import keys
from holdfast.ports import Detail, Filter

PAGE_KEYS = keys(views.TaskPage, tasks=views.TaskView)
JSON_REPORT = f"JSON: {keys(views.BatchView, done=views.Asked, refused=views.RefusedView)}."

tasks = CommandGroup(help="List, show, pause, resume, cancel, retry or roll back tasks.")


@tasks.command("list", epilog=f"JSON: {PAGE_KEYS} (null: the last page).")
@opt.with_filters("type", "tenant", "queue", "plan", "older_than", "newer_than")
@in_session
async def list_tasks(
    session: Session,
    *,
    status: opt.Statuses = [],  # noqa: B006  (Typer copies it)
    filters: opt.Filters,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List tasks, the newest first."""
    where = opt.task_filter(session.now, statuses=status, **filters)
    page, more = await find_tasks(session, where, limit, cursor)
    rows = [_row(task, session.now) for task in page]
    print_list(
        task_page(page, more),
        rows,
        json=json,
        empty="no matching tasks",
        keep=2,
        room=_columns_by_use(rows, status, filters),
    )


def task_page(tasks: Sequence[Task], cursor: Cursor) -> views.TaskPage:
    shown = [views.task_view(task, redaction.current()) for task in tasks]
    return {"tasks": shown, "cursor": cursor}


async def find_tasks(
    session: Session, where: Filter, limit: int, cursor: Cursor
) -> tuple[list[Task], Cursor]:
    """Return the tasks that match, and the cursor of the next page."""

    async def find(limit: int, cursor: Cursor) -> tuple[Sequence[Task], Cursor]:
        page = await session.store.views.find(where, limit=limit, cursor=cursor)
        return page.tasks, page.cursor

    return await fill_page(find, limit, cursor)


def _row(task: Task, now: float) -> Row:
    return {
        "ID": task.id,
        "STATUS": status_text(task.status),
        "SINCE": span(now - task.status_since),
        "TYPE": task.type,
        "ERROR": error_message(task),
        "TENANT": task.tenant or "-",
        "STAGE": task.at_stage or "-",
        "QUEUE": task.queue,
    }


def _columns_by_use(
    rows: Sequence[Row], status: Sequence[Status], filters: opt.Filters
) -> list[str]:
    """Order the columns: errors come early when the list is filtered by status, filtered fields and
    empty columns last.
    """
    middle = ("ERROR", "TYPE") if status else ("TYPE", "ERROR")
    names = ("ID", "STATUS", "SINCE", *middle, "TENANT", "STAGE", "QUEUE")
    known = {name.upper() for name, value in filters.items() if value}
    if len(status) == 1:
        known.add("STATUS")
    known |= {name for name in names if all(row[name] == "-" for row in rows)}
    return sorted(names, key=lambda name: name in known)


def error_message(task: Task) -> str:
    """Return the message of the task's error, with the last part of the error's name."""
    if task.failure is None:
        return "-"
    return f"{task.failure.error.rpartition('.')[2]}: {redaction.text(task.failure.message)}"


@tasks.command("show", epilog=f"JSON: {keys(views.TaskDetail)}.")
@in_session
async def show(session: Session, id: opt.Id, json: opt.Json = False) -> None:
    """Show everything about one task."""
    print_detail(await session.load_detail(id), session.now, json=json)


def print_detail(detail: Detail, now: float, *, json: bool) -> None:
    if json:
        print_json(views.detail_view(detail, redaction.current(), now=now))
    else:
        print_task(detail, now)


def _add_command(name: str, command: Callable[..., Awaitable[Task]], help: str) -> None:
    @tasks.command(name, help=help, epilog=JSON_REPORT)
    @in_session
    async def send_command(
        session: Session, ids: opt.Ids, reason: opt.Reason = "", json: opt.Json = False
    ) -> int:
        ask = partial(command, session.control, reason=reason)
        return print_report(await act(ids, ask), json=json)


def _add_command_with_force(
    name: str, command: Callable[..., Awaitable[Task]], help: str, *, onward: bool = False
) -> None:
    @tasks.command(name, help=help, epilog=JSON_REPORT)
    @in_session
    async def send_command(
        session: Session,
        *,
        ids: opt.Ids,
        reason: opt.Reason = "",
        force: opt.Force = False,
        json: opt.Json = False,
    ) -> int:
        ask = partial(command, session.control, reason=reason, force=force)
        report = await (act_onward(session, ids, ask) if onward else act(ids, ask))
        return print_report(report, json=json)


_add_command("pause", Control.pause, "Pause tasks at once, or after the stage that runs.")
_add_command_with_force(
    "resume", Control.resume, "Resume paused tasks, or withdraw a requested pause.", onward=True
)
_add_command("cancel", Control.cancel, "Cancel tasks at once, or after the stage that runs.")


@tasks.command("retry", epilog=JSON_REPORT)
@in_session
async def retry(
    session: Session,
    *,
    ids: opt.Ids,
    reason: opt.Reason = "",
    force: opt.Force = False,
    from_scratch: Annotated[
        bool, opt.flag("--from-scratch", "Ignore the checkpoint: start from the first stage.")
    ] = False,
    json: opt.Json = False,
) -> int:
    """Retry tasks from their checkpoints; failures count from zero."""
    command = partial(session.control.retry, reason=reason, force=force)
    if from_scratch:
        report = await act(ids, partial(command, from_checkpoint=False))
    else:
        report = await act_onward(session, ids, command)
    return print_report(report, json=json)


_add_command_with_force("rollback", Control.rollback, "Undo the stages that ran, last stage first.")
