"""`holdfast plans` lists plans, shows one, and sends it commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.batch import hint_of_code, warn_of_starting_over
from holdfast.cli.commands.plan_create import CREATE_HELP, create
from holdfast.cli.output import redaction
from holdfast.cli.output.plan_json import (
    ASKED_KEYS,
    PLAN_KEYS,
    TERMS_KEYS,
    asked_view,
    plan_view,
    shown_view,
)
from holdfast.cli.output.plan_view import FailedTask, PlanReport, percent, print_plan, status_text
from holdfast.cli.output.plan_watch import WATCH_HELP, watch
from holdfast.cli.output.printer import Row, hint, print_json, print_table, say
from holdfast.cli.process.live_workers import undriven_plan_warning
from holdfast.cli.session import Session, run
from holdfast.domain import names
from holdfast.domain.errors import PlanNotFound
from holdfast.domain.phrases import span
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import MemberState, Plan, PlanStatus
from holdfast.engine.operations.expired_checkpoints import forecast_of_plan
from holdfast.engine.plans.control import PlanControl
from holdfast.engine.plans.handle import info
from holdfast.ports import PlanPage

LOOKS = 50  # a page may come back short; after so many the cursor says where to go on
FAILED = (MemberState.FAILED, MemberState.ROLLBACK_FAILED)
FAILED_READ = 1000
PAGE = 200  # tasks in one look
EVENTS_PAGE = 1000
EVENTS_READ = 100_000

plans = typer.Typer(help="Roll work out over many tenants, wave by wave.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a plan.")]
Statuses = Annotated[
    list[PlanStatus],
    typer.Option(
        "--status", metavar="STATUS", case_sensitive=False, help="Only this status; repeatable."
    ),
]


@plans.command("list", epilog=f"JSON: plans (each: {PLAN_KEYS}), cursor (null: the last page).")
def list_plans(
    context: typer.Context,
    *,
    status: Statuses = [],  # noqa: B006  (Typer copies it)
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List plans, the newest first."""

    async def load(session: Session) -> tuple[PlanPage, float]:
        return await _full_page(session, status, limit, cursor), session.now

    page, now = run(context, load)
    if json:
        told = [plan_view(info(plan, now=now)) for plan in page.plans]
        print_json({"plans": told, "cursor": page.cursor})
        return
    print_table([_row(plan, now) for plan in page.plans], keep=2)
    if not page.plans:
        hint("no matching plans")
    if page.cursor:
        hint(f"more with --cursor {page.cursor}")


async def _full_page(
    session: Session, statuses: list[PlanStatus], limit: int, cursor: str | None
) -> PlanPage:
    found: list[Plan] = []
    for _ in range(LOOKS):
        page = await session.store.plans.find(
            statuses=statuses, limit=limit - len(found), cursor=cursor
        )
        found += page.plans
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return PlanPage(plans=tuple(found), cursor=cursor)


def _row(plan: Plan, now: float) -> Row:
    return {
        "ID": plan.id,
        "STATUS": status_text(plan.status),
        "SINCE": span(now - plan.status_since),
        "DONE": percent(plan.progress),
        "TASKS": str(plan.total),
        "WAVE": f"{plan.wave + 1}/{len(plan.waves)}",
        MemberState.FAILED.upper(): str(plan.count(*FAILED)),
        "SAYS": redaction.text(plan.reason or "-"),
        "DRIVER": plan.lease.owner if plan.lease else "-",
    }


@plans.command(
    epilog=f"JSON: {PLAN_KEYS}; {TERMS_KEYS}, failed (each: taskId, "
    "tenantId, state, error), failedTotal; with --events: events."
)
def show(
    context: typer.Context,
    id: Id,
    events: Annotated[bool, typer.Option("--events", help="Show the events, too.")] = False,
    json: opt.Json = False,
) -> None:
    """Show a plan's waves, its failures and the legal commands."""

    async def load(session: Session) -> tuple[PlanReport, float, str]:
        shown = await _load_report(session, id, events=events)
        return shown, session.now, await undriven_plan_warning(session, shown.plan)

    shown, now, missing = run(context, load)
    if json:
        print_json(shown_view(shown))
        return
    print_plan(shown, now)
    if missing:
        hint(missing)


async def _load_report(session: Session, plan_id: str, *, events: bool) -> PlanReport:
    [plan] = await session.store.plans.load([names.check("plan", plan_id)])
    if plan is None:
        raise PlanNotFound(plan_id)
    found, total = await _failed(session, plan) if plan.count(*FAILED) else ([], 0)
    return PlanReport(
        plan=plan,
        info=info(plan, now=session.now),
        failed=tuple(found),
        failed_total=total,
        events=await _events(session, plan_id) if events else None,
    )


