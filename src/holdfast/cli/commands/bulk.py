"""`holdfast bulk` starts one command for thousands of tasks; the workers carry it out at a rate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.batch import hint_of_code, warn_of_starting_over
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import bulk_view, redaction
from holdfast.cli.output import printer as out
from holdfast.cli.output.progress import Estimate
from holdfast.cli.output.watch import POLL_SECONDS, follow
from holdfast.cli.session import Session, in_session, person
from holdfast.domain.bulk import BulkCommand, Canary
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput
from holdfast.domain.phrases import count, span
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.engine.bulk.actions import ONWARD
from holdfast.engine.bulk.bulks import Bulks
from holdfast.engine.bulk.order import BulkInfo, BulkPreview
from holdfast.engine.operations.expired_checkpoints import Forecast
from holdfast.insight.views import bulk as views
from holdfast.insight.views.view import keys
from holdfast.ports import Filter
from holdfast.runtime.deadlines import sleep

bulk = CommandGroup(help="Act on all tasks that match a filter.")

Id = Annotated[str, opt.argument("ID", "The id of a bulk action.")]
What = Annotated[BulkCommand, typer.Argument(help="The command for each task.")]
Statuses = Annotated[
    list[Status],
    opt.takes(
        "STATUS",
        "Only this status; repeatable. Default: all that allow the command.",
        "--status",
        case_sensitive=False,
    ),
]
Everything = Annotated[bool, opt.flag("--everything", "Act on all tasks, without a filter.")]
FromScratch = Annotated[bool, opt.flag("--from-scratch", "With retry: start from the first stage.")]
DryRun = Annotated[bool, opt.flag("--dry-run", "Only show what would be done.")]
BULK_KEYS = keys(views.BulkView)
PREVIEW_KEYS = keys(views.BulkPreviewView, sample=views.SampleView)


def _parse_steps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(step) for step in (text or "1,10").split(","))
    except ValueError:
        raise InvalidInput(f"--steps {text!r}: write numbers with commas, such as 1,10") from None


_parse_stop = partial(opt.halt_rule, "--stop-at")
with_filters = opt.with_filters("type", "tenant", "queue", "plan", "error", "older_than")


@dataclass(frozen=True, slots=True)
class Choice:
    """The command of a bulk action, and the tasks that it is for."""

    command: BulkCommand
    statuses: list[Status]
    filters: opt.Filters
    everything: bool
    from_checkpoint: bool = True

    def where(self, now: float) -> Filter:
        return opt.task_filter(now, statuses=self.statuses, **self.filters)

    async def preview(self, session: Session) -> BulkPreview:
        return await _bulks(session).preview(
            self.command,
            self.where(session.now),
            everything=self.everything,
            from_checkpoint=self.from_checkpoint,
        )


@bulk.command("preview", epilog=f"JSON: {PREVIEW_KEYS}.")
@with_filters
@in_session
async def preview(
    session: Session,
    *,
    command: What,
    filters: opt.Filters,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    everything: Everything = False,
    json: opt.Json = False,
) -> None:
    """Show which tasks a bulk action would act on now."""
    await _print_preview(session, Choice(command, status, filters, everything), json=json)


@bulk.command("start", epilog=f"JSON: {BULK_KEYS}. With --dry-run: {PREVIEW_KEYS}.")
@with_filters
@in_session
async def start(
    session: Session,
    *,
    command: What,
    filters: opt.Filters,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    everything: Everything = False,
    rate: Annotated[float, opt.takes("N", "Tasks per second, 1 to 1000.")] = 50.0,
    canary: Annotated[
        bool, opt.flag("--canary", "First 1 task, then 10, then the rest; see --stop-at.")
    ] = False,
    steps: Annotated[
        str | None, opt.takes("1,10", "The steps of the canary.", check=_parse_steps)
    ] = None,
    stop_at: Annotated[
        str,
        opt.takes("20%|5", "With --canary: halt if more than this fail again.", check=_parse_stop),
    ] = "20%",
    wait: Annotated[
        str, opt.duration("10m", "With --canary: the longest wait for a step's tasks.")
    ] = "10m",
    limit: Annotated[int | None, opt.takes("N", "Act on at most N tasks.", min=1)] = None,
    reason: opt.Reason = "",
    force: opt.Force = False,
    from_scratch: FromScratch = False,
    key: Annotated[
        str | None, opt.takes("KEY", "The same key returns the same bulk action.")
    ] = None,
    dry_run: DryRun = False,
    json: opt.Json = False,
) -> None:
    """Start a bulk action. The workers carry it out and continue it after crashes; you can stop it.

    A task that has changed since the start is left alone, so no task is acted on twice.
    """
    choice = Choice(command, status, filters, everything, from_checkpoint=not from_scratch)
    if dry_run:
        await _print_preview(session, choice, json=json)
        return
    steps_first = _canary(steps, stop_at, wait) if canary or steps else None

    if command in ONWARD:  # before it begins: a worker may then start tasks over at once
        ahead = await choice.preview(session)
        _warn_of(ahead)
        hint_of_code(() if json else ahead.code_unknown)
    begun = await _bulks(session).start(
        command,
        choice.where(session.now),
        rate=rate,
        canary=steps_first,
        reason=reason,
        force=force,
        from_checkpoint=choice.from_checkpoint,
        key=key,
        limit=limit,
        everything=everything,
    )
    _print_state(await begun.info(), json=json)
    out.hint(await session.no_worker_warning())
    out.hint(f"watch it with: holdfast bulk watch {begun.id}")


@bulk.command(
    "list", epilog=f"JSON: {keys(views.BulkPageView, bulks=views.BulkView)} (null: the last page)."
)
@in_session
async def list_bulks(
    session: Session,
    *,
    limit: Annotated[int, opt.takes("N", "Show at most N.", min=1, max=100)] = 20,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List bulk actions, the newest first."""
    page = await session.app.bulk.find(limit=limit, cursor=cursor)
    shown = [views.bulk_view(info, redaction.current()) for info in page.bulks]
    out.print_list(
        views.BulkPageView(bulks=shown, cursor=page.cursor),
        [bulk_view.row(info, session.now) for info in page.bulks],
        json=json,
        empty="no bulk actions",
        keep=3,
    )


