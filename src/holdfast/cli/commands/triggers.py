"""`holdfast triggers` lists triggers, shows one, and sends it commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.apps import load_app_for, run_on
from holdfast.cli.commands.trigger_add import ADD_HELP, add
from holdfast.cli.output.printer import hint, print_json, print_table, say
from holdfast.cli.output.trigger_view import (
    DETAIL_KEYS,
    TRIGGER_KEYS,
    detail_view,
    print_trigger,
    status_text,
    trigger_row,
    trigger_view,
    written,
)
from holdfast.cli.session import Session, person, run
from holdfast.domain.trigger.trigger import UNFINISHED, Trigger, TriggerStatus
from holdfast.engine import Holdfast
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.ports import TriggerPage

LOOKS = 50  # a page may come back short; after so many the cursor says where to go on
NEXT_SHOWN = 3

triggers = typer.Typer(help="Submit tasks at a time, at an interval or by cron.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a trigger.")]
Statuses = Annotated[
    list[TriggerStatus],
    typer.Option(
        "--status", metavar="STATUS", case_sensitive=False, help="Only this status; repeatable."
    ),
]


@triggers.command(
    "list", epilog=f"JSON: triggers (each: {TRIGGER_KEYS}), cursor (null: the last page)."
)
def list_triggers(
    context: typer.Context,
    *,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    tenant: opt.Tenant = None,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List triggers by id. FROM is `code` (declared in code) or `call` (created by a call)."""

    async def load(session: Session) -> TriggerPage:
        opt.filtered(session.now, tenant=tenant)
        return await _full_page(session, status, tenant, limit, cursor)

    page = run(context, load)
    if json:
        told = [trigger_view(trigger) for trigger in page.triggers]
        print_json({"triggers": told, "cursor": page.cursor})
        return
    print_table([trigger_row(trigger) for trigger in page.triggers], keep=2)
    if not page.triggers:
        hint("no matching triggers")
    if page.cursor:
        hint(f"more with --cursor {page.cursor}")


async def _full_page(
    session: Session,
    statuses: list[TriggerStatus],
    tenant: str | None,
    limit: int,
    cursor: str | None,
) -> TriggerPage:
    found: list[Trigger] = []
    for _ in range(LOOKS):
        page = await session.schedule.page(
            statuses=statuses, tenant=tenant, limit=limit - len(found), cursor=cursor
        )
        found += page.triggers
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return TriggerPage(triggers=tuple(found), cursor=cursor)


@triggers.command(epilog=f"JSON: {TRIGGER_KEYS}, {DETAIL_KEYS}.")
def show(context: typer.Context, id: Id, json: opt.Json = False) -> None:
    """Show when a trigger fires, its task, policies and state."""

    async def load(session: Session) -> tuple[Trigger, list[datetime], float]:
        handle = await session.schedule.get(id)
        return await handle.info(), await handle.next(NEXT_SHOWN), session.now

    trigger, upcoming, now = run(context, load)
    if json:
        print_json(detail_view(trigger, upcoming))
    else:
        print_trigger(trigger, upcoming, now)


@triggers.command(epilog="JSON: triggerId, status, next.")
def next(
    context: typer.Context,
    id: Id,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=1000, help="How many to show.")
    ] = 5,
    json: opt.Json = False,
) -> None:
    """Show the next fire times of a trigger, in its time zone."""

    async def load(session: Session) -> tuple[Trigger, list[datetime]]:
        handle = await session.schedule.get(id)
        return await handle.info(), await handle.next(count)

    trigger, upcoming = run(context, load)
    if json:
        times = [moment.isoformat() for moment in upcoming]
        print_json({"triggerId": trigger.id, "status": trigger.status, "next": times})
        return
    for moment in upcoming:
        say(written(moment))
    if trigger.status in (TriggerStatus.PAUSED, TriggerStatus.SUSPENDED):
        hint(f"it is {trigger.status}: it would fire at these times if resumed now")
    elif not upcoming:
        ended = trigger.status not in UNFINISHED
        hint(f"it is {trigger.status} and fires no more" if ended else "no fire time is left")


JSON_ASKED = "JSON: triggerId, status."


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

    async def act(named: Holdfast) -> tuple[str, Trigger]:
        handle = await named.schedule.acting_as(*person()).get(id)
        task = await handle.fire(reason)
        return task.id, await handle.info()

    task_id, trigger = run_on(load_app_for(context, app), act, looks_only=True)
    if json:
        print_json({"triggerId": trigger.id, "status": trigger.status, "taskId": task_id})
    else:
        say(Text(f"{trigger.id}  ") + status_text(trigger.status) + Text(f"  task {task_id}"))


@triggers.command(epilog=JSON_ASKED)
def pause(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Stop firing until the trigger is resumed."""
    _send_command(context, id, lambda handle: handle.pause(reason), json=json)


@triggers.command(epilog=JSON_ASKED)
def resume(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Resume a trigger. Its misfire policy decides about the fire times that it missed."""
    _send_command(context, id, lambda handle: handle.resume(reason), json=json)


@triggers.command(epilog=JSON_ASKED)
def cancel(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """End a trigger. One that is declared in code stays ended until its declaration changes."""
    _send_command(context, id, lambda handle: handle.cancel(reason), json=json)


def _send_command(
    context: typer.Context,
    trigger_id: str,
    ask: Callable[[TriggerHandle[Any]], Awaitable[TriggerStatus]],
    *,
    json: bool,
) -> None:
    async def whole(session: Session) -> tuple[str, TriggerStatus]:
        handle = await session.schedule.get(trigger_id)
        return handle.id, await ask(handle)

    found, status = run(context, whole)
    if json:
        print_json({"triggerId": found, "status": status})
    else:
        say(Text(f"{found}  ") + status_text(status))


triggers.command(epilog=ADD_HELP)(add)
