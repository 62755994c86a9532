"""`holdfast workers` lists the workers on all machines, and drains one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.output.printer import Row, print_answer, print_list
from holdfast.cli.session import Session, in_session
from holdfast.domain.phrases import span
from holdfast.engine.operations import switches
from holdfast.insight.views import workers as views
from holdfast.insight.views.view import keys
from holdfast.ports import LIVE_LEASES
from holdfast.registry import OWN_QUEUES

workers = CommandGroup(help="List the workers on all machines; drain one.")

SHRINKS = {"QUEUES": 40}  # the queues matter more than when the worker was seen

Name = Annotated[str, opt.argument("WORKER", "The worker's name, as in the list.")]


@workers.command("list", epilog=f"JSON: {keys(views.LiveWorkers, workers=views.WorkerView)}.")
@in_session
async def list_workers(session: Session, json: opt.Json = False) -> None:
    """List the workers that were seen recently."""
    draining = await switches.draining(session.store)
    shown = [views.worker_view(worker, draining) for worker in await session.load_workers()]
    common = {name for name in OWN_QUEUES if all(name in view["queues"] for view in shown)}
    print_list(
        views.LiveWorkers(workers=shown),
        [_row(view, common) for view in shown],
        json=json,
        empty="no worker was seen recently; start one: `holdfast worker APP`",
        keep=4,
        shrinks=SHRINKS,
    )


def _row(view: views.WorkerView, common: Collection[str]) -> Row:
    state = "draining" if view["draining"] else "live"
    busy = f"{view['running']}/{view['slots']}"
    return {
        "WORKER": view["worker"],
        "STATE": state if view["live"] else "gone",
        "BUSY": busy if view["live"] else "-",  # other workers have its tasks
        "QUEUES": ", ".join(_shown_queues(view["queues"], common)),
        "SEEN": f"{span(view['seenSecondsAgo'])} ago",
    }


def _shown_queues(queues: Sequence[str], common: Collection[str]) -> Sequence[str]:
    """Return the queues to show: the engine's own come last, and only if some worker does not serve
    them.
    """
    shown = [name for name in queues if name not in common] or queues
    return sorted(shown, key=lambda name: name in OWN_QUEUES)


@workers.command("drain", epilog=f"JSON: {keys(views.Drained)} (false: it was draining already).")
@in_session
async def drain(
    session: Session, worker: Name, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """Let a worker finish its tasks, claim no more and exit."""
    changed = await switches.drain_worker(
        session.store,
        worker,
        by=session.operator(reason),
        now=session.now,
        live_within_seconds=LIVE_LEASES * session.settings.lease,
    )
    line = f"{worker}  draining" + ("" if changed else " (no change)")
    print_answer(views.Drained(worker=worker, changed=changed), line, json=json)
