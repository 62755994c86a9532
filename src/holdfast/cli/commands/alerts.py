"""`holdfast alerts` prints the active alerts."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_table
from holdfast.cli.session import Session, run
from holdfast.insight.monitor import Monitor
from holdfast.insight.views.alerts import AlertView, alert_view


def alerts(context: typer.Context, json: opt.Json = False) -> None:
    """Show the active alerts.

    They are judged from the present state of the store. A backlog is compared with HOLDFAST_BACKLOG
    as this shell has it: set it as the service does. The service checks all the time. So it also
    knows since when an alert is active, and reports late events (event-lag) and locks without a
    task (lone-lock; here `holdfast doctor` finds those).

    JSON: alerts (each: code, severity, queue, group, says, value, threshold), backlog (queue →
    threshold).
    """

    async def load(session: Session) -> tuple[list[AlertView], Mapping[str, int]]:
        found = await Monitor(session.app).snapshot()
        return [alert_view(one) for one in found.alerts], session.settings.backlog

    found, limits = run(context, load)
    if json:
        shown = [{key: value for key, value in one.items() if key != "since"} for one in found]
        print_json({"alerts": shown, "backlog": limits})
        return
    print_table([_row(one) for one in found], keep=3)
    if not found:
        hint("no alert is active")
    judged = ",".join(f"{queue}={limit}" for queue, limit in sorted(limits.items()))
    hint(f"backlogs are compared with HOLDFAST_BACKLOG of this shell: {judged}")


def _row(one: AlertView) -> Row:
    return {
        "ALERT": one["code"],
        "SEVERITY": one["severity"],
        "QUEUE": one["queue"] or "-",
        "SAYS": one["says"],
    }
