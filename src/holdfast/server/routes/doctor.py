"""Does everything agree, and is anything stuck?"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from holdfast.insight.health import Health, examine
from holdfast.insight.views.live import worker_shape
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.routes.workers import WorkerView
from holdfast.server.service import Service, ServiceOf

router = Routes("doctor")

FRESH_SECONDS = 5.0
_LOOK = "doctor"


class CheckView(sc.Answer):
    """A setting of the store that decides what a crash may cost."""

    name: str
    good: bool
    says: str


class FindingView(sc.Answer):
    invariant: str = Field(examples=["I11"])
    task_id: str | None
    says: str
    mended: bool


class OldestView(sc.Answer):
    task_id: str
    age_seconds: float


class HealthView(sc.Answer):
    clean: bool
    store: str
    durable: bool
    checks: list[CheckView]
    workers: list[WorkerView]
    oldest_ready: OldestView | None
    findings: list[FindingView]
    stuck: list[str]
    waiting: list[str] = Field(description="For a person")


class Mending(sc.Sent):
    model_config = sc.example(reason="after the restore")

    reason: sc.Reason = ""


@router.get("/internal/doctor", response_model=HealthView, **needs(Role.VIEWER, everywhere=True))
async def look(service: ServiceOf) -> dict[str, Any]:
    """Find what does not agree; nothing is mended. It walks through all tasks: whoever asks
    meanwhile, or soon after, is told what one examination has found."""
    health = await service.looks.at(
        _LOOK, lambda: _examined(service, fix=False), fresh_seconds=FRESH_SECONDS
    )
    return _shape(service, health)


@router.post(
    "/internal/doctor/fix", response_model=HealthView, **needs(Role.ADMIN, everywhere=True)
)
async def mend(
    service: ServiceOf, caller: CallerOf, asked: Annotated[Mending | None, Body()] = None
) -> dict[str, Any]:
    """Mend what can be derived."""
    async with service.noting(caller, "doctor fix", "store", asked.reason if asked else ""):
        try:
            return _shape(service, await _examined(service, fix=True))
        finally:
            service.looks.forget(_LOOK)


async def _examined(service: Service, *, fix: bool) -> Health:
    return await examine(
        service.app.store,
        fix=fix,
        lease_seconds=service.settings.lease,
        hide=service.app.redactor,
    )


def _shape(service: Service, health: Health) -> dict[str, Any]:
    told = health.shape(service.app.clock.now())
    return told | {"workers": [worker_shape(worker) for worker in health.workers]}
