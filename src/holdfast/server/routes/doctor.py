"""Does everything agree, and is anything stuck?"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from holdfast.app.health import examine
from holdfast.server import schemas as sc
from holdfast.server.access import CallerOf
from holdfast.server.routes.workers import WorkerView, worker_shape
from holdfast.server.routing import Routes, needs
from holdfast.server.service import Service, ServiceOf
from holdfast.server.tokens import Role

router = Routes("doctor")


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
    """Find what does not agree; nothing is mended."""
    return await _told(service, fix=False)


@router.post(
    "/internal/doctor/fix", response_model=HealthView, **needs(Role.ADMIN, everywhere=True)
)
async def mend(
    service: ServiceOf, caller: CallerOf, asked: Annotated[Mending | None, Body()] = None
) -> dict[str, Any]:
    """Mend what can be derived."""
    async with service.noting(caller, "doctor fix", "store", asked.reason if asked else ""):
        return await _told(service, fix=True)


async def _told(service: Service, *, fix: bool) -> dict[str, Any]:
    health = await examine(
        service.app.store,
        fix=fix,
        lease_seconds=service.settings.lease,
        hide=service.app.redactor,
    )
    told = health.shape(service.app.clock.now())
    return told | {"workers": [worker_shape(worker) for worker in health.workers]}
