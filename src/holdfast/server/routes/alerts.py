"""The routes of alerts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse

from holdfast.insight.views import tasks
from holdfast.insight.views.alerts import AlertList, alert_view
from holdfast.notify.alerts import Change
from holdfast.observe.alerts import AlertRaised
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http import sse
from holdfast.server.http.route import Routes, needs
from holdfast.server.service import Service, ServiceOf

router = Routes("alerts")

NEWS_MAX = 1000


@router.get("/internal/alerts", **needs(Role.VIEWER, everywhere=True))
async def list_alerts(service: ServiceOf) -> AlertList:
    """List the active alerts. Each service evaluates them by itself, every five seconds."""
    return {"alerts": [alert_view(alert) for alert in service.monitor.alerts]}


@router.get(
    "/internal/alerts/events",
    response_class=StreamingResponse,
    **needs(Role.VIEWER, everywhere=True, also=sse.DOCUMENTED),
)
async def alert_events(service: ServiceOf, caller: CallerOf) -> StreamingResponse:
    """Stream the alerts. The stream begins with `raised` for each active alert, and continues with
    each alert that is `raised` or `cleared`."""
    return service.long_requests.stream(caller, _alert_stream(service))


async def _alert_stream(service: Service) -> AsyncIterator[bytes]:
    news: asyncio.Queue[Change] = asyncio.Queue(NEWS_MAX)

    def receive(change: Change) -> None:
        if not news.full():  # whoever reads so slowly may ask for the list
            news.put_nowait(change)

    leave = service.monitor.subscribe(receive)
    try:
        for alert in service.monitor.alerts:
            yield sse.event("raised", alert_view(alert))
        while True:
            change = await news.get()
            name = "raised" if isinstance(change, AlertRaised) else "cleared"
            yield sse.event(name, {**alert_view(change.alert), "at": tasks.at(change.at)})
    finally:
        leave()
