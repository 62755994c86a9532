"""The routes of the doctor, which checks a store and repairs it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body

from holdfast.insight.health import Health, examine
from holdfast.insight.views.health import HealthView, health_view
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf

router = Routes("doctor")

FRESH_SECONDS = 5.0
_READ = "doctor"


class Mending(sc.Reasoned):
    model_config = sc.body_example(reason="after the restore")


@router.get("/internal/doctor", name="look", **needs(Role.VIEWER, everywhere=True))
async def examine_store(service: ServiceOf) -> HealthView:
    """Check the store, and repair nothing. The check reads all tasks, so requests that arrive in
    the meantime or soon after share its answer."""
    health = await service.shared_reads.get(
        _READ, lambda: _examine(service, fix=False), fresh_seconds=FRESH_SECONDS
    )
    return health_view(health, service.app.clock.now())


@router.post("/internal/doctor/fix", name="mend", **needs(Role.ADMIN, everywhere=True))
async def repair_store(
    service: ServiceOf, caller: CallerOf, body: Annotated[Mending | None, Body()] = None
) -> HealthView:
    """Repair the store. The repair covers what can be derived from the rest of the store."""
    async with service.acting_as(caller).record_action(
        "doctor fix", "store", body.reason if body else ""
    ):
        try:
            return health_view(await _examine(service, fix=True), service.app.clock.now())
        finally:
            service.shared_reads.forget(_READ)


async def _examine(service: Service, *, fix: bool) -> Health:
    return await examine(
        service.app.store, fix=fix, lease_seconds=service.settings.lease, hide=service.app.redactor
    )
