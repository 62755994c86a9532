"""`holdfast workers` lists the workers on all machines, and drains one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_table, say
from holdfast.cli.session import Session, run
from holdfast.domain.phrases import span
from holdfast.engine.operations import switches
from holdfast.insight.views.view import keys
from holdfast.insight.views.workers import WorkerView, worker_view
from holdfast.ports import LIVE_LEASES
from holdfast.registry import OWN_QUEUES

workers = typer.Typer(help="List the workers on all machines; drain one.")

SHRINKS = {"QUEUES": 40}  # which it serves is worth more than when it was seen

Name = Annotated[str, typer.Argument(metavar="WORKER", help="The worker's name, as in the list.")]


@workers.callback()
def of_workers() -> None:
    """List the workers on all machines; ask one to drain."""


@workers.command(
    "list",
    epilog=f"JSON: workers (each: {keys(WorkerView)}).",
)
def listed(context: typer.Context, json: opt.Json = False) -> None:
    """List the workers that were seen recently."""

    async def load(session: Session) -> list[WorkerView]:
        draining = await switches.draining(session.store)
        found = await session.store.views.workers(
            live_within_seconds=LIVE_LEASES * session.settings.lease
        )
        return [worker_view(one, draining) for one in found]

    found = run(context, load)
    if json:
        print_json({"workers": found})
        return
    common = {name for name in OWN_QUEUES if all(name in one["queues"] for one in found)}
    print_table([_row(one, common) for one in found], keep=4, shrinks=SHRINKS)
    if not found:
        hint("no worker was seen recently; start one: `holdfast worker APP`")


def _row(one: WorkerView, common: Collection[str]) -> Row:
    state = "draining" if one["draining"] else "live"
    return {
        "WORKER": one["worker"],
        "STATE": state if one["live"] else "gone",
        "BUSY": f"{one['running']}/{one['slots']}" if one["live"] else "-",  # others have its tasks
        "QUEUES": ", ".join(_shown_queues(one["queues"], common)),
        "SEEN": f"{span(one['seenSecondsAgo'])} ago",
    }


def _shown_queues(queues: Sequence[str], common: Collection[str]) -> Sequence[str]:
    """Return the queues to show: the engine's own come last, and only if some worker does not serve
    them.
    """
    told = [name for name in queues if name not in common] or queues
    return sorted(told, key=lambda name: name in OWN_QUEUES)


@workers.command(epilog="JSON: worker, changed (false: it had been asked already).")
def drain(
    context: typer.Context, worker: Name, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """Let a worker finish its tasks, claim no more and exit."""

    async def act(session: Session) -> bool:
        return await switches.drain_worker(
            session.store,
            worker,
            by=session.by(reason),
            now=session.now,
            live_within_seconds=LIVE_LEASES * session.settings.lease,
        )

    changed = run(context, act)
    if json:
        print_json({"worker": worker, "changed": changed})
    else:
        say(f"{worker}  draining" + ("" if changed else ", as it was"))
