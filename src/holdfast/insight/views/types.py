"""The JSON views of task types."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.insight.views import fields
from holdfast.insight.views.view import View, example
from holdfast.registry import TaskType

_SCHEMA = {"type": "object", "properties": {"version": {"type": "integer"}}}


class TypeView(View):
    type: fields.TypeName
    queue: fields.QueueName
    workflow: Annotated[bool, example(True)]
    hold: Annotated[
        bool, Field(description="True if an unsettled task of it keeps its tenant's line closed")
    ]
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
