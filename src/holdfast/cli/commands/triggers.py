"""`holdfast triggers` adds triggers, lists them, shows one, and sends it commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.loader import load_app_for, load_submission, run_on
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import (
    hint,
    print_answer,
    print_json,
    print_list,
    say,
    status_text,
)
from holdfast.cli.output.trigger_view import format_time, local, print_trigger, trigger_row
from holdfast.cli.pages import Cursor, fill_page
from holdfast.cli.session import Session, in_session, person
from holdfast.domain import names
from holdfast.domain.errors import InvalidSchedule
from holdfast.domain.trigger.trigger import (
    UNFINISHED,
    Misfire,
    Overlap,
    Trigger,
    TriggerStatus,
)
from holdfast.engine import Holdfast
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.insight.views import triggers as views
from holdfast.insight.views.view import keys

TRIGGER_KEYS = keys(views.TriggerView)
DETAIL_KEYS = keys(views.TriggerDetail, without=views.TriggerView)
NEXT_SHOWN = 3

triggers = typer.Typer(help="Submit tasks at a time, at an interval or by cron.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a trigger.")]
Statuses = Annotated[list[TriggerStatus], opt.STATUS]


@triggers.command(
    "list", epilog=f"JSON: triggers (each: {TRIGGER_KEYS}), cursor (null: the last page)."
)
@in_session
async def list_triggers(
    session: Session,
    *,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    tenant: opt.Tenant = None,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List triggers by id. FROM is `code` (declared in code) or `call` (created by a call)."""

    names.check_any("tenant", tenant)

    async def find(limit: int, cursor: Cursor) -> tuple[Sequence[Trigger], Cursor]:
        page = await session.schedule.page(
            statuses=status, tenant=tenant, limit=limit, cursor=cursor
        )
        return page.triggers, page.cursor

    page, more = await fill_page(find, limit, cursor)
    print_list(
        "triggers",
        [views.trigger_view(trigger, redaction.current()) for trigger in page],
        [trigger_row(trigger) for trigger in page],
        json=json,
        empty="no matching triggers",
        keep=2,
        cursor=more,
    )


@triggers.command(epilog=f"JSON: {TRIGGER_KEYS}, {DETAIL_KEYS}.")
@in_session
async def show(session: Session, id: Id, json: opt.Json = False) -> None:
    """Show when a trigger fires, its task, policies and state."""
    handle = await session.schedule.get(id)
    trigger, upcoming = await handle.info(), await handle.next(NEXT_SHOWN)
    if json:
        print_json(views.trigger_detail_view(trigger, upcoming, redaction.current()))
    else:
        print_trigger(trigger, upcoming, session.now)


@triggers.command(epilog="JSON: triggerId, status, next.")
@in_session
async def next(
    session: Session,
    id: Id,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=1000, help="How many to show.")
    ] = 5,
    json: opt.Json = False,
) -> None:
    """Show the next fire times of a trigger, in its time zone."""
    handle = await session.schedule.get(id)
    trigger, upcoming = await handle.info(), await handle.next(count)
    if json:
        times = [moment.isoformat() for moment in upcoming]
        print_json({"triggerId": trigger.id, "status": trigger.status, "next": times})
        return
    for moment in upcoming:
        say(format_time(moment))
    if trigger.status in (TriggerStatus.PAUSED, TriggerStatus.SUSPENDED):
        hint(f"it is {trigger.status}: it would fire at these times if resumed now")
    elif not upcoming:
        ended = trigger.status not in UNFINISHED
        hint(f"it is {trigger.status} and fires no more" if ended else "no fire time is left")


