"""`holdfast tenants` shows what runs and waits for tenants, and holds and releases them."""

from __future__ import annotations

from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.cli.session import Session, in_session, person
from holdfast.domain.phrases import count
from holdfast.domain.task.envelope import iso
from holdfast.insight.tenant_overview import TenantOverview, overviews
from holdfast.insight.views import tenants as views
from holdfast.insight.views.view import keys
from holdfast.ports import SwitchSetting

tenants = CommandGroup(help="Show what runs and waits for a tenant; hold and release.")

Tenant = Annotated[str, opt.argument("TENANT", "The name of a tenant.")]
Until = Annotated[
    str | None, opt.duration("AGE", "Release the tenant after this time: 30m, 2h. Default: never.")
]


@tenants.command(
    "show",
    epilog=f"JSON: {keys(views.TenantStates, tenants=views.TenantState)}. "
    "Exit code 3: nothing is known of a tenant.",
)
@in_session
async def show(
    session: Session,
    tenants: Annotated[list[str], opt.argument("TENANT", "The names of tenants.")],
    json: opt.Json = False,
) -> int:
    """Show a tenant's active task, line and lock, and what to do."""
    loaded = await overviews(session.app, tenants)
    if json:
        shown = [overview.view(redaction.current()) for overview in loaded]
        out.print_json(views.TenantStates(tenants=shown))
    else:
        for number, overview in enumerate(loaded):
            if number:
                out.say()
            _print_overview(overview)
    known = all(overview.active or overview.latest for overview in loaded)
    return Exit.OK if known else Exit.NOT_FOUND


def _print_overview(overview: TenantOverview) -> None:
    status, view, active = overview.status, overview.lock, overview.active
    checkpoint = "yes" if status.has_checkpoint else "none"
    out.print_fields(
        {
            "tenant": view.tenant,
            "active": active.id if active else "none",
            "status": out.status_text(active.status) if active else None,
            "type": active.type if active else None,
            "stage": active.at_stage if active else None,
            "progress": f"{status.task.progress:.0%}" if status.task else None,
            "checkpoint": checkpoint if active else None,
            "lock": f"{view.locked_by or 'free'}, last fence {view.fence}",
            "waiting": count(view.waiting, "task"),
            "held": _describe_hold(overview.hold) if overview.hold else None,
        }
    )
    for task_id in overview.line:
        out.say(f"            {task_id}")
    if view.waiting > len(overview.line):
        out.say(f"            … and {view.waiting - len(overview.line)} more")
    out.prose(redaction.text(overview.next))


@tenants.command(
    "hold", epilog=f"JSON: {keys(views.HoldState)}. changed: false if it was held already."
)
@in_session
async def hold(
    session: Session,
    tenant: Tenant,
    reason: opt.Reason = "",
    until: Until = None,
    json: opt.Json = False,
) -> None:
    """Hold a tenant: no worker gets its tasks until it is released. A running task is given back
    after its stage.

    Holdfast accepts submissions meanwhile. Retries and rollbacks of the tenant wait as well.
    """
    tenants = session.app.tenants.acting_as(*person())
    answer = await tenants.hold(tenant, reason=reason, until=until)
    view = views.HoldState(
        tenantId=tenant, held=True, changed=answer.changed, waitingFor=answer.waiting_for
    )
    line = f"{tenant}  {answer}{'' if answer.changed else ' (it was held already)'}"
    out.print_answer(view, line, json=json)


@tenants.command("release", epilog=f"JSON: {keys(views.ReleaseState)} (false: it was not held).")
@in_session
async def release(
    session: Session, tenant: Tenant, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """End the hold of a tenant, whoever set it."""
    changed = await session.app.tenants.acting_as(*person()).release(tenant, reason=reason)
    line = f"{tenant}  {'released' if changed else 'was not held'}"
    view = views.ReleaseState(tenantId=tenant, held=False, changed=changed)
    out.print_answer(view, line, json=json)


@tenants.command("holds", epilog=f"JSON: {keys(views.HoldList, holds=views.HoldView)}.")
@in_session
async def holds(session: Session, json: opt.Json = False) -> None:
    """List the held tenants, with who held them, since when and why."""
    holds = await session.app.tenants.holds()
    if json:
        shown = [views.hold_view(hold, redaction.current()) for hold in holds]
        out.print_json(views.HoldList(holds=shown))
        return
    out.print_table([hold_row(hold) for hold in holds], keep=3)
    if not holds:
        out.say("no tenant is held")


def hold_row(hold: SwitchSetting) -> out.Row:
    return {
        "TENANT": hold.name,
        "UNTIL": "released" if hold.until is None else out.iso_seconds(hold.until),
        "SINCE": out.iso_seconds(hold.at),
        "BY": hold.by.actor,
        "REASON": redaction.text(hold.by.reason) or "-",
    }


def _describe_hold(hold: SwitchSetting) -> str:
    reason = redaction.text(hold.by.reason)
    why = f" ({reason})" if reason else ""
    end = f", until {iso(hold.until)}" if hold.until is not None else ""
    return f"since {iso(hold.at)} by {hold.by.actor}{why}{end}"
