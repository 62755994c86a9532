"""The rules by which a half-done task goes on: its checkpoint and the stages of the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint, CheckpointVerdict
from holdfast.domain.task.task import StageRecord, Task
from holdfast.registry import TaskType

UNDO_GONE, UNDO_UNKNOWN = "undo-gone", "undo-unknown"  # what a failure of a rollback is called


class MissingUndo(NamedTuple):
    error: str
    message: str


def at_least(checkpoint: Checkpoint, version: int) -> Checkpoint:
    """Return the checkpoint with a version that the next one can be above: one that was put back
    by hand may have none, and the store compares."""
    if checkpoint.version >= version:
        return checkpoint
    return msgspec.structs.replace(checkpoint, version=version)


def judge(
    checkpoint: Checkpoint | None, declared: TaskType, task: Task, *, now: float
) -> tuple[CheckpointVerdict, str]:
    """Return whether the task can go on after its checkpoint, and why not."""
    if checkpoint is None:
        return CheckpointVerdict.INVALID, "the checkpoint is gone"
    verdict, why = ckpt.judge(
        checkpoint,
        declared.stage_names,
        now=now,
        max_age_seconds=declared.checkpoints.max_age_seconds,
    )
    index, last = checkpoint.last_completed_stage_index, task.last_completed
    if verdict is CheckpointVerdict.GOOD and index != last:
        return CheckpointVerdict.INVALID, f"it is of stage {index}, the record is at stage {last}"
    if verdict is CheckpointVerdict.GOOD and len(declared.stages) == index + 1:
        return (
            CheckpointVerdict.CHANGED,
            "the code has no stage left to run behind the completed ones",
        )
    return verdict, why


def missing_undo(
    task: Task, records: Sequence[StageRecord], declared: TaskType, *, known: bool
) -> MissingUndo | None:
    """Return why the next stage to undo, which has no undo in the code, is not passed over.

    A stage that has no record has not come to its end, and the code alone tells of it. A person
    decides on a record that does not say whether there was an undo: asked for the rollback again,
    it goes on without one (``known``).
    """
    kept = {record.index: record for record in records}
    last = kept.get(task.next_undo)
    if last is None or last.undo is False or (last.undo is None and known):
        return None
    if last.undo:
        name = declared.stages[task.next_undo].name
        return MissingUndo(
            UNDO_GONE,
            f"stage {name!r} had an undo when it ran, and the code has none: deploy it "
            "and ask for the rollback again",
        )
    silent = [
        stage.name
        for index, stage in enumerate(declared.stages[: task.next_undo + 1])
        if stage.undo is None and (record := kept.get(index)) and record.undo is None
    ]
    return MissingUndo(
        UNDO_UNKNOWN,
        f"the code has no undo for {', '.join(reversed(silent))}, and the record is too old to "
        "say whether there was one: deploy it, or ask for the rollback again to go on without",
    )