@triggers.command(epilog="JSON: triggerId, status, taskId.")
def fire(
    context: typer.Context,
    id: Id,
    app: Annotated[
        str,
        typer.Option(metavar="APP", help="The app that declares the task type: module:attribute."),
    ],
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Create a task of the trigger now. Its policies do not apply, and its fire times stay.

    The code of the app makes the payload, so this command needs the app.
    """

    async def act(loaded: Holdfast) -> tuple[str, Trigger]:
        handle = await loaded.schedule.acting_as(*person()).get(id)
        task = await handle.fire(reason)
        return task.id, await handle.info()

    task_id, trigger = run_on(load_app_for(context, app), act, needs_store=True)
    view = {"triggerId": trigger.id, "status": trigger.status, "taskId": task_id}
    line = Text(f"{trigger.id}  ") + status_text(trigger.status) + Text(f"  task {task_id}")
    print_answer(view, line, json=json)


def _add_command(command: Callable[..., Awaitable[TriggerStatus]], help: str) -> None:
    @triggers.command(command.__name__, help=help, epilog="JSON: triggerId, status.")
    @in_session
    async def send_command(
        session: Session, id: Id, reason: opt.Reason = "", json: opt.Json = False
    ) -> None:
        handle = await session.schedule.get(id)
        status = await command(handle, reason)
        line = Text(f"{handle.id}  ") + status_text(status)
        print_answer({"triggerId": handle.id, "status": status}, line, json=json)


_add_command(TriggerHandle.pause, "Stop firing until the trigger is resumed.")
_add_command(
    TriggerHandle.resume,
    "Resume a trigger. Its misfire policy decides about the fire times that it missed.",
)
_add_command(
    TriggerHandle.cancel,
    "End a trigger. One that is declared in code stays ended until its declaration changes.",
)


@triggers.command(epilog=f"JSON: {TRIGGER_KEYS}.")
def add(
    context: typer.Context,
    *,
    app: opt.App,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The id of the trigger.")],
    type: Annotated[
        str, typer.Option(metavar="NAME", help="The type of the tasks that it creates.")
    ],
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Fire once: 2026-01-31T03:00:00+08:00.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="15m", help="Fire at this interval, from now on.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(metavar="'0 3 * * *'", help="Fire by minute, hour, day, month, weekday."),
    ] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The time zone of --cron; default: UTC.")
    ] = None,
    payload: opt.Payload = "null",
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tenant of the tasks.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="The queue of the tasks.")
    ] = None,
    misfire: Annotated[
        Misfire, typer.Option(help="What to do about missed fire times.")
    ] = Misfire.ONCE,
    overlap: Annotated[
        Overlap, typer.Option(help="What to do while the last task has not ended.")
    ] = Overlap.ALLOW,
    jitter: Annotated[
        str, typer.Option(metavar="30s", help="Fire up to this much later, at random.")
    ] = "0s",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a trigger of this name.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Create a trigger with --at, --every or --cron.

    If you repeat the command with the same definition, it returns the existing trigger.
    """
    name = names.check("trigger", name)
    if [at, every, cron].count(None) != 2:
        raise opt.WrongUsage("give one of --at, --every and --cron")
    if tz is not None and cron is None:
        raise opt.WrongUsage("--tz needs --cron; --at contains its own offset")
    terms = TriggerTerms(
        name=name, tenant=tenant, queue=queue, misfire=misfire, overlap=overlap, jitter=jitter
    )
    loaded, target, content = load_submission(context, app, type, payload)

    async def make(app: Holdfast) -> Trigger:
        schedule = app.schedule.acting_as(*person())
        made: TriggerHandle[Any]
        if at is not None:
            made = await schedule.at(_parse_time(at), target, content, replace=replace, **terms)
        elif every is not None:
            made = await schedule.every(every, target, content, replace=replace, **terms)
        else:
            made = await schedule.cron(
                cron or "", target, content, tz=tz or "UTC", replace=replace, **terms
            )
        return await made.info()

    trigger = run_on(loaded, make)
    due = trigger.fire_time
    then = "" if due is None else f"  fires at {local(due, trigger.schedule)}"
    line = Text(f"{trigger.id}  ") + status_text(trigger.status) + Text(then)
    print_answer(views.trigger_view(trigger, redaction.current()), line, json=json)


def _parse_time(text: str) -> datetime:
    """Parse a point in time; the schedule itself refuses one without a time zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(text, "write a time such as 2026-01-31T03:00:00+08:00") from None
