"""`holdfast tasks` lists tasks, shows one, and sends commands to some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.batch import BatchReport, act, act_onward, print_report
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, print_json, print_list, status_text
from holdfast.cli.output.task_view import print_task
from holdfast.cli.pages import Cursor, fill_page
from holdfast.cli.session import Session, run
from holdfast.domain.errors import NotSuspended
from holdfast.domain.phrases import span
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.engine.operations.control import Control
from holdfast.insight.views.tasks import TaskDetail, TaskView, detail_view, task_view
from holdfast.insight.views.view import keys
from holdfast.ports import Detail

TASK_KEYS = keys(TaskView)
DETAIL_KEYS = keys(TaskDetail, without=TaskView)
JSON_REPORT = (
    "JSON: done (taskId, status, pauseRequested, cancelRequested), "
    "refused (taskId, code, message), codeUnknown."
)

tasks = typer.Typer(help="List, show, pause, resume, cancel, retry, roll back tasks.")


@tasks.command("list", epilog=f"JSON: tasks (each: {TASK_KEYS}), cursor (null: the last page).")
@opt.with_filters("type", "tenant", "queue", "plan", "older_than", "newer_than")
def list_tasks(
    context: typer.Context,
    *,
    status: opt.Statuses = [],  # noqa: B006  (Typer copies it)
    filters: opt.Filters,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List tasks, the newest first."""
    page, more, now = load_tasks(context, status, filters, limit, cursor)
    print_list(
        "tasks",
        [task_view(task, redaction.current()) for task in page],
        [_row(task, now) for task in page],
        json=json,
        empty="no matching tasks",
        keep=2,
        room=_columns_by_use(status, filters),
        cursor=more,
    )


def load_tasks(
    context: typer.Context,
    statuses: Iterable[Status],
    filters: opt.Filters,
    limit: int,
    cursor: Cursor,
) -> tuple[list[Task], Cursor, float]:
    """Return the tasks that match, the cursor of the next page, and the present time."""

    async def load(session: Session) -> tuple[list[Task], Cursor, float]:
        where = opt.task_filter(session.now, statuses=statuses, **filters)

        async def find(limit: int, cursor: Cursor) -> tuple[Sequence[Task], Cursor]:
            page = await session.store.views.find(where, limit=limit, cursor=cursor)
            return page.tasks, page.cursor

        return *await fill_page(find, limit, cursor), session.now

    return run(context, load)


def _row(task: Task, now: float) -> Row:
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


def _columns_by_use(status: Sequence[Status], filters: opt.Filters) -> list[str]:
    """Order the columns: errors come early when the list is filtered by status, filtered fields
    last.
    """
    middle = ("SAYS", "TYPE") if status else ("TYPE", "SAYS")
    names = ("ID", "STATUS", "SINCE", *middle, "TENANT", "STAGE", "QUEUE")
    known = {name.upper() for name, value in filters.items() if value}
    if len(status) == 1:
        known.add("STATUS")
    return sorted(names, key=lambda name: name in known)


def error_message(task: Task) -> str:
    """Return the message of the task's error, with the last part of the error's name."""
    if task.failure is None:
        return "-"
    return f"{task.failure.error.rpartition('.')[2]}: {redaction.text(task.failure.message)}"


@tasks.command(epilog=f"JSON: {TASK_KEYS}; {DETAIL_KEYS}.")
def show(context: typer.Context, id: opt.Id, json: opt.Json = False) -> None:
    """Show everything about one task."""
    show_task(context, id, json=json)


def show_task(
    context: typer.Context, task_id: str, *, json: bool, only_suspended: bool = False
) -> None:
    async def load(session: Session) -> tuple[Detail, float]:
        detail = await session.load_detail(task_id)
        if only_suspended and not detail.task.suspended:
            raise NotSuspended(task_id, detail.task.status)
        return detail, session.now

    detail, now = run(context, load)
    if json:
        print_json(detail_view(detail, redaction.current(), now=now))
    else:
        print_task(detail, now)


@tasks.command(epilog=JSON_REPORT)
def pause(
    context: typer.Context, ids: opt.Ids, reason: opt.Reason = "", json: opt.Json = False
) -> int:
    """Pause tasks at once, or after the stage that runs."""
    return _send_command(context, ids, Control.pause, json=json, reason=reason)


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
    return _send_command(
        context, ids, Control.resume, json=json, onward=True, reason=reason, force=force
    )


@tasks.command(epilog=JSON_REPORT)
def cancel(
    context: typer.Context, ids: opt.Ids, reason: opt.Reason = "", json: opt.Json = False
) -> int:
    """Cancel tasks at once, or after the stage that runs."""
    return _send_command(context, ids, Control.cancel, json=json, reason=reason)


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
    onward = not from_scratch
    terms = {"reason": reason, "from_checkpoint": onward, "force": force}
    return _send_command(context, ids, Control.retry, json=json, onward=onward, **terms)


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
    return _send_command(context, ids, Control.rollback, json=json, reason=reason, force=force)


def _send_command(
    context: typer.Context,
    ids: Sequence[str],
    command: Callable[..., Awaitable[Task]],
    *,
    json: bool,
    onward: bool = False,
    **terms: Any,
) -> int:
    async def send(session: Session) -> BatchReport:
        ask = partial(command, session.control, **terms)
        return await (act_onward(session, ids, ask) if onward else act(ids, ask))

    return print_report(run(context, send), json=json)
