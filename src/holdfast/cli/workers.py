"""`holdfast workers`: who runs, on all machines, and who shall stop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.app import switching
from holdfast.app.live_shapes import worker_shape
from holdfast.app.phrases import span
from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.cli.show import Row, hint, print_json, print_table, say

workers = typer.Typer(help="Who runs, on all machines; ask one to stop.")

Name = Annotated[str, typer.Argument(metavar="WORKER", help="As the list names it.")]


@workers.callback()
def of_workers() -> None:
    """Who runs, on all machines; ask one to stop."""


@workers.command(
    "list",
    epilog="JSON: workers (each: worker, host, pid, live, seenSecondsAgo, queues, types, slots, "
    "running, startedAt, draining).",
)
def listed(context: typer.Context, json: opt.Json = False) -> None:
    """All that were seen lately."""

    async def look(session: Session) -> list[dict[str, Any]]:
        draining = await switching.draining(session.store)
        found = await session.store.workers(live_within_seconds=2 * session.settings.lease)
        return [worker_shape(one, draining) for one in found]

    found = run(context, look)
    if json:
        print_json({"workers": found})
        return
    print_table([_row(one) for one in found], keep=3)
    if not found:
        hint("no worker was seen lately; start one: `holdfast worker APP`")


def _row(one: dict[str, Any]) -> Row:
    state = "draining" if one["draining"] else "live"
    return {
        "WORKER": one["worker"],
        "STATE": state if one["live"] else "gone",
        "BUSY": f"{one['running']}/{one['slots']}",
        "SEEN": f"{span(one['seenSecondsAgo'])} ago",
        "QUEUES": ", ".join(one["queues"]),
    }


@workers.command(epilog="JSON: worker, changed (false: it had been asked already).")
def drain(
    context: typer.Context, worker: Name, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """It finishes what it runs, takes nothing more, and ends, on whatever machine it is."""

    async def act(session: Session) -> bool:
        return await switching.drain_worker(
            session.store,
            worker,
            by=session.by(reason),
            now=session.now,
            live_within_seconds=2 * session.settings.lease,
        )

    changed = run(context, act)
    if json:
        print_json({"worker": worker, "changed": changed})
    else:
        say(f"{worker}  draining" + ("" if changed else ", as it was"))
