"""The routes of workers: list them, drain one, and scale the processes of this service."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from pydantic import Field

from holdfast.engine.operations import switches
from holdfast.insight.views.workers import Drained, PoolView, WorkerList, worker_view
from holdfast.ports import LIVE_LEASES
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.pool import LIMIT
from holdfast.server.service import ServiceOf

router = Routes("workers")


@router.get("/internal/workers", **needs(Role.VIEWER, everywhere=True))
async def list_workers(service: ServiceOf) -> WorkerList:
    """List the workers on all machines, and the worker processes of this service. A worker is
    listed if it was seen lately."""
    store = service.app.store
    draining = await switches.draining(store)
    workers = await store.views.workers(live_within_seconds=LIVE_LEASES * service.settings.lease)
    return {
        "workers": [worker_view(worker, draining) for worker in workers],
        "pool": service.pool.state(),
    }


class Scaling(sc.Reasoned):
    model_config = sc.body_example(processes=4, reason="the evening's load")

    processes: Annotated[int, Field(ge=0, le=LIMIT), sc.NUMBER] = Field(
        examples=[4], description="The number of processes in all"
    )


@router.post("/internal/workers/scale", **needs(Role.ADMIN, 409, everywhere=True))
async def scale_workers(body: Scaling, service: ServiceOf, caller: CallerOf) -> PoolView:
    """Start or stop worker processes of this service. The newest ones stop first, after they
    have finished their tasks."""
    before, after = str(service.pool.state()["wanted"]), str(body.processes)
    async with service.acting_as(caller).record_action(
        "scale", "workers", body.reason, before=before, after=after
    ):
        service.check_is_shared()
        return await service.pool.scale(body.processes)


class DrainRequest(sc.Reasoned):
    model_config = sc.body_example(reason="the host is taken down")


@router.post("/internal/workers/{worker}/drain", **needs(Role.ADMIN, 404, everywhere=True))
async def drain_worker(
    worker: Annotated[
        str,
        Path(
            min_length=1,
            max_length=300,
            description="The name of a worker, as the list of workers has it",
        ),
    ],
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[DrainRequest | None, Body()] = None,
) -> Drained:
    """Drain a worker on any machine. The worker finishes its tasks, claims no more, and exits."""
    app, reason = service.app, body.reason if body else ""
    changed = await switches.drain_worker(
        app.store,
        worker,
        by=caller.as_actor(reason),
        now=app.clock.now(),
        live_within_seconds=LIVE_LEASES * service.settings.lease,
    )
    return Drained(worker=worker, changed=changed)
