"""`holdfast bulk` starts one command for thousands of tasks; the workers carry it out at a rate."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.batch import hint_of_code, warn_of_starting_over
from holdfast.cli.output.bulk_view import (
    BULK_KEYS,
    PREVIEW_KEYS,
    bulk_preview_view,
    bulk_view,
    count_words,
    phase_text,
    print_bulk,
    row,
)
from holdfast.cli.output.bulk_watch import WATCH_HELP, watch
from holdfast.cli.output.printer import Row, hint, print_json, print_table, say, status_text
from holdfast.cli.process.live_workers import no_worker_warning
from holdfast.cli.session import Session, person, run
from holdfast.domain.bulk import BulkCommand, Canary
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput
from holdfast.domain.phrases import count, span
from holdfast.domain.plan.plan import FailureCount, FailureRate, HaltRule
from holdfast.domain.task.state import Status
from holdfast.engine.bulk.actions import ONWARD
from holdfast.engine.bulk.bulks import BulkPage, Bulks
from holdfast.engine.bulk.order import BulkInfo, BulkPreview
from holdfast.engine.operations.expired_checkpoints import Forecast
from holdfast.ports import Filter

bulk = typer.Typer(help="Act on all tasks that match a filter.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a bulk action.")]
What = Annotated[BulkCommand, typer.Argument(help="The command for each task.")]
Plan = Annotated[str | None, typer.Option(metavar="ID", help="Only this plan.")]
Statuses = Annotated[
    list[Status],
    typer.Option(
        "--status",
        metavar="STATUS",
        case_sensitive=False,
        help="Only this status; repeatable. Default: all that allow the command.",
    ),
]
Everything = Annotated[
    bool, typer.Option("--everything", help="Act on all tasks, without a filter.")
]
FromScratch = Annotated[
    bool, typer.Option("--from-scratch", help="With retry: start from the first stage.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
START_HELP = f"JSON: {BULK_KEYS}. With --dry-run: {PREVIEW_KEYS}."


@bulk.command(epilog=f"JSON: {PREVIEW_KEYS}.")
def preview(
    context: typer.Context,
    *,
    command: What,
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    plan: Plan = None,
    error: opt.Error = None,
    older_than: opt.OlderThan = None,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    everything: Everything = False,
    json: opt.Json = False,
) -> None:
    """Show which tasks a bulk action would act on now."""
    filters: dict[str, Any] = {
        "type": type,
        "tenant": tenant,
        "queue": queue,
        "plan": plan,
        "error": error,
    }
    filters |= {"older_than": older_than, "statuses": tuple(status)}
    _preview(context, command, filters, everything=everything, json=json)


@bulk.command(epilog=START_HELP)
def start(
    context: typer.Context,
    *,
    command: What,
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    plan: Plan = None,
    error: opt.Error = None,
    older_than: opt.OlderThan = None,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    everything: Everything = False,
    rate: Annotated[float, typer.Option(metavar="N", help="Tasks per second, 1 to 1000.")] = 50.0,
    canary: Annotated[
        bool, typer.Option("--canary", help="First 1 task, then 10, then the rest; see --stop-at.")
    ] = False,
    steps: Annotated[
        str | None, typer.Option(metavar="1,10", help="The steps of the canary.")
    ] = None,
    stop_at: Annotated[
        str,
        typer.Option(
            metavar="20%|5", help="With --canary: halt when more tasks than this fail again."
        ),
    ] = "20%",
    wait: Annotated[
        str,
        typer.Option(
            metavar="10m", help="With --canary: how long to wait for the tasks of a step."
        ),
    ] = "10m",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Act on at most N tasks.")
    ] = None,
    reason: opt.Reason = "",
    force: opt.Force = False,
    from_scratch: FromScratch = False,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key returns the same bulk action.")
    ] = None,
    dry_run: DryRun = False,
    json: opt.Json = False,
) -> None:
    """Start a bulk action. The workers carry it out and continue it after crashes; you can stop it.

    A task that has changed since the start is left alone, so no task is acted on twice.
    """
    filters: dict[str, Any] = {
        "type": type,
        "tenant": tenant,
        "queue": queue,
        "plan": plan,
        "error": error,
    }
    filters |= {"older_than": older_than, "statuses": tuple(status)}
    if dry_run:
        _preview(
            context, command, filters, everything=everything, json=json, from_scratch=from_scratch
        )
        return
    ahead = _canary(steps, stop_at, wait) if canary or steps else None

    async def begin(session: Session) -> tuple[BulkInfo, str]:
        unknown = await _say_beforehand(
            session, command, filters, everything, from_scratch=from_scratch
        )
        hint_of_code(() if json else unknown)
        begun = await bulks_of(session).start(
            command,
            opt.filtered(session.now, **filters),
            rate=rate,
            canary=ahead,
            reason=reason,
            force=force,
            from_checkpoint=not from_scratch,
            key=key,
            limit=limit,
            everything=everything,
        )
        return await begun.info(), await no_worker_warning(session)

    begun, missing = run(context, begin)
    _print_bulk(begun, json=json)
    if missing:
        hint(missing)
    hint(f"watch it with: holdfast bulk watch {begun.id}")


@bulk.command("list", epilog=f"JSON: bulks (each: {BULK_KEYS}), cursor (null: the last page).")
def list_bulks(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Show at most N.")] = 20,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List bulk actions, the newest first."""

    async def load(session: Session) -> tuple[BulkPage, float]:
        return await session.app.bulk.find(limit=limit, cursor=cursor), session.now

    page, now = run(context, load)
    if json:
        print_json({"bulks": [bulk_view(one) for one in page.bulks], "cursor": page.cursor})
        return
    print_table([row(one, now) for one in page.bulks], keep=3)
    if not page.bulks:
        hint("no bulk actions")
    if page.cursor:
        hint(f"more with --cursor {page.cursor}")


