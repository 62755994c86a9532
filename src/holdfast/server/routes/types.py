"""The routes of task types, which say what can be submitted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.insight.views.view import View
from holdfast.registry import TaskType
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.service import ServiceOf

router = Routes("types")

EXAMPLE_SCHEMA = {"type": "object", "properties": {"version": {"type": "integer"}}}


class TypeView(View):
    type: str
    queue: str
    workflow: Annotated[bool, Field(examples=[True])]
    hold: Annotated[
        bool, Field(description="Its tenant's line stays closed while it rests unsettled")
    ]
    stages: tuple[str, ...]
    payload: Annotated[
        dict[str, Any], Field(examples=[EXAMPLE_SCHEMA], description="Its JSON schema")
    ]


class TypeList(View):
    types: list[TypeView]


@router.get("/api/types", **needs(Role.VIEWER))
async def list_types(service: ServiceOf) -> TypeList:
    """The task types that this service's code declares."""
    registry = service.app.registry
    found = map(registry.find, registry.names())
    return {"types": [_view(declared) for declared in found if declared is not None]}


def _view(declared: TaskType) -> TypeView:
    return {
        "type": declared.name,
        "queue": declared.queue,
        "workflow": declared.workflow,
        "hold": declared.hold,
        "stages": declared.stage_names,
        "payload": declared.payload.schema(),
    }
