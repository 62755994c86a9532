"""`holdfast checkpoints`: show the checkpoint of a task, put one, remove one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.json_input import parse_json_object
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import hint, print_json, say
from holdfast.cli.session import Session, person, run
from holdfast.domain.errors import TaskNotFound

checkpoints = typer.Typer(help="Show, replace or remove the checkpoint of a task.")

KEYS = (
    "lastCompletedStageIndex, completedStageNames, customData, timestamp, version, "
    "executorInstance, stageDurations, failureHistory"
)
EXAMPLE = '{"lastCompletedStageIndex": 0, "completedStageNames": ["a"], …}'
STDIN = "-"

Body = Annotated[
    str, typer.Argument(metavar="JSON", help="The whole checkpoint; - reads standard input.")
]
Version = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Only this version; default: the stored one."),
]


@checkpoints.command(
    epilog=f"JSON: null, or the checkpoint: {KEYS}. Exit code 3: the task has none."
)
def get(context: typer.Context, id: opt.Id, json: opt.Json = False) -> int:
    """Show the checkpoint from which a task continues. Secrets are hidden."""

    async def load(session: Session) -> Any:
        detail = await session.store.views.detail(id)
        if detail is None:
            raise TaskNotFound(id)
        return redaction.body(detail.checkpoint)

    found = run(context, load)
    if found is None and not json:
        hint(f"task {id} has no checkpoint")
    else:
        print_json(found)
    return Exit.NOT_FOUND if found is None else Exit.OK


@checkpoints.command(epilog="JSON: taskId, version (of the checkpoint that is stored now).")
def put(
    context: typer.Context,
    id: opt.Id,
    checkpoint: Body,
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Replace the checkpoint that `get` showed. The task stays paused or suspended.

    It is refused when another version is stored. A value that `get` shows as *** keeps its stored
    value.
    """
    text = typer.get_binary_stream("stdin").read() if checkpoint == STDIN else checkpoint
    given = parse_json_object("the checkpoint", text, EXAMPLE)

    async def ask(session: Session) -> int:
        asker = session.app.checkpoints.acting_as(*person())
        return (await asker.put(id, given, reason=reason, from_view=True)).version

    version = run(context, ask)
    if json:
        print_json({"taskId": id, "version": version})
        return
    say(f"{id}  checkpoint version {version} is stored")


@checkpoints.command(epilog="JSON: taskId, version (null: none is stored).")
def remove(
    context: typer.Context,
    id: opt.Id,
    version: Version = None,
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Delete the checkpoint. The task can then be rolled back or start over; it cannot continue."""

    async def ask(session: Session) -> None:
        asker = session.app.checkpoints.acting_as(*person())
        await asker.remove(id, version=version, reason=reason)

    run(context, ask)
    if json:
        print_json({"taskId": id, "version": None})
        return
    say(f"{id}  no checkpoint is stored")
