"""`holdfast queues` shows how full the queues are, and pauses and resumes them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_list, say
from holdfast.cli.session import Session, in_session, person
from holdfast.domain.phrases import span
from holdfast.domain.task.placement import Place
from holdfast.engine.operations.queues import named_switches
from holdfast.insight.views.queues import Off, QueueView, queue_views
from holdfast.insight.views.view import keys
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import Switch

SHRINKS = {"BY": 10, "REASON": 10}

queues = typer.Typer(help="Show how full the queues are; pause and resume them.")

TURNED = (
    "JSON: queue, known (false: no task and no live worker uses it), switches (each: what, paused, "
    "changed)."
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of a queue.")]
Intake = Annotated[bool, typer.Option("--intake", help="The intake: submissions are refused.")]
Claiming = Annotated[
    bool,
    typer.Option("--claiming", help="The claiming: waiting tasks stay, running tasks continue."),
]

Force = Annotated[
    bool, typer.Option("--force", help="Also a queue without any task or live worker.")
]


@queues.command(
    "list",
    epilog=f"JSON: queues (each: {keys(QueueView)}; the last two: null, or {keys(Off)}).",
)
@in_session
async def list_queues(session: Session, json: opt.Json = False) -> None:
    """Show how full each queue is, and who has paused it."""
    workers, off = await session.load_workers(), tuple(await session.store.admin.switches())
    stats = await session.store.views.stats()
    state = Snapshot(stats=stats, workers=tuple(workers), switches=off)
    views = queue_views(state, off, session.settings.backlog, session.app.redactor)
    print_list(
        "queues",
        views,
        [_row(view) for view in views],
        json=json,
        empty="no queue has tasks or a live worker",
        keep=3,
        shrinks=SHRINKS,
    )


def _row(view: QueueView) -> Row:
    pauses = [off for off in (view["intakePaused"], view["claimingPaused"]) if off]
    return {
        "QUEUE": view["queue"],
        "WAITING": str(view["backlog"]),
        "OLDEST": span(view["oldestAgeSeconds"]) if view["backlog"] else "-",
        "INTAKE": "paused" if view["intakePaused"] else "on",
        "CLAIMING": "paused" if view["claimingPaused"] else "on",
        "BY": ", ".join(dict.fromkeys(off["actor"] for off in pauses)) or "-",
        "REASON": ", ".join(dict.fromkeys(off["reason"] for off in pauses)) or "-",
        "LEASED": str(view["places"][Place.LEASED]),
    }


@queues.command(epilog=TURNED)
@in_session
async def pause(
    session: Session,
    queue: Name,
    *,
    intake: Intake = False,
    claiming: Claiming = False,
    reason: opt.Reason = "",
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Pause the intake or the claiming of a queue. Without an option, both."""
    switches = named_switches(queue, intake=intake, claiming=claiming)
    await _turn_switches(session, queue, switches, reason, on=False, force=force, json=json)


@queues.command(epilog=TURNED)
@in_session
async def resume(
    session: Session,
    queue: Name,
    *,
    intake: Intake = False,
    claiming: Claiming = False,
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Resume the intake or the claiming of a queue. Without an option, both."""
    switches = named_switches(queue, intake=intake, claiming=claiming)
    await _turn_switches(session, queue, switches, reason, on=True, json=json)


async def _turn_switches(
    session: Session,
    queue: str,
    switches: tuple[Switch, ...],
    reason: str,
    *,
    on: bool,
    force: bool = False,
    json: bool,
) -> None:
    queues = session.app.queues.acting_as(*person())
    names = await queues.names()
    turned = await queues.turn(queue, switches, on=on, reason=reason, force=force, known=names)
    known = queue in names
    if json:
        views = [{"what": what, "paused": not on, "changed": new} for what, new in turned.items()]
        print_json({"queue": queue, "known": known, "switches": views})
        return
    for what, changed in turned.items():
        state = "on" if on else "paused"
        say(f"{queue}  {what} {state}" + ("" if changed else ", as it was"))
    if not known:
        hint(f"no task and no live worker uses a queue {queue}: is the name right?")
