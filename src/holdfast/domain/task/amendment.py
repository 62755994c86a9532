"""Amendments by an operator to a task that nobody runs: to its checkpoint, payload or data.

The digest of the submitted payload stays, so that the same submit, sent again, still finds the
task.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import CheckpointConflict, CheckpointGone, InvalidInput
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import events as ev
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.operate import OperatorRequest, resume_suspended, stay
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task, apply_command, fact
from holdfast.domain.task.transition import Transition

AMEND = "amend"  # its name in the audit: a retry or a continued rollback, with a correction


class Unreadable(msgspec.Struct, frozen=True):
    """A checkpoint that is stored and cannot be read."""


UNREADABLE = Unreadable()
NONE, NO_VERSION = "no checkpoint (version 0)", "a checkpoint whose version cannot be read"
Stored: TypeAlias = Checkpoint | Unreadable | None  # None: no checkpoint is stored


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """The new values of a task; None: it stays as it is."""

    payload: bytes | None = None
    data: dict[str, Any] | None = None

    @property
    def changed(self) -> tuple[str, ...]:
        given = (("payload", self.payload), ("data", self.data))
        return tuple(name for name, value in given if value is not None)


def amend(
    task: Task,
    ask: OperatorRequest,
    amendment: Amendment,
    checkpoint: Checkpoint | None,
    *,
    force: bool = False,
) -> Transition:
    """Correct a suspended task and set it going, in one step."""
    going = resume_suspended(task, ask, force=force)
    amended = fact(ev.TaskAmended, task, ask.now, by=ask.by, changed=amendment.changed)
    data, saved = amendment.data, None
    if data is not None and checkpoint is not None:
        saved = replace(checkpoint, custom_data=data, version=checkpoint.version + 1)
    return replace(
        going,
        events=(amended, *going.events),
        payload=amendment.payload,
        checkpoint=saved,
        drop_checkpoint=going.drop_checkpoint or saved is not None,
        data=None if data is None else msgspec.json.encode(data),
    )


def check_put(task: Task, ask: OperatorRequest, version: int, stored: Stored) -> Task:
    """Return the task after a checkpoint has replaced this version; 0: none is stored.

    An unreadable checkpoint has no version to compare."""
    after = apply_command(task, Command.PUT_CHECKPOINT, now=ask.now)
    if stored is None and version != 0:
        raise CheckpointConflict(task.id, NONE, version)
    if isinstance(stored, Checkpoint) and stored.version != version:
        raise CheckpointConflict(task.id, stored.version, version)
    return after


def put_checkpoint(
    task: Task, ask: OperatorRequest, checkpoint: Checkpoint, stored: Stored
) -> Transition:
    """Write a checkpoint in place of the version that it was made from."""
    after = check_put(task, ask, checkpoint.version, stored)
    _check(task, checkpoint)
    saved = replace(checkpoint, version=checkpoint.version + 1)
    event = fact(ev.CheckpointPut, task, ask.now, by=ask.by, checkpoint=saved.version)
    # It replaces the stored one, whose version may differ from the one in its body.
    change = stay(task, after, Command.PUT_CHECKPOINT, ask, event)
    return replace(change, checkpoint=saved, drop_checkpoint=True)


def remove_checkpoint(
    task: Task, ask: OperatorRequest, stored: Stored, version: int | None = None
) -> Transition:
    """Delete the checkpoint. ``version``: only this one; None: whichever is stored."""
    after = apply_command(task, Command.REMOVE_CHECKPOINT, now=ask.now)
    if version is None and stored is None:
        raise CheckpointGone(task.id, task.last_completed + 1)
    present = stored.version if isinstance(stored, Checkpoint) else NO_VERSION if stored else NONE
    if version is not None and present != version:
        raise CheckpointConflict(task.id, present, version)
    event = fact(ev.CheckpointRemoved, task, ask.now, by=ask.by)
    change = stay(task, after, Command.REMOVE_CHECKPOINT, ask, event)
    return replace(change, drop_checkpoint=True)


def _check(task: Task, checkpoint: Checkpoint) -> None:
    done = task.stages[: task.last_completed + 1]
    index, names = checkpoint.last_completed_stage_index, checkpoint.completed_stage_names
    if index != task.last_completed or names != done or index < 0:
        what = f"stage {index} and {list(names)}; the record is at {task.last_completed}: {done}"
        raise InvalidInput(f"the checkpoint does not fit task {task.id}: it names {what}")
    ckpt.encode(checkpoint)
