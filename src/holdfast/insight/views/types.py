"""The JSON views of task types."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.insight.views import fields
from holdfast.insight.views.view import View, about, example
from holdfast.registry import TaskType

_SCHEMA = {"type": "object", "properties": {"version": {"type": "integer"}}}


class TypeView(View):
    type: fields.TypeName
    queue: fields.QueueName
    workflow: Annotated[bool, example(True)]
    hold: Annotated[bool, about("True if a parked task keeps its tenant's line closed")]
    stages: fields.StageNames
    payload: Annotated[dict[str, Any], example(_SCHEMA, "The JSON schema of the payload")]


class TypeList(View):
    types: list[TypeView]


def type_view(declared: TaskType) -> TypeView:
    return {
        "type": declared.name,
        "queue": declared.queue,
        "workflow": declared.workflow,
        "hold": declared.hold,
        "stages": declared.stage_names,
        "payload": declared.payload.schema(),
    }
