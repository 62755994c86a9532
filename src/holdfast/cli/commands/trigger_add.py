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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its id.")],
    type: Annotated[str, typer.Option(metavar="NAME", help="The task type that it makes.")],
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Once: 2026-01-31T03:00:00+08:00.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="15m", help="Each interval, from now on.")
    ] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="'0 3 * * *'", help="Minute, hour, day, month, weekday.")
    ] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of --cron: Asia/Shanghai; else UTC.")
    ] = None,
    payload: opt.Payload = "null",
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="For this tenant.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Into this queue.")] = None,
    misfire: Annotated[
        Misfire, typer.Option(help="For times that nobody was there for.")
    ] = Misfire.ONCE,
    overlap: Annotated[
        Overlap, typer.Option(help="While its last task still waits or runs.")
    ] = Overlap.ALLOW,
    jitter: Annotated[str, typer.Option(metavar="30s", help="So much late, at most.")] = "0s",
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of another of this name.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Make a trigger: --at a time, --every so long, or by --cron.

    Asked for again with the same definition, it answers with the trigger that is there.
    """
    name = names.check("trigger", name)
    if [at, every, cron].count(None) != 2:
        raise opt.WrongUsage("give one of --at, --every and --cron")
    if tz is not None and cron is None:
        raise opt.WrongUsage("--tz goes with --cron; --at carries its own offset")
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

    _tell(run_on(named, make), json=json)


def _moment(text: str) -> datetime:
    """One without a zone is refused by the schedule itself."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(text, "a time is written as 2026-01-31T03:00:00+08:00") from None


def _tell(made: Trigger, *, json: bool) -> None:
    if json:
        print_json(trigger_view(made))
        return
    waits = made.fire_time
    then = "" if waits is None else f"  fires at {local(waits, made.schedule)}"
    say(Text(f"{made.id}  ") + status_text(made.status) + Text(then))
