"""`holdfast plans` lists plans, shows one, and sends it commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.batch import hint_of_code, warn_of_starting_over
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.commands.plan_create import CREATE_HELP, PLAN_KEYS, create
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.cli.output.plan_view import FailedTask, PlanReport, frame, line, percent, print_plan
from holdfast.cli.output.watch import POLL_SECONDS, follow
from holdfast.cli.pages import Cursor, fill_page
from holdfast.cli.session import Session, in_session
from holdfast.domain import names
from holdfast.domain.errors import PlanNotFound
from holdfast.domain.phrases import span
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import SUSPENDED, MemberState, Plan, PlanStatus
from holdfast.engine.operations.expired_checkpoints import forecast_of_plan
from holdfast.engine.plans.control import PlanControl
from holdfast.engine.plans.handle import PlanInfo, info
from holdfast.insight.views import plans as views
from holdfast.insight.views.view import keys
from holdfast.insight.why.plan import is_driven
from holdfast.ports import Topic
from holdfast.runtime.deadlines import sleep

FAILED = (MemberState.FAILED, MemberState.ROLLBACK_FAILED)
FAILED_READ = 1000
PAGE = 200  # tasks that are loaded at once
EVENTS_PAGE = 1000
EVENTS_READ = 100_000

ASKED_KEYS = keys(views.PlanAsked)

plans = CommandGroup(help="Roll work out over many tenants, wave by wave.")

Id = Annotated[str, opt.argument("ID", "The id of a plan.")]
Statuses = Annotated[list[PlanStatus], opt.STATUS]


@plans.command(
    "list", epilog=f"JSON: {keys(views.PlanPageView, plans=views.PlanView)} (null: the last page)."
)
@in_session
async def list_plans(
    session: Session,
    *,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List plans, the newest first."""

    async def find(limit: int, cursor: Cursor) -> tuple[Sequence[Plan], Cursor]:
        page = await session.store.plans.find(statuses=status, limit=limit, cursor=cursor)
        return page.plans, page.cursor

    page, more = await fill_page(find, limit, cursor)
    now = session.now
    shown = [views.plan_view(info(plan, now=now), redaction.current()) for plan in page]
    out.print_list(
        views.PlanPageView(plans=shown, cursor=more),
        [_row(plan, now) for plan in page],
        json=json,
        empty="no matching plans",
        keep=2,
    )


def _row(plan: Plan, now: float) -> out.Row:
    return {
        "ID": plan.id,
        "STATUS": out.status_text(plan.status),
        "SINCE": span(now - plan.status_since),
        "DONE": percent(plan.progress),
        "TASKS": str(plan.total),
        "WAVE": f"{plan.wave + 1}/{len(plan.waves)}",
        MemberState.FAILED.upper(): str(plan.count(*FAILED)),
        "REASON": redaction.text(plan.reason or "-"),
        "DRIVER": plan.lease.owner if plan.lease else "-",
    }


@plans.command(
    "show",
    epilog="JSON: "
    f"{keys(views.PlanReportView, waves=views.WaveView, failed=views.FailedMember)}; "
    f"with --events: {keys(views.PlanReportWithEvents, without=views.PlanReportView)}.",
)
@in_session
async def show(
    session: Session,
    id: Id,
    events: Annotated[bool, opt.flag("--events", "Show the events, too.")] = False,
    json: opt.Json = False,
) -> None:
    """Show a plan's waves, its failures and the legal commands."""
    report = await _load_report(session, id, events=events)
    if json:
        out.print_json(report.view(redaction.current()))
        return
    print_plan(report, session.now)
    out.hint(await _undriven_warning(session, report.plan))


async def _load_report(session: Session, plan_id: str, *, events: bool) -> PlanReport:
    plan = await _load_plan(session, names.check("plan", plan_id))
    failed, total = await _load_failed(session, plan) if plan.count(*FAILED) else ([], 0)
    return PlanReport(
        plan=plan,
        info=info(plan, now=session.now),
        failed=tuple(failed),
        failed_total=total,
        events=await _load_events(session, plan_id) if events else None,
    )


async def _load_plan(session: Session, plan_id: str) -> Plan:
    [plan] = await session.store.plans.load([plan_id])
    if plan is None:
        raise PlanNotFound(plan_id)
    return plan


async def _load_failed(session: Session, plan: Plan) -> tuple[list[FailedTask], int]:
    """Return the first failed tasks of the plan, and how many there are."""
    members = await session.store.plans.members(plan.id)
    tasks = await session.store.plans.tasks(plan.id)
    failed = sorted(index for index, member in members.items() if member.state in FAILED)
    if tasks is None:  # the plan was pruned meanwhile
        raise PlanNotFound(plan.id)
    loaded: list[FailedTask] = []
    for start in range(0, min(len(failed), FAILED_READ), PAGE):
        page = failed[start : min(start + PAGE, FAILED_READ)]
        records = await session.store.views.load([tasks.ids[index] for index in page])
        loaded += (
            FailedTask(
                task_id=tasks.ids[index],
                tenant=tasks.tenants[index],
                state=members[index].state,
                task=record,
            )
            for index, record in zip(page, records, strict=True)
        )
    return loaded, len(failed)


