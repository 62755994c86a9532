"""`holdfast queues` shows how full the queues are, and pauses and resumes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_table, say
from holdfast.cli.session import Session, person, run
from holdfast.domain.phrases import span
from holdfast.domain.task.placement import Place
from holdfast.engine.operations.queues import named_switches
from holdfast.insight.views.queues import Off, QueueView, queue_views
from holdfast.insight.views.view import keys
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import LIVE_LEASES, Switch

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


@queues.callback()
def of_queues() -> None:
    """Show how full the queues are; pause and resume them on all machines."""


@queues.command(
    "list",
    epilog=f"JSON: queues (each: {keys(QueueView)}; the last two: null, or {keys(Off)}).",
)
def listed(context: typer.Context, json: opt.Json = False) -> None:
    """Show how full each queue is, and who has paused it."""

    async def load(session: Session) -> list[QueueView]:
        found = await _load_snapshot(session)
        return queue_views(found, found.thrown, session.settings.backlog, session.app.redactor)

    found = run(context, load)
    if json:
        print_json({"queues": found})
        return
    print_table([_row(one) for one in found], keep=3, shrinks=SHRINKS)
    if not found:
        hint("no queue has tasks or a live worker")


async def _load_snapshot(session: Session) -> Snapshot:
    store = session.store
    workers = await store.views.workers(live_within_seconds=LIVE_LEASES * session.settings.lease)
    off = await store.admin.switches()
    return Snapshot(stats=await store.views.stats(), workers=tuple(workers), thrown=tuple(off))


def _row(one: QueueView) -> Row:
    return {
        "QUEUE": one["queue"],
        "WAITING": str(one["backlog"]),
        "OLDEST": span(one["oldestAgeSeconds"]) if one["backlog"] else "-",
        "INTAKE": _state(one["intakePaused"]),
        "CLAIMING": _state(one["claimingPaused"]),
        "BY": _joined(off["actor"] for off in _pauses(one)),
        "REASON": _joined(off["reason"] for off in _pauses(one)),
        "LEASED": str(one["places"][Place.LEASED]),
    }


def _state(off: Off | None) -> str:
    return "paused" if off else "on"


def _pauses(one: QueueView) -> list[Off]:
    return [off for off in (one["intakePaused"], one["claimingPaused"]) if off]


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words)) or "-"


@queues.command(epilog=TURNED)
def pause(
    context: typer.Context,
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
    _turn(context, queue, switches, reason, on=False, force=force, json=json)


@queues.command(epilog=TURNED)
def resume(
    context: typer.Context,
    queue: Name,
    *,
    intake: Intake = False,
    claiming: Claiming = False,
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Resume the intake or the claiming of a queue. Without an option, both."""
    switches = named_switches(queue, intake=intake, claiming=claiming)
    _turn(context, queue, switches, reason, on=True, json=json)


def _turn(
    context: typer.Context,
    queue: str,
    switches: tuple[Switch, ...],
    reason: str,
    *,
    on: bool,
    force: bool = False,
    json: bool,
) -> None:
    async def act(session: Session) -> tuple[dict[Switch, bool], bool]:
        queues = session.app.queues.acting_as(*person())
        known = await queues.names()
        changed = await queues.turn(queue, switches, on=on, reason=reason, force=force, known=known)
        return changed, queue in known

    done, known = run(context, act)
    if json:
        told = [{"what": what, "paused": not on, "changed": one} for what, one in done.items()]
        print_json({"queue": queue, "known": known, "switches": told})
        return
    for what, changed in done.items():
        state = "on" if on else "paused"
        say(f"{queue}  {what} {state}" + ("" if changed else ", as it was"))
    if not known:
        hint(f"no task and no live worker uses a queue {queue}: is the name right?")
