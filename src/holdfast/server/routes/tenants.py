"""The routes of tenants: their active task, their line, and holds on them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from pydantic import Field

from holdfast.insight.tenant_overview import overviews
from holdfast.insight.views import tasks as views
from holdfast.insight.views.tenants import HoldList, HoldState, TenantState, TenantStates, hold_view
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.problems import NoSuchTenant
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("tenants")

BATCH_MAX = 200
SECONDS_MAX = 10 * 365 * 86_400.0

# In a route `{tenant:path}`: a tenant's name may have slashes, sent as they are or as %2F.
TenantInPath = Annotated[sc.Tenant, Path(description="The name of a tenant")]


class TenantsQuery(sc.Sent):
    model_config = sc.body_example(tenants=["t-001", "t-002"])

    tenants: Annotated[list[sc.Tenant], Field(min_length=1, max_length=BATCH_MAX)]


@router.get("/internal/holds", **needs(Role.VIEWER))
async def list_holds(service: ServiceOf, caller: CallerOf) -> HoldList:
    """List the tenants that are held."""
    holds = [hold for hold in await service.app.tenants.holds() if caller.sees(hold.name)]
    hide, limited = service.app.redactor, caller.sight.limited
    return {"holds": [hold_view(hold, hide, limited) for hold in holds]}


@router.get("/internal/tenants/{tenant:path}", **needs(Role.VIEWER, 404))
async def show_tenant(tenant: TenantInPath, service: ServiceOf, caller: CallerOf) -> TenantState:
    """Show a tenant: its active task, checkpoint, line and lock, and what to do next."""
    if not caller.sees(tenant):
        raise NoSuchTenant(tenant)
    [overview] = await overviews(service.app, [tenant], caller.sight)
    if overview.active is None and overview.latest is None:
        raise NoSuchTenant(tenant)
    return overview.view(service.app.redactor)


@router.post("/internal/tenants/query", **needs(Role.VIEWER))
async def show_tenants(body: TenantsQuery, service: ServiceOf, caller: CallerOf) -> TenantStates:
    """Show several tenants, in the order of the request. A tenant that nobody knows is shown as
    empty; one that the token is not for is left out."""
    mine = [tenant for tenant in dict.fromkeys(body.tenants) if caller.sees(tenant)]
    shown = await overviews(service.app, mine, caller.sight)
    return {"tenants": [overview.view(service.app.redactor) for overview in shown]}


class Retrying(sc.Reasoned):
    model_config = sc.body_example(reason="the database is back", fromCheckpoint=True)

    from_checkpoint: sc.Flag = True
    force: sc.Flag = False


@router.post("/internal/tenants/{tenant:path}/retry", **needs(Role.OPERATOR, 404, 409))
async def retry_tenant(
    tenant: TenantInPath,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[Retrying | None, Body()] = None,
) -> views.Asked:
    """Retry the tenant's active task, from its checkpoint."""
    [view] = await service.app.store.views.tenants([tenant]) if caller.sees(tenant) else [None]
    if view is None or view.active is None:
        raise NoSuchTenant(tenant)
    body = body or Retrying()
    task = await service.acting_as(caller).control.retry(
        view.active, reason=body.reason, from_checkpoint=body.from_checkpoint, force=body.force
    )
    return views.asked_view(task)


class HoldRequest(sc.Reasoned):
    model_config = sc.body_example(reason="the migration of this customer", seconds=3600)

    seconds: float | None = Field(
        default=None,
        gt=0,
        le=SECONDS_MAX,
        description="The hold is released by itself after this time",
    )


@router.post("/internal/tenants/{tenant:path}/hold", **needs(Role.OPERATOR, 404))
async def hold_tenant(
    tenant: TenantInPath,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[HoldRequest | None, Body()] = None,
) -> HoldState:
    """Hold a tenant. No worker claims its tasks until it is released; submits are accepted."""
    if not caller.sees(tenant):
        raise NoSuchTenant(tenant)
    body = body or HoldRequest()
    until = None if body.seconds is None else service.app.clock.now() + body.seconds
    answer = await service.acting_as(caller).tenants.hold(tenant, reason=body.reason, until=until)
    return HoldState(
        tenantId=tenant, held=True, changed=answer.changed, waitingFor=answer.waiting_for
    )


class ReleaseRequest(sc.Reasoned):
    model_config = sc.body_example(reason="the migration is done")


@router.post("/internal/tenants/{tenant:path}/release", **needs(Role.OPERATOR, 404))
async def release_tenant(
    tenant: TenantInPath,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[ReleaseRequest | None, Body()] = None,
) -> HoldState:
    """Release a tenant, whoever holds it."""
    if not caller.sees(tenant):
        raise NoSuchTenant(tenant)
    reason = body.reason if body else ""
    changed = await service.acting_as(caller).tenants.release(tenant, reason=reason)
    return HoldState(tenantId=tenant, held=False, changed=changed, waitingFor=None)
