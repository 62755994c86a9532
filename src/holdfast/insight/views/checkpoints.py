"""The JSON views of checkpoints."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.insight.views import fields
from holdfast.insight.views.view import View, about, example

EXAMPLE_CHECKPOINT = {
    "lastCompletedStageIndex": 0,
    "completedStageNames": ["snapshot"],
    "customData": {"limit": 900},
    "timestamp": "2026-01-31T12:00:00Z",
    "version": 3,
}


class CheckpointView(View):
    taskId: fields.TaskId
    checkpoint: Annotated[
        Any, example(EXAMPLE_CHECKPOINT, "null if the task has none. Secrets are hidden")
    ]


class CheckpointState(View):
    taskId: fields.TaskId
    version: Annotated[
        int | None, about("The version of the stored checkpoint; null if there is none")
    ]


def checkpoint_keys() -> str:
    """List the keys of a stored checkpoint for a help text."""
    return ", ".join(field.encode_name for field in msgspec.structs.fields(Checkpoint))
