"""`holdfast checkpoints` shows, replaces and removes the checkpoint of a task."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import hint, print_answer, print_json
from holdfast.cli.session import Session, in_session, person
from holdfast.insight.views.checkpoints import CheckpointState, checkpoint_keys
from holdfast.insight.views.view import keys

checkpoints = CommandGroup(help="Show, replace or remove the checkpoint of a task.")

STATE_KEYS = keys(CheckpointState)
EXAMPLE = '{"lastCompletedStageIndex": 0, "completedStageNames": ["a"], …}'
STDIN = "-"

Body = Annotated[str, opt.argument("JSON", "The whole checkpoint; - reads standard input.")]
Version = Annotated[
    int | None, opt.takes("N", "Only this version; default: the stored one.", min=0)
]


@checkpoints.command(
    "get",
    epilog=f"JSON: null, or the checkpoint: {checkpoint_keys()}. Exit code 3: the task has none.",
)
@in_session
async def get(session: Session, id: opt.Id, json: opt.Json = False) -> int:
    """Show the checkpoint from which a task continues. Secrets are hidden."""
    checkpoint = redaction.body((await session.load_detail(id)).checkpoint)
    if checkpoint is None and not json:
        hint(f"task {id} has no checkpoint")
    else:
        print_json(checkpoint)
    return Exit.NOT_FOUND if checkpoint is None else Exit.OK


@checkpoints.command("put", epilog=f"JSON: {STATE_KEYS} (of the checkpoint that is stored now).")
@in_session
async def put(
    session: Session, id: opt.Id, checkpoint: Body, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """Replace the checkpoint that `get` showed. The task stays paused or suspended.

    The command is refused when another version is stored. A value that `get` shows as *** keeps
    its stored value.
    """
    text = typer.get_binary_stream("stdin").read() if checkpoint == STDIN else checkpoint
    given = opt.parse_json_object("the checkpoint", text, EXAMPLE)
    checkpoints = session.app.checkpoints.acting_as(*person())
    stored = await checkpoints.put(id, given, reason=reason, from_view=True)
    line = f"{id}  checkpoint version {stored.version} is stored"
    print_answer(CheckpointState(taskId=id, version=stored.version), line, json=json)


@checkpoints.command("remove", epilog=f"JSON: {STATE_KEYS} (null: none is stored).")
@in_session
async def remove(
    session: Session,
    id: opt.Id,
    version: Version = None,
    reason: opt.Reason = "",
    json: opt.Json = False,
) -> None:
    """Delete the checkpoint. The task can then be rolled back or start over; it cannot continue."""
    checkpoints = session.app.checkpoints.acting_as(*person())
    await checkpoints.remove(id, version=version, reason=reason)
    print_answer(
        CheckpointState(taskId=id, version=None), f"{id}  no checkpoint is stored", json=json
    )