async def _failed(session: Session, plan: Plan) -> tuple[list[FailedTask], int]:
    """Return the first failed tasks of the plan, and how many there are."""
    members = await session.store.plans.members(plan.id)
    tasks = await session.store.plans.tasks(plan.id)
    failed = sorted(index for index, member in members.items() if member.state in FAILED)
    if tasks is None:  # pruned under our hands
        raise PlanNotFound(plan.id)
    found: list[FailedTask] = []
    for start in range(0, min(len(failed), FAILED_READ), PAGE):
        page = failed[start : min(start + PAGE, FAILED_READ)]
        records = await session.store.views.load([tasks.ids[index] for index in page])
        for index, record in zip(page, records, strict=True):
            one = FailedTask(
                task_id=tasks.ids[index],
                tenant=tasks.tenants[index],
                state=members[index].state,
                task=record,
            )
            found.append(one)
    return found, len(failed)


async def _events(session: Session, plan_id: str) -> list[PlanEvent]:
    found: list[PlanEvent] = []
    while len(found) < EVENTS_READ:
        after = found[-1].version if found else 0
        page = await session.store.plans.events(plan_id, limit=EVENTS_PAGE, after_version=after)
        found += page
        if not page:
            break
    return found


ASKED = f"JSON: {ASKED_KEYS}."


@plans.command(epilog=ASKED)
def pause(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Start no more tasks; running tasks pause after their stage."""
    _send_command(context, id, lambda control: control.pause(id, reason=reason), json=json)


@plans.command(epilog=ASKED)
def resume(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Continue the plan. After a halt, the failures of the wave no longer count."""
    _send_command(context, id, lambda control: control.resume(id, reason=reason), json=json)


@plans.command(epilog=ASKED)
def cancel(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Cancel the plan's unsettled tasks, then the plan."""
    _send_command(context, id, lambda control: control.cancel(id, reason=reason), json=json)


@plans.command(epilog=f"JSON: {ASKED_KEYS}, codeUnknown.")
def retry(context: typer.Context, id: Id, reason: opt.Reason = "", json: opt.Json = False) -> None:
    """Retry the tasks that failed or were rolled back. Then the plan continues."""
    _send_command(
        context, id, lambda control: control.retry(id, reason=reason), json=json, onward=True
    )


@plans.command(epilog=ASKED)
def rollback(
    context: typer.Context,
    *,
    id: Id,
    wave: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only the tasks of this wave, counted from 1."),
    ] = None,
    reason: opt.Reason = "",
    force: Annotated[
        bool, typer.Option("--force", help="Act even if newer work of the tenants has run.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Roll back the plan's tasks, completed ones included. The newest come first."""

    def ask(control: PlanControl) -> Awaitable[Plan]:
        return control.rollback(id, wave=wave, force=force, reason=reason)

    _send_command(context, id, ask, json=json)


def _send_command(
    context: typer.Context,
    plan_id: str,
    ask: Callable[[PlanControl], Awaitable[Plan]],
    *,
    json: bool,
    onward: bool = False,
) -> None:
    plan_id = names.check("plan", plan_id)

    async def whole(session: Session) -> tuple[Plan, str, tuple[str, ...]]:
        unknown = await _say_beforehand(session, plan_id) if onward else ()
        plan = await ask(session.plans.control)
        return plan, await undriven_plan_warning(session, plan), unknown

    plan, missing, unknown = run(context, whole)
    if json:
        print_json(asked_view(plan) | ({"codeUnknown": list(unknown)} if onward else {}))
        return
    asked = "  cancel requested: its tasks are cancelled first" if plan.cancel_requested else ""
    say(Text(f"{plan.id}  ") + status_text(plan.status) + Text(asked))
    hint_of_code(unknown)
    if missing:
        hint(missing)


plans.command(epilog=WATCH_HELP)(watch)
plans.command(epilog=CREATE_HELP)(create)


async def _say_beforehand(session: Session, plan_id: str) -> tuple[str, ...]:
    """Warn of failed tasks that start over when they are retried, and return the types whose code
    is not known here.
    """
    find = session.app.registry.find
    ahead = await forecast_of_plan(session.store, plan_id, now=session.now, find=find)
    warn_of_starting_over(ahead, len(ahead.ids))
    return ahead.code_unknown
