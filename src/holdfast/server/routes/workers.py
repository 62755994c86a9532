"""Workers: who runs, who shall stop, and more or fewer of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path
from pydantic import Field

from holdfast.engine.operations import switches
from holdfast.insight.views import tasks
from holdfast.insight.views.live import worker_shape
from holdfast.ports import LIVE_LEASES
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.pool import LIMIT, PoolState, ProcessState
from holdfast.server.service import ServiceOf

router = Routes("workers")


class WorkerView(sc.Answer):
    worker: str
    host: str
    pid: int
    live: bool
    seen_seconds_ago: float
    queues: list[str]
    types: list[str]
    slots: int
    running: int
    started_at: sc.Time
    draining: bool = Field(description="A person has asked it to stop")


class ProcessView(sc.Answer):
    pid: int | None
    state: ProcessState
    started_at: sc.Time | None
    restarts: int


class PoolView(sc.Answer):
    """The worker processes of this service."""

    wanted: int
    limit: int
    processes: list[ProcessView]


class WorkerList(sc.Answer):
    workers: list[WorkerView]
    pool: PoolView


@router.get("/internal/workers", response_model=WorkerList, **needs(Role.VIEWER, everywhere=True))
async def list_workers(service: ServiceOf) -> dict[str, Any]:
    """All that were seen lately, over all machines, and the processes of this service."""
    store = service.app.store
    draining = await switches.draining(store)
    workers = await store.workers(live_within_seconds=LIVE_LEASES * service.settings.lease)
    return {
        "workers": [worker_shape(worker, draining) for worker in workers],
        "pool": _pool_shape(service.pool.state()),
    }


def _pool_shape(pool: PoolState) -> dict[str, Any]:
    return {
        "wanted": pool.wanted,
        "limit": pool.limit,
        "processes": [
            {
                "pid": one.pid,
                "state": one.state,
                "startedAt": tasks.at(one.started_at),
                "restarts": one.restarts,
            }
            for one in pool.processes
        ],
    }


class Scaling(sc.Sent):
    model_config = sc.example(processes=4, reason="the evening's load")

    processes: Annotated[int, Field(ge=0, le=LIMIT), sc.NUMBER] = Field(
        examples=[4], description="So many in all"
    )
    reason: sc.Reason = ""


@router.post(
    "/internal/workers/scale", response_model=PoolView, **needs(Role.ADMIN, 409, everywhere=True)
)
async def scale_workers(asked: Scaling, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Start worker processes of this service, or stop the newest; those finish what they run."""
    before, after = str(service.pool.state().wanted), str(asked.processes)
    async with service.noting(caller, "scale", "workers", asked.reason, before=before, after=after):
        service.check_is_shared()
        return _pool_shape(await service.pool.scale(asked.processes))


class Draining(sc.Sent):
    model_config = sc.example(reason="the host is taken down")

    reason: sc.Reason = ""


class Drained(sc.Answer):
    worker: str
    changed: bool = Field(description="False: it had been asked already")


@router.post(
    "/internal/workers/{worker}/drain",
    response_model=Drained,
    **needs(Role.ADMIN, 404, everywhere=True),
)
async def drain_worker(
    worker: Annotated[
        str, Path(min_length=1, max_length=300, description="As the list of workers names it")
    ],
    service: ServiceOf,
    caller: CallerOf,
    asked: Annotated[Draining | None, Body()] = None,
) -> dict[str, Any]:
    """It finishes what it runs, takes nothing more, and ends, on whatever machine it is."""
    app, reason = service.app, asked.reason if asked else ""
    changed = await switches.drain_worker(
        app.store,
        worker,
        by=caller.by(reason),
        now=app.clock.now(),
        live_within_seconds=LIVE_LEASES * service.settings.lease,
    )
    return {"worker": worker, "changed": changed}
