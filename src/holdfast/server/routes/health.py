"""The routes of the service itself: liveness, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import Request, Response

from holdfast.domain.errors import StoreError
from holdfast.insight.views.health import Live, Ready
from holdfast.ports import LIVE_LEASES
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.service import ServiceOf

router = Routes("service")

STORE_SECONDS = 3.0  # within which a store that is there answers
FRESH_SECONDS = 1.0  # so long one read serves all: anybody may ask, as often as they like


@router.get("/livez", **needs(None))
async def livez() -> Live:
    """Check that the process runs. The answer does not depend on the store."""
    return {"status": "live"}


@router.get("/readyz", **needs(None))
async def readyz(service: ServiceOf, response: Response) -> Ready:
    """Check that the service is ready. The answer is 503 while the store is out of reach or the
    service stops."""
    reachable, consuming = await service.shared_reads.get(
        "ready", lambda: _probe_store(service), fresh_seconds=FRESH_SECONDS
    )
    stopping = service.leaving.is_set() or service.stopping.is_set()
    ready = reachable and not stopping
    response.status_code = 200 if ready else 503
    store = service.app.store
    return {
        "status": "ready" if ready else "not-ready",
        "store": store.url.partition(":")[0],
        "reachable": reachable,
        "durable": store.durable,
        "degraded": service.app.degraded,
        "consuming": consuming,
        "stopping": stopping,
    }


async def _probe_store(service: ServiceOf) -> tuple[bool, bool]:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            live = LIVE_LEASES * service.settings.lease
            workers = await service.app.store.views.workers(live_within_seconds=live)
    except (StoreError, TimeoutError):
        return False, False
    return True, any(worker.live for worker in workers)


@router.get(
    "/metrics",
    response_class=Response,
    **needs(Role.VIEWER, everywhere=True, also={200: {"content": {"text/plain": {}}}}),
)
async def metrics(service: ServiceOf) -> Response:
    """Show the metrics of the store and of this process, for Prometheus."""
    try:
        snapshot = await service.monitor.snapshot()
    except StoreError:
        snapshot = None
    body = service.metrics.exposition(snapshot)
    return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/openapi.json", response_class=Response, **needs(None))
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document of this service."""
    return Response(msgspec.json.encode(request.app.openapi()), media_type="application/json")
