"""`holdfast alerts` prints the active alerts."""

from __future__ import annotations

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_list
from holdfast.cli.session import Session, in_session
from holdfast.insight.monitor import Monitor
from holdfast.insight.views.alerts import ActiveAlert, ActiveAlerts, active_alert_view
from holdfast.insight.views.view import keys

EPILOG = f"JSON: {keys(ActiveAlerts, alerts=ActiveAlert)} (queue → threshold)."


@in_session
async def alerts(session: Session, json: opt.Json = False) -> None:
    """Show the active alerts.

    This command checks the store once. A backlog is compared with HOLDFAST_BACKLOG of this shell,
    so set it as the service does. Only the service knows how long an alert has been active, and
    reports late events (event-lag) and locks without a task (lone-lock; `holdfast doctor` finds
    those, too).
    """
    snapshot = await Monitor(session.app).snapshot()
    active, limits = [active_alert_view(one) for one in snapshot.alerts], session.settings.backlog
    print_list(
        ActiveAlerts(alerts=active, backlog=limits),
        [_row(alert) for alert in active],
        json=json,
        empty="no alert is active",
        keep=3,
    )
    if json:
        return
    judged = ",".join(f"{queue}={limit}" for queue, limit in sorted(limits.items()))
    hint(f"thresholds come from HOLDFAST_BACKLOG in this shell: {judged}")


def _row(alert: ActiveAlert) -> Row:
    return {
        "ALERT": alert["code"],
        "SEVERITY": alert["severity"],
        "QUEUE": alert["queue"] or "-",
        "MESSAGE": alert["says"],
    }
