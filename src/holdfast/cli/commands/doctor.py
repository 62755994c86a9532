"""`holdfast doctor` checks the store for inconsistencies and stuck tasks, and repairs them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.printer import item, print_fields, print_json, say
from holdfast.cli.output.progress import is_watched, progress
from holdfast.cli.session import Session, run
from holdfast.domain.audit import Audit
from holdfast.domain.phrases import count, format_names, span
from holdfast.insight.health import Health, examine
from holdfast.insight.views.health import CheckView, DoctorView, FindingView, doctor_view
from holdfast.insight.views.view import keys
from holdfast.insight.views.workers import WorkerHealth
from holdfast.insight.why.task import format_worker

NOT_DURABLE = "NO: a crash may lose tasks"
EPILOG = (
    f"JSON: {keys(DoctorView, checks=CheckView, findings=FindingView, workers=WorkerHealth)}. "
    "checks: the settings of the store."
)


def doctor(
    context: typer.Context,
    fix: Annotated[
        bool, opt.flag("--fix", "Repair everything that can be rebuilt from the stored records.")
    ] = False,
    json: opt.Json = False,
) -> int:
    """Check the store for inconsistencies and stuck tasks. Exit code 1: something was found."""

    async def load(session: Session) -> tuple[Health, float]:
        watched = is_watched(json=json)
        total = sum((await session.store.views.stats()).by_status.values()) if watched else 0
        with progress("tasks compared", total, shown=watched) as seen:
            health = await examine(
                session.store,
                fix=fix,
                lease_seconds=session.settings.lease,
                hide=session.app.redactor,
                seen=seen,
            )
        if fix:
            await session.store.admin.audit(_repair_entry(session, health))
        return health, session.now

    health, now = run(context, load, shows_settings=True)
    if json:
        print_json(doctor_view(health, now))
    else:
        _print(health, now)
    return Exit.OK if health.clean else Exit.FAILED


def _repair_entry(session: Session, health: Health) -> Audit:
    mended = sum(finding.mended for finding in health.findings)
    return Audit(
        task_id="store",
        command="doctor --fix",
        by=session.operator(""),
        at=session.now,
        before="",
        after=f"{count(mended, 'finding')} mended",
    )


def _print(health: Health, now: float) -> None:
    live = [worker for worker in health.workers if worker.live]
    slots = sum(worker.beat.slots for worker in live)
    running = sum(worker.beat.running for worker in live)
    names = format_names([format_worker(worker) for worker in live or health.workers])
    print_fields(
        {
            "store": health.store,
            "durable": "yes" if health.durable else NOT_DURABLE,
            "workers": f"{len(live)} live, {running} of {slots} slots busy: {names}"
            if live
            else f"none alive; {names}"
            if health.workers
            else "none alive",
            "oldest": f"ready for {span(now - health.oldest.status_since)}: {health.oldest.id}"
            if health.oldest
            else "nothing is ready",
        }
    )
    for check in health.checks:
        marked = "" if check.good else "NOT GOOD: "
        style = None if check.good else "yellow"
        item("setting", f"{check.name}: {marked}{check.message}", style=style)
    for finding in health.findings:
        repaired = " (repaired)" if finding.mended else ""
        where = f"task {finding.task_id}: " if finding.task_id else ""
        item(finding.invariant, f"{where}{finding.message}{repaired}")
    for message in health.stuck:
        item("stuck", message)
    for message in health.waiting:
        item("waits for a person", message, style="yellow")
    if health.clean:
        say("the store is consistent, nothing is stuck", style="green")
    else:
        say(_verdict(health), style="bold red")


def _verdict(health: Health) -> str:
    """Say why the exit code is 1; a setting counts only if it can lose tasks."""
    left = len(health.stuck) + sum(not finding.mended for finding in health.findings)
    bad = sum(not check.good for check in health.checks)
    settings = f"{count(bad, 'setting')} {'is' if bad == 1 else 'are'} not good"
    findings = [count(left, "finding")] if left else []
    return ", ".join(findings if health.durable else [*findings, settings])
