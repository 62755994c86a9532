"""How tenants stand, for a person after a restart or in the night."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path
from pydantic import Field, StringConstraints

from holdfast.app import shapes
from holdfast.app.standing import standings
from holdfast.server import schemas as sc
from holdfast.server.access import CallerOf
from holdfast.server.problems import NoSuchTenant
from holdfast.server.routing import Routes, needs
from holdfast.server.service import ServiceOf
from holdfast.server.tokens import Role

router = Routes("tenants")

BATCH_MAX = 200

# In a route `{tenant:path}`: a tenant's name may have slashes, sent as they are or as %2F.
TenantInPath = Annotated[
    str,
    StringConstraints(pattern=sc.GIVEN),
    sc.named("tenant"),
    Path(
        description="A tenant's name",
        examples=["t-001"],
        json_schema_extra=sc.NAME_FORMAT,
    ),
]


class TenantState(sc.Answer):
    tenant_id: str
    active: sc.TaskView | None = Field(
        description="The task that runs or rests unsettled, else the head of its line"
    )
    progress: float | None
    has_checkpoint: bool
    waiting: int
    line: list[str] = Field(description="The first of those that wait behind the active task")
    locked_by: str | None
    fence: int
    latest: sc.TaskView | None
    next: str = Field(description="What to do")


class TenantStates(sc.Answer):
    tenants: list[TenantState]


class TenantsAsked(sc.Sent):
    model_config = sc.example(tenants=["t-001", "t-002"])

    tenants: Annotated[list[sc.Tenant], Field(min_length=1, max_length=BATCH_MAX)]


@router.get(
    "/internal/tenants/{tenant:path}", response_model=TenantState, **needs(Role.VIEWER, 404)
)
async def show_tenant(tenant: TenantInPath, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Active task, checkpoint, line, lock, and what to do next."""
    if not caller.sees(tenant):
        raise NoSuchTenant(tenant)
    [found] = await standings(service.app, [tenant], caller.sight)
    if found.active is None and found.latest is None:
        raise NoSuchTenant(tenant)
    return found.shape(service.app.redactor)


@router.post("/internal/tenants/query", response_model=TenantStates, **needs(Role.VIEWER))
async def show_tenants(asked: TenantsAsked, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Many at once, in their order. Of another's tenant, and of one nobody knows, nothing is told
    but that nothing is there."""
    mine = [tenant for tenant in dict.fromkeys(asked.tenants) if caller.sees(tenant)]
    found = await standings(service.app, mine, caller.sight)
    return {"tenants": [one.shape(service.app.redactor) for one in found]}


class Retrying(sc.Sent):
    model_config = sc.example(reason="the database is back", fromCheckpoint=True)

    reason: sc.Reason = Field(default="", examples=["the database is back"])
    from_checkpoint: sc.Flag = True
    force: sc.Flag = False


@router.post(
    "/internal/tenants/{tenant:path}/retry",
    response_model=sc.Asked,
    **needs(Role.OPERATOR, 404, 409),
)
async def retry_tenant(
    tenant: TenantInPath,
    service: ServiceOf,
    caller: CallerOf,
    asked: Annotated[Retrying | None, Body()] = None,
) -> dict[str, Any]:
    """Retry the tenant's active task, from its checkpoint."""
    [view] = await service.app.store.tenants([tenant]) if caller.sees(tenant) else [None]
    if view is None or view.active is None:
        raise NoSuchTenant(tenant)
    asked = asked or Retrying()
    task = await service.control(caller).retry(
        view.active,
        reason=asked.reason,
        from_checkpoint=asked.from_checkpoint,
        force=asked.force,
    )
    return shapes.asked_shape(task)