@bulk.command(epilog=f"JSON: {BULK_KEYS}.")
def show(context: typer.Context, id: Id, json: opt.Json = False) -> None:
    """Show the state of one bulk action."""

    async def load(session: Session) -> tuple[BulkInfo, float, str]:
        info = await (await session.app.bulk.get(id)).info()
        missing = "" if info.over else await no_worker_warning(session)
        return info, session.now, missing

    info, now, missing = run(context, load)
    if json:
        print_json(bulk_view(info))
        return
    print_bulk(info, now)
    if missing:
        hint(missing)


def _add_command(name: str, says: str) -> None:
    @bulk.command(name, help=says, epilog=f"JSON: {BULK_KEYS}.")
    def ask(
        context: typer.Context, id: Id, *, reason: opt.Reason = "", json: opt.Json = False
    ) -> None:
        async def whole(session: Session) -> BulkInfo:
            return await bulks_of(session).ask(id, name, reason)

        _print_bulk(run(context, whole), json=json)


_add_command("stop", "End a bulk action within about a second; finished work stays.")
_add_command("pause", "Pause a bulk action.")
_add_command("resume", "Continue a paused or suspended bulk action where it stopped.")

bulk.command(epilog=WATCH_HELP)(watch)


def bulks_of(session: Session) -> Bulks:
    return session.app.bulk.acting_as(*person())


def _preview(
    context: typer.Context,
    command: BulkCommand,
    filters: dict[str, Any],
    *,
    everything: bool,
    json: bool,
    from_scratch: bool = False,
) -> None:
    async def load(session: Session) -> tuple[BulkPreview, float]:
        where: Filter = opt.filtered(session.now, **filters)
        found = await session.app.bulk.preview(
            command, where, everything=everything, from_checkpoint=not from_scratch
        )
        return found, session.now

    found, now = run(context, load)
    if json:
        print_json(bulk_preview_view(found))
        return
    least = "at least " if found.more else ""
    say(f"{command} would act on {least}{count(found.matching, 'task')}")
    if found.refused_now:
        say(f"{found.refused_now} of them would be refused in their present state")
    _warn_of(found)
    hint_of_code(found.code_unknown)
    rows: list[Row] = [
        {
            "ID": one.id,
            "STATUS": status_text(one.status),
            "TYPE": one.type,
            "TENANT": one.tenant or "-",
            "CHANGED": f"{span(now - one.updated_at)} ago",
        }
        for one in found.sample
    ]
    print_table(rows, keep=3)
    if found.matching > len(found.sample):
        hint(f"only the newest {len(found.sample)} are shown")
    hint("this was a dry run: nothing was written")


async def _say_beforehand(
    session: Session,
    command: BulkCommand,
    filters: dict[str, Any],
    everything: bool,
    *,
    from_scratch: bool,
) -> tuple[str, ...]:
    """Say which tasks would start over: a worker may do it as soon as the action has begun.
    Return the types whose code is not known here."""
    if command not in ONWARD:
        return ()
    found = await bulks_of(session).preview(
        command,
        opt.filtered(session.now, **filters),
        everything=everything,
        from_checkpoint=not from_scratch,
    )
    _warn_of(found)
    return found.code_unknown


def _warn_of(found: BulkPreview) -> None:
    warn_of_starting_over(
        Forecast(
            ids=found.starting_over,
            judged=found.checkpoints_judged,
            total=found.checkpoints_to_judge,
        ),
        found.starts_over,
    )


def _print_bulk(info: BulkInfo, *, json: bool) -> None:
    if json:
        print_json(bulk_view(info))
        return
    counted = ", ".join(count_words(info)) if info.matching else str(info.command)
    say(Text(f"{info.id}  ") + phase_text(info.phase) + Text(f"  {counted}"))


def _canary(steps: str | None, stop_at: str, wait: str) -> Canary:
    try:
        numbers = tuple(int(step) for step in (steps or "1,10").split(","))
    except ValueError:
        raise InvalidInput(f"--steps {steps!r}: write numbers with commas, such as 1,10") from None
    return Canary(steps=numbers, stop_at=_rule(stop_at), wait_seconds=seconds(wait))


def _rule(text: str) -> HaltRule:
    try:
        if text.endswith("%"):
            return FailureRate(float(text.removesuffix("%")) / 100)
        return FailureCount(int(text))
    except ValueError:
        raise InvalidInput(
            f"--stop-at {text!r}: write a share such as 20%, or a number such as 5"
        ) from None
