"""The stages that a record names, compared with the stages that were committed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import StageRecord, Task


def describe_mismatch(task: Task, kept: Sequence[StageRecord]) -> str:
    """Describe how the record contradicts the committed stages; empty: it does not."""
    if task.last_completed >= len(task.stages):
        return f"names {len(task.stages)} stages, {task.last_completed + 1} were completed"
    for stage in kept:
        if stage.index <= task.last_completed and task.stages[stage.index] != stage.name:
            named = task.stages[stage.index]
            return f"names {named!r} as stage {stage.index}, but {stage.name!r} was completed there"
    return ""


def recover_names(task: Task, kept: Sequence[StageRecord]) -> tuple[str, ...] | None:
    """Return the stages that the record should name; None: the kept ones do not show it."""
    ran = tuple(stage.name for stage in kept if stage.index <= task.last_completed)
    if len(ran) != task.last_completed + 1 or len(set(ran)) != len(ran):
        return None
    if task.status is Status.COMPLETED:
        return ran
    begun = (task.failure.stage,) if task.begun and task.failure is not None else ()
    return tuple(dict.fromkeys((*ran, *begun, *task.stages)))
