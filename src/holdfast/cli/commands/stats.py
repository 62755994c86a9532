"""`holdfast stats` prints counts, transitions and refusals."""

from __future__ import annotations

from holdfast.cli import options as opt
from holdfast.cli.commands.doctor import NOT_DURABLE
from holdfast.cli.commands.tenants import hold_row
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, hint, item, print_json, print_table, say, status_text
from holdfast.cli.session import Session, in_session
from holdfast.domain.phrases import span
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.insight.views.stats import MoveView, StoreCounts, counts_view, mean_dwell_seconds
from holdfast.insight.views.tenants import HOLDS_SHOWN, HoldView, hold_count_view
from holdfast.insight.views.view import keys
from holdfast.ports import Moves, Stats

EPILOG = (
    f"JSON: {keys(StoreCounts, transitions=MoveView, holds=HoldView)}. "
    f'byQueue: queue → place → count; refused: "STATUS command" → count; '
    f"holds: the first {HOLDS_SHOWN}."
)
WAITING = (Place.READY, Place.LINE, Place.LATER, Place.LEASED, Place.PARKED, Place.HELD)


@in_session
async def stats(session: Session, json: opt.Json = False) -> None:
    """Count tasks, transitions, refused commands and held tenants."""
    holds, durable = await session.app.tenants.holds(), session.store.durable
    totals = await session.store.views.stats()
    if json:
        held = hold_count_view(holds, redaction.current())
        view: StoreCounts = {"durable": durable, **counts_view(totals), **held}
        print_json(view)
        return
    counted: list[Row] = [
        {"STATUS": status_text(status), "TASKS": str(totals.by_status.get(status, 0))}
        for status in Status
        if totals.by_status.get(status)
    ]
    if not counted:
        hint("no tasks")
    print_table(counted, keep=2)
    _print_part("queues", [_queue_row(name, totals) for name in sorted(totals.by_queue)])
    _print_part("held tenants", [hold_row(hold) for hold in holds[:HOLDS_SHOWN]])
    if len(holds) > HOLDS_SHOWN:
        hint(f"{len(holds)} tenants are held; `holdfast tenants holds` lists all")
    _print_part("transitions", [_move_row(move) for move in totals.transitions])
    refused = sorted(totals.refused.items())
    _print_part("refused", [{"REFUSED": what, "COUNT": str(count)} for what, count in refused])
    if not durable:
        say()
        item("durable", f"{NOT_DURABLE}; `holdfast doctor` says why", style="yellow")


def _print_part(name: str, rows: list[Row]) -> None:
    if rows:
        say()
        say(name, style="bold")
        print_table(rows, keep=2)


def _queue_row(name: str, totals: Stats) -> Row:
    places = totals.by_queue[name]
    return {"QUEUE": name} | {p.value.upper(): str(places.get(p, 0)) for p in WAITING}


def _move_row(move: Moves) -> Row:
    return {
        "FROM": status_text(move.before),
        "TO": status_text(move.after),
        "COUNT": str(move.count),
        "AFTER (MEAN)": span(mean_dwell_seconds(move)),
    }
