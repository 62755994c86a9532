"""`holdfast alerts`: what a person should know now."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_table
from holdfast.cli.session import Session, run
from holdfast.insight.monitor import Monitor
from holdfast.insight.views.alerts import AlertView, alert_view


def alerts(context: typer.Context, json: opt.Json = False) -> None:
    """What a person should know now, judged by one look at the store.

    A backlog is judged by HOLDFAST_BACKLOG as this shell has it: set it as the service does. A
    service looks on and on: it also knows since when, and tells of events that come late
    (event-lag) and of locks that do not agree (lone-lock, which is `holdfast doctor` here).

    JSON: alerts (each: code, severity, queue, group, says, value, threshold), backlog (queue →
    threshold).
    """

    async def look(session: Session) -> tuple[list[AlertView], Mapping[str, int]]:
        found = await Monitor(session.app).snapshot()
        return [alert_view(one) for one in found.alerts], session.settings.backlog

    found, limits = run(context, look)
    if json:
        shown = [{key: value for key, value in one.items() if key != "since"} for one in found]
        print_json({"alerts": shown, "backlog": limits})
        return
    print_table([_row(one) for one in found], keep=3)
    if not found:
        hint("no alert stands")
    judged = ",".join(f"{queue}={limit}" for queue, limit in sorted(limits.items()))
    hint(f"backlogs are judged by HOLDFAST_BACKLOG as it is here: {judged}")


def _row(one: AlertView) -> Row:
    return {
        "ALERT": one["code"],
        "SEVERITY": one["severity"],
        "QUEUE": one["queue"] or "-",
        "SAYS": one["says"],
    }
