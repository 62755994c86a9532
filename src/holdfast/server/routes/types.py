"""What can be submitted."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from holdfast.registry import TaskType
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("types")


class TypeView(sc.Answer):
    type: str
    queue: str
    workflow: bool
    hold: bool = Field(description="Its tenant's line stays closed while it rests unsettled")
    stages: list[str]
    payload: dict[str, Any] = Field(description="Its JSON schema")


class TypeList(sc.Answer):
    types: list[TypeView]


@router.get("/api/types", response_model=TypeList, **needs(Role.VIEWER))
async def list_types(service: ServiceOf) -> dict[str, Any]:
    """The task types that this service's code declares."""
    registry = service.app.registry
    found = map(registry.find, registry.names())
    return {"types": [_shape(declared) for declared in found if declared is not None]}


def _shape(declared: TaskType) -> dict[str, Any]:
    return {
        "type": declared.name,
        "queue": declared.queue,
        "workflow": declared.workflow,
        "hold": declared.hold,
        "stages": declared.stage_names,
        "payload": declared.payload.schema(),
    }
