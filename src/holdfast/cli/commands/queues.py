"""`holdfast queues` shows how full the queues are, and pauses and resumes them."""

from __future__ import annotations

from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.output.printer import Row, hint, print_json, print_list, say
from holdfast.cli.session import Session, in_session, person
from holdfast.domain.phrases import span
from holdfast.domain.task.placement import Place
from holdfast.engine.operations.queues import named_switches
from holdfast.insight.views import queues as views
from holdfast.insight.views.view import keys
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import Switch

SHRINKS = {"BY": 10, "REASON": 10}

queues = CommandGroup(help="Show how full the queues are; pause and resume them.")

TURNED = (
    f"JSON: {keys(views.SwitchesTurned, switches=views.SwitchState)}. "
    "known: false if no task and no live worker uses the queue."
)

Name = Annotated[str, opt.argument("QUEUE", "The name of a queue.")]
PauseIntake = Annotated[
    bool, opt.flag("--intake", "Pause the intake: the queue refuses submissions.")
]
PauseClaiming = Annotated[
    bool, opt.flag("--claiming", "Pause claiming: waiting tasks stay, running tasks continue.")
]
ResumeIntake = Annotated[
    bool, opt.flag("--intake", "Resume the intake: the queue accepts submissions again.")
]
ResumeClaiming = Annotated[
    bool, opt.flag("--claiming", "Resume claiming: workers claim its tasks again.")
]
Force = Annotated[
    bool, opt.flag("--force", "Pause the queue even if no task and no live worker uses it.")
]


@queues.command(
    "list",
    epilog=f"JSON: {keys(views.QueueList, queues=views.QueueView)}. "
    f"intakePaused and claimingPaused: null, or {keys(views.Off)}.",
)
@in_session
async def list_queues(session: Session, json: opt.Json = False) -> None:
    """Show how full each queue is, and who has paused it."""
    workers, off = await session.load_workers(), tuple(await session.store.admin.switches())
    stats = await session.store.views.stats()
    state = Snapshot(stats=stats, workers=tuple(workers), switches=off)
    shown = views.queue_views(state, off, session.settings.backlog, session.app.redactor)
    print_list(
        views.QueueList(queues=shown),
        [_row(view) for view in shown],
        json=json,
        empty="no queue has tasks or a live worker",
        keep=3,
        shrinks=SHRINKS,
    )


def _row(view: views.QueueView) -> Row:
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


@queues.command("pause", epilog=TURNED)
@in_session
async def pause(
    session: Session,
    queue: Name,
    *,
    intake: PauseIntake = False,
    claiming: PauseClaiming = False,
    reason: opt.Reason = "",
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Pause the intake or the claiming of a queue. Without an option, both."""
    switches = named_switches(queue, intake=intake, claiming=claiming)
    await _turn_switches(session, queue, switches, reason, on=False, force=force, json=json)


@queues.command("resume", epilog=TURNED)
@in_session
async def resume(
    session: Session,
    queue: Name,
    *,
    intake: ResumeIntake = False,
    claiming: ResumeClaiming = False,
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
        shown = [
            views.SwitchState(what=views.Valve(switch), paused=not on, changed=changed)
            for switch, changed in turned.items()
        ]
        print_json(views.SwitchesTurned(queue=queue, known=known, switches=shown))
        return
    for what, changed in turned.items():
        state = "on" if on else "paused"
        say(f"{queue}  {what} {state}" + ("" if changed else " (no change)"))
    if not known:
        hint(f"no task and no live worker uses a queue {queue}: is the name right?")
