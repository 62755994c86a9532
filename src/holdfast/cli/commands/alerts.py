"""`holdfast alerts` prints the active alerts."""

from __future__ import annotations

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_list
from holdfast.cli.session import Session, in_session
from holdfast.insight.monitor import Monitor
from holdfast.insight.views.alerts import AlertView, alert_view


@in_session
async def alerts(session: Session, json: opt.Json = False) -> None:
    """Show the active alerts.

    They are judged from the present state of the store. A backlog is compared with HOLDFAST_BACKLOG
    as this shell has it: set it as the service does. The service checks all the time. So it also
    knows since when an alert is active, and reports late events (event-lag) and locks without a
    task (lone-lock; here `holdfast doctor` finds those).

    JSON: alerts (each: code, severity, queue, group, says, value, threshold), backlog (queue →
    threshold).
    """
    snapshot = await Monitor(session.app).snapshot()
    active, limits = [alert_view(alert) for alert in snapshot.alerts], session.settings.backlog
    print_list(
        "alerts",
        [{key: value for key, value in alert.items() if key != "since"} for alert in active],
        [_row(alert) for alert in active],
        json=json,
        empty="no alert is active",
        keep=3,
        backlog=limits,
    )
    if json:
        return
    judged = ",".join(f"{queue}={limit}" for queue, limit in sorted(limits.items()))
    hint(f"backlogs are compared with HOLDFAST_BACKLOG of this shell: {judged}")


def _row(alert: AlertView) -> Row:
    return {
        "ALERT": alert["code"],
        "SEVERITY": alert["severity"],
        "QUEUE": alert["queue"] or "-",
        "SAYS": alert["says"],
    }
