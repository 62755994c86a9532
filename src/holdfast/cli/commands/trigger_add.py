"""`holdfast triggers add`: a trigger by a call, as `app.schedule` makes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.apps import load_app_for, payload_of, run_on, type_of
from holdfast.cli.output.printer import print_json, say
from holdfast.cli.output.trigger_view import TRIGGER_KEYS, local, status_text, trigger_view
from holdfast.cli.session import person
from holdfast.domain import names
from holdfast.domain.errors import InvalidSchedule
from holdfast.domain.trigger.trigger import Misfire, Overlap, Trigger
from holdfast.engine import Holdfast
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms

ADD_HELP = f"JSON: {TRIGGER_KEYS}."


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
    named = load_app_for(context, app)
    target = type_of(named, type)
    given = payload_of(target, payload)

    async def make(app: Holdfast) -> Trigger:
        schedule = app.schedule.acting_as(*person())
        made: TriggerHandle[Any]
        if at is not None:
            made = await schedule.at(_moment(at), target, given, replace=replace, **terms)
        elif every is not None:
            made = await schedule.every(every, target, given, replace=replace, **terms)
        else:
            made = await schedule.cron(
                cron or "", target, given, tz=tz or "UTC", replace=replace, **terms
            )
        return await made.info()

    _print_created(run_on(named, make), json=json)


def _moment(text: str) -> datetime:
    """Parse a point in time; the schedule itself refuses one without a time zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(text, "write a time such as 2026-01-31T03:00:00+08:00") from None


def _print_created(made: Trigger, *, json: bool) -> None:
    if json:
        print_json(trigger_view(made))
        return
    waits = made.fire_time
    then = "" if waits is None else f"  fires at {local(waits, made.schedule)}"
    say(Text(f"{made.id}  ") + status_text(made.status) + Text(then))
