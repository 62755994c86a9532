"""Workers: who runs, who shall stop, and more or fewer of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from pydantic import Field

from holdfast.engine.operations import switches
from holdfast.insight.views.tasks import at
from holdfast.insight.views.view import Time, View
from holdfast.insight.views.workers import WorkerView, worker_view
from holdfast.ports import LIVE_LEASES
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.pool import LIMIT, PoolState, ProcessState
from holdfast.server.service import ServiceOf

router = Routes("workers")


class ProcessView(View):
    pid: int | None
    state: ProcessState
    startedAt: Time | None
    restarts: int


class PoolView(View):
    """The worker processes of this service."""

    wanted: Annotated[int, Field(examples=[1])]
    limit: Annotated[int, Field(examples=[32])]
    processes: list[ProcessView]


class WorkerList(View):
    workers: list[WorkerView]
    pool: PoolView


@router.get("/internal/workers", **needs(Role.VIEWER, everywhere=True))
async def list_workers(service: ServiceOf) -> WorkerList:
    """All that were seen lately, over all machines, and the processes of this service."""
    store = service.app.store
    draining = await switches.draining(store)
    workers = await store.views.workers(live_within_seconds=LIVE_LEASES * service.settings.lease)
    return {
        "workers": [worker_view(worker, draining) for worker in workers],
        "pool": _pool_view(service.pool.state()),
    }


def _pool_view(pool: PoolState) -> PoolView:
    return {
        "wanted": pool.wanted,
        "limit": pool.limit,
        "processes": [
            {
                "pid": one.pid,
                "state": one.state,
                "startedAt": at(one.started_at),
                "restarts": one.restarts,
            }
            for one in pool.processes
        ],
    }


class Scaling(sc.Reasoned):
    model_config = sc.example(processes=4, reason="the evening's load")

    processes: Annotated[int, Field(ge=0, le=LIMIT), sc.NUMBER] = Field(
        examples=[4], description="So many in all"
    )


@router.post("/internal/workers/scale", **needs(Role.ADMIN, 409, everywhere=True))
async def scale_workers(asked: Scaling, service: ServiceOf, caller: CallerOf) -> PoolView:
    """Start worker processes of this service, or stop the newest; those finish what they run."""
    before, after = str(service.pool.state().wanted), str(asked.processes)
    async with service.acting_as(caller).record_action(
        "scale", "workers", asked.reason, before=before, after=after
    ):
        service.check_is_shared()
        return _pool_view(await service.pool.scale(asked.processes))


class DrainRequest(sc.Reasoned):
    model_config = sc.example(reason="the host is taken down")


class Drained(View):
    worker: str
    changed: Annotated[bool, Field(description="False: it had been asked already")]


@router.post("/internal/workers/{worker}/drain", **needs(Role.ADMIN, 404, everywhere=True))
async def drain_worker(
    worker: Annotated[
        str, Path(min_length=1, max_length=300, description="As the list of workers names it")
    ],
    service: ServiceOf,
    caller: CallerOf,
    asked: Annotated[DrainRequest | None, Body()] = None,
) -> Drained:
    """Ask a worker on any machine to finish what it runs, take nothing more, and end."""
    app, reason = service.app, asked.reason if asked else ""
    changed = await switches.drain_worker(
        app.store,
        worker,
        by=caller.as_actor(reason),
        now=app.clock.now(),
        live_within_seconds=LIVE_LEASES * service.settings.lease,
    )
    return {"worker": worker, "changed": changed}
