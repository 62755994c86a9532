"""`holdfast triggers` adds triggers, lists them, shows one, and sends it commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.loader import load_app_for, load_submission, run_on
from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.cli.output.trigger_view import format_time, local, print_trigger, trigger_row
from holdfast.cli.pages import Cursor, fill_page
from holdfast.cli.session import Session, in_session, person
from holdfast.domain import names
from holdfast.domain.errors import InvalidSchedule
from holdfast.domain.trigger.trigger import UNFINISHED, Misfire, Overlap, Trigger, TriggerStatus
from holdfast.engine import Holdfast
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.insight.views import triggers as views
from holdfast.insight.views.view import keys

NEXT_SHOWN = 3

triggers = CommandGroup(help="Submit tasks at a time, at an interval or by cron.")

Id = Annotated[str, opt.argument("ID", "The id of a trigger.")]
Statuses = Annotated[list[TriggerStatus], opt.STATUS]


@triggers.command(
    "list",
    epilog=f"JSON: {keys(views.TriggerPageView, triggers=views.TriggerView)} "
    "(null: the last page).",
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

    async def find(limit: int, cursor: Cursor) -> tuple[Sequence[Trigger], Cursor]:
        page = await session.schedule.page(
            statuses=status, tenant=tenant, limit=limit, cursor=cursor
        )
        return page.triggers, page.cursor

    page, more = await fill_page(find, limit, cursor)
    shown = [views.trigger_view(trigger, redaction.current()) for trigger in page]
    out.print_list(
        views.TriggerPageView(triggers=shown, cursor=more),
        [trigger_row(trigger) for trigger in page],
        json=json,
        empty="no matching triggers",
        keep=2,
    )


@triggers.command("show", epilog=f"JSON: {keys(views.TriggerDetail)}.")
@in_session
async def show(session: Session, id: Id, json: opt.Json = False) -> None:
    """Show when a trigger fires, its task, policies and state."""
    handle = await session.schedule.get(id)
    trigger, upcoming = await handle.info(), await handle.next(NEXT_SHOWN)
    if json:
        out.print_json(views.trigger_detail_view(trigger, upcoming, redaction.current()))
    else:
        print_trigger(trigger, upcoming, session.now)


@triggers.command("next", epilog=f"JSON: {keys(views.NextTimesAndState)}.")
@in_session
async def next(
    session: Session,
    id: Id,
    count: Annotated[int, opt.takes("N", "How many to show.", "-n", min=1, max=1000)] = 5,
    json: opt.Json = False,
) -> None:
    """Show the next fire times of a trigger, in its time zone."""
    handle = await session.schedule.get(id)
    trigger, upcoming = await handle.info(), await handle.next(count)
    if json:
        state = views.TriggerState(triggerId=trigger.id, status=trigger.status)
        out.print_json({**state, **views.next_times_view(trigger.id, upcoming)})
        return
    for moment in upcoming:
        out.say(format_time(moment))
    if trigger.status in (TriggerStatus.PAUSED, TriggerStatus.SUSPENDED):
        out.hint(f"it is {trigger.status}: it would fire at these times if resumed now")
    elif not upcoming:
        ended = trigger.status not in UNFINISHED
        out.hint(f"it is {trigger.status} and fires no more" if ended else "no fire time is left")


@triggers.command("fire", epilog=f"JSON: {keys(views.TriggerAsked)}.")
def fire(
    context: typer.Context,
    id: Id,
    app: Annotated[str, opt.takes("APP", "The app that declares the task type: module:attribute.")],
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Submit the trigger's task now, whatever its policies are. Its schedule does not change.

    The code of the app makes the payload, so this command needs the app.
    """

    async def act(loaded: Holdfast) -> tuple[str, Trigger]:
        handle = await loaded.schedule.acting_as(*person()).get(id)
        task = await handle.fire(reason)
        return task.id, await handle.info()

    task_id, trigger = run_on(load_app_for(context, app), act, needs_store=True)
    view = views.TriggerAsked(triggerId=trigger.id, status=trigger.status, taskId=task_id)
    line = Text(f"{trigger.id}  ") + out.status_text(trigger.status) + Text(f"  task {task_id}")
    out.print_answer(view, line, json=json)


def _add_command(name: str, command: Callable[..., Awaitable[TriggerStatus]], help: str) -> None:
    @triggers.command(name, help=help, epilog=f"JSON: {keys(views.TriggerState)}.")
    @in_session
    async def send_command(
        session: Session, id: Id, reason: opt.Reason = "", json: opt.Json = False
    ) -> None:
        handle = await session.schedule.get(id)
        status = await command(handle, reason)
        line = Text(f"{handle.id}  ") + out.status_text(status)
        out.print_answer(views.TriggerState(triggerId=handle.id, status=status), line, json=json)


_add_command("pause", TriggerHandle.pause, "Stop firing until the trigger is resumed.")
_add_command(
    "resume",
    TriggerHandle.resume,
    "Resume a trigger. Its misfire policy decides about the fire times that it missed.",
)
_add_command(
    "cancel",
    TriggerHandle.cancel,
    "End a trigger. One that is declared in code stays ended until its declaration changes.",
)


@triggers.command("add", epilog=f"JSON: {keys(views.TriggerView)}.")
def add(
    context: typer.Context,
    *,
    app: opt.App,
    name: Annotated[str, opt.argument("NAME", "The id of the trigger.")],
    type: Annotated[str, opt.takes("NAME", "The type of the tasks that it creates.")],
    at: Annotated[str | None, opt.takes("TIME", "Fire once: 2026-01-31T03:00:00+08:00.")] = None,
    every: Annotated[str | None, opt.takes("15m", "Fire at this interval, from now on.")] = None,
    cron: Annotated[
        str | None, opt.takes("'0 3 * * *'", "Fire by minute, hour, day, month, weekday.")
    ] = None,
    tz: Annotated[str | None, opt.takes("ZONE", "The time zone of --cron; default: UTC.")] = None,
    payload: opt.Payload = "null",
    tenant: Annotated[str | None, opt.takes("NAME", "The tenant of the tasks.")] = None,
    queue: Annotated[str | None, opt.takes("NAME", "The queue of the tasks.")] = None,
    misfire: Annotated[
        Misfire, typer.Option(help="What to do about missed fire times.")
    ] = Misfire.ONCE,
    overlap: Annotated[
        Overlap, typer.Option(help="What to do while the last task has not ended.")
    ] = Overlap.ALLOW,
    jitter: Annotated[str, opt.duration("30s", "Fire up to this much later, at random.")] = "0s",
    replace: Annotated[bool, opt.flag("--replace", "Replace a trigger of this name.")] = False,
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
    line = Text(f"{trigger.id}  ") + out.status_text(trigger.status) + Text(then)
    out.print_answer(views.trigger_view(trigger, redaction.current()), line, json=json)


def _parse_time(text: str) -> datetime:
    """Parse a point in time; the schedule itself refuses one without a time zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(text, "write a time such as 2026-01-31T03:00:00+08:00") from None
