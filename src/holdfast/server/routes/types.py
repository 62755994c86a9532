"""The routes of task types, which say what can be submitted."""

from __future__ import annotations

from holdfast.insight.views.types import TypeList, type_view
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.service import ServiceOf

router = Routes("types")


@router.get("/api/types", **needs(Role.VIEWER))
async def list_types(service: ServiceOf) -> TypeList:
    """List the task types that this service's code declares."""
    registry = service.app.registry
    declarations = map(registry.find, registry.names())
    return {"types": [type_view(declared) for declared in declarations if declared is not None]}