async def _load_events(session: Session, plan_id: str) -> list[PlanEvent]:
    events: list[PlanEvent] = []
    while len(events) < EVENTS_READ:
        after = events[-1].version if events else 0
        page = await session.store.plans.events(plan_id, limit=EVENTS_PAGE, after_version=after)
        events += page
        if not page:
            break
    return events


def _add_command(
    name: str, command: Callable[..., Awaitable[Plan]], help: str, *, onward: bool = False
) -> None:
    shown = keys(views.PlanRetryAsked) if onward else ASKED_KEYS

    @plans.command(name, help=help, epilog=f"JSON: {shown}.")
    @in_session
    async def send_command(
        session: Session, id: Id, reason: opt.Reason = "", json: opt.Json = False
    ) -> None:
        await _send_command(session, id, command, json=json, onward=onward, reason=reason)


_add_command(
    "pause", PlanControl.pause, "Start no more tasks; running tasks pause after their stage."
)
_add_command(
    "resume",
    PlanControl.resume,
    "Continue the plan. After a halt, the failures of the wave no longer count.",
)
_add_command("cancel", PlanControl.cancel, "Cancel the plan's unsettled tasks, then the plan.")
_add_command(
    "retry",
    PlanControl.retry,
    "Retry the tasks that failed or were rolled back. Then the plan continues.",
    onward=True,
)


@plans.command("rollback", epilog=f"JSON: {ASKED_KEYS}.")
@in_session
async def rollback(
    session: Session,
    *,
    id: Id,
    wave: Annotated[
        int | None, opt.takes("N", "Only the tasks of this wave, counted from 1.", min=1)
    ] = None,
    reason: opt.Reason = "",
    force: Annotated[
        bool, opt.flag("--force", "Act even if newer work of the tenants has run.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Roll back the plan's tasks, completed ones included. The newest come first."""
    command = partial(PlanControl.rollback, wave=wave, force=force)
    await _send_command(session, id, command, json=json, reason=reason)


async def _send_command(
    session: Session,
    plan_id: str,
    command: Callable[..., Awaitable[Plan]],
    *,
    reason: str,
    json: bool,
    onward: bool = False,
) -> None:
    plan_id = names.check("plan", plan_id)
    unknown = await _warn_of_starting_over(session, plan_id) if onward else ()
    plan = await command(session.plans.control, plan_id, reason=reason)
    view = views.asked_plan_view(plan)
    if onward:
        view = views.PlanRetryAsked(**view, codeUnknown=list(unknown))
    asked = "  cancel requested: its tasks are cancelled first" if plan.cancel_requested else ""
    out.print_answer(
        view, Text(f"{plan.id}  ") + out.status_text(plan.status) + Text(asked), json=json
    )
    if not json:
        hint_of_code(unknown)
        out.hint(await _undriven_warning(session, plan))


async def _undriven_warning(session: Session, plan: Plan) -> str:
    """Return a warning if the plan needs a worker to proceed and none is alive."""
    return await session.no_worker_warning() if is_driven(plan) else ""


async def _warn_of_starting_over(session: Session, plan_id: str) -> tuple[str, ...]:
    """Warn of failed tasks that start over when they are retried, and return the types whose code
    is not known here.
    """
    find = session.app.registry.find
    ahead = await forecast_of_plan(session.store, plan_id, now=session.now, find=find)
    warn_of_starting_over(ahead, len(ahead.ids))
    return ahead.code_unknown


@plans.command(
    "watch",
    epilog=f"JSON: a line for each change, each: {PLAN_KEYS}. "
    "Exit code 1: something has failed, and it waits for a person; 130: stopped by Ctrl-C.",
)
@in_session
async def watch(session: Session, id: Id, json: opt.Json = False) -> int:
    """Follow a plan until it ends or waits for a person. Ctrl-C stops watching, not the plan."""
    id = names.check("plan", id)
    if not json:
        out.hint(await _undriven_warning(session, await _load_plan(session, id)))
    last = await follow(
        session,
        poll_plan(session, id),
        view=views.plan_view,
        line=line,
        frame=partial(frame, width=out.console().width),
        json=json,
    )
    return Exit.FAILED if last.status in SUSPENDED else Exit.OK


async def poll_plan(session: Session, plan_id: str) -> AsyncIterator[PlanInfo]:
    """Yield the plan at most once a second, until it has ended or waits for a person."""
    store, clock = session.store, session.clock
    while True:
        ticket, loaded_at = store.ticket(Topic.DUE), clock.steady()
        plan = await _load_plan(session, plan_id)
        yield info(plan, now=session.now)
        if plan.is_stopped:
            return
        await store.wait(Topic.DUE, ticket, timeout=POLL_SECONDS)
        left = POLL_SECONDS - (clock.steady() - loaded_at)
        if left > 0:
            await sleep(clock, left)


plans.command("create", epilog=CREATE_HELP)(create)