@bulk.command("show", epilog=f"JSON: {BULK_KEYS}.")
@in_session
async def show(session: Session, id: Id, json: opt.Json = False) -> None:
    """Show the state of one bulk action."""
    info = await (await session.app.bulk.get(id)).info()
    if json:
        out.print_json(views.bulk_view(info, redaction.current()))
        return
    bulk_view.print_bulk(info, session.now)
    out.hint("" if info.over else await session.no_worker_warning())


def _add_command(name: str, help: str) -> None:
    @bulk.command(name, help=help, epilog=f"JSON: {BULK_KEYS}.")
    @in_session
    async def send_command(
        session: Session, id: Id, *, reason: opt.Reason = "", json: opt.Json = False
    ) -> None:
        _print_state(await _bulks(session).ask(id, name, reason), json=json)


_add_command("stop", "End a bulk action within about a second; finished work stays.")
_add_command("pause", "Pause a bulk action.")
_add_command("resume", "Continue a paused or suspended bulk action where it stopped.")


@bulk.command(
    "watch",
    epilog=f"JSON: a line for each change, each: {BULK_KEYS}. "
    "Exit code 1: it was halted or is suspended; 130: stopped by Ctrl-C.",
)
@in_session
async def watch(session: Session, id: Id, json: opt.Json = False) -> int:
    """Follow a bulk action until it ends or waits for a person. Ctrl-C stops watching, not the
    action.
    """
    estimate = Estimate()
    last = await follow(
        session,
        poll_bulk(session, id),
        view=views.bulk_view,
        line=bulk_view.line,
        frame=lambda info: bulk_view.live_line(info, estimate, session.now),
        json=json,
    )
    return Exit.FAILED if last.phase in bulk_view.WRONG else Exit.OK


async def poll_bulk(session: Session, bulk_id: str) -> AsyncIterator[BulkInfo]:
    """Yield the state every second, until the action has ended or waits for a person."""
    handle = await session.app.bulk.get(bulk_id)
    while True:
        info = await handle.info()
        yield info
        if info.over or info.status in SUSPENDED:
            return
        await sleep(session.clock, POLL_SECONDS)


def _bulks(session: Session) -> Bulks:
    return session.app.bulk.acting_as(*person())


async def _print_preview(session: Session, choice: Choice, *, json: bool) -> None:
    preview, now = await choice.preview(session), session.now
    if json:
        out.print_json(views.bulk_preview_view(preview))
        return
    least = "at least " if preview.more else ""
    out.say(f"{choice.command} would act on {least}{count(preview.matching, 'task')}")
    if preview.refused_now:
        out.say(f"{preview.refused_now} of them would be refused in their present state")
    _warn_of(preview)
    hint_of_code(preview.code_unknown)
    rows: list[out.Row] = [
        {
            "ID": task.id,
            "STATUS": out.status_text(task.status),
            "TYPE": task.type,
            "TENANT": task.tenant or "-",
            "CHANGED": f"{span(now - task.updated_at)} ago",
        }
        for task in preview.sample
    ]
    out.print_table(rows, keep=3)
    if preview.matching > len(rows):
        out.hint(f"only the newest {len(rows)} are shown")
    out.hint("this was a dry run: nothing was written")


def _warn_of(preview: BulkPreview) -> None:
    ahead = Forecast(
        ids=preview.starting_over,
        judged=preview.checkpoints_judged,
        total=preview.checkpoints_to_judge,
    )
    warn_of_starting_over(ahead, preview.starts_over)


def _print_state(info: BulkInfo, *, json: bool) -> None:
    words = ", ".join(bulk_view.count_words(info)) if info.matching else str(info.command)
    state = Text(f"{info.id}  ") + bulk_view.phase_text(info.phase) + Text(f"  {words}")
    out.print_answer(views.bulk_view(info, redaction.current()), state, json=json)


def _canary(steps: str | None, stop_at: str, wait: str) -> Canary:
    numbers = _parse_steps(steps or "1,10")
    return Canary(steps=numbers, stop_at=_parse_stop(stop_at), wait_seconds=seconds(wait))
