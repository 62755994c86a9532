"""The service that all routes share: engine, admission, live feeds, limits, counters, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, Request

from holdfast.domain.errors import InvalidSetting
from holdfast.domain.redaction import Redactor
from holdfast.engine import Holdfast
from holdfast.insight.monitor import Monitor
from holdfast.observe.metrics import Metrics
from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.server.auth.access import Caller, RequestAdmission
from holdfast.server.auth.tokens import Token
from holdfast.server.caller_engine import CallerEngine
from holdfast.server.http.bodies import Arrivals
from holdfast.server.http.edge import bounded_connections
from holdfast.server.http.log_lines import LogLines
from holdfast.server.live.live_feed import LiveFeeds
from holdfast.server.live.long_requests import LongRequests
from holdfast.server.live.shared_reads import SharedReads
from holdfast.server.live.task_reads import LargeViews
from holdfast.server.pool import NoPool, Pool
from holdfast.settings import Settings


class Service:
    """The parts that all routes of one serving process share."""

    def __init__(
        self, app: Holdfast, *, tokens: Sequence[Token] = (), pool: Pool | None = None
    ) -> None:
        """Make the service; ``tokens`` are valid in addition to those of the settings' file."""
        self.app = app
        self.settings: Settings = app.settings
        self.metrics = Metrics()
        self.monitor = Monitor(app, lag=self.metrics.worst_event_lag)
        # Results go to those who asked for the work: there only what was declared is hidden.
        self.hide_declared = Redactor(
            app.settings.redact, app.settings.redact_patterns, usual=False
        )
        self.pool = pool or Pool()
        self.leaving = asyncio.Event()  # readiness says so, and connections are told to close
        self.stopping = asyncio.Event()  # those who wait for something long are answered now
        self.lines = LogLines(app.clock.steady)
        self.admission = RequestAdmission(app, self.metrics, self.lines, tokens)
        self.connections = bounded_connections(self.settings, self.metrics, self.lines)
        self.connection_limit = self.connections.limit
        self.feeds = LiveFeeds(app, lag=self.metrics.event_lag)
        self.long_requests = LongRequests(
            self.admission,
            self.metrics,
            self.stopping,
            places=self.connection_limit // 2,
            waits_of_token=self.settings.wait_limit,
        )
        self.arrivals = Arrivals(
            connections=self.connection_limit, of_token=max(1, self.connection_limit // 4)
        )
        self.large_views = LargeViews()
        self.shared_reads = SharedReads(app.clock.steady)

    @asynccontextmanager
    async def running(self, workers: int = 0, **options: Any) -> AsyncIterator[Service]:
        """Open the store, with so many workers in this process."""
        async with self.app.running(workers=workers, **options), self.run_background():
            yield self

    @asynccontextmanager
    async def run_background(self) -> AsyncIterator[None]:
        """Run the background tasks of the service, over an engine that somebody else has opened."""
        self._check_bot()
        monitoring = asyncio.create_task(self.monitor.run())
        try:
            yield
        finally:
            self.stopping.set()
            await cancel_and_wait(monitoring)
            await self.feeds.close()
            await self.long_requests.close()
            await self.shared_reads.close()
            await self.pool.close()

    def _check_bot(self) -> None:
        """Check that the bot's task type is declared and takes its messages."""
        bot, registry = self.app.bot, self.app.registry
        if bot is None:
            return
        if bot.task not in registry.names():
            raise InvalidSetting(bot.task_setting, bot.task, "no such task type is declared here")
        declared = registry.find(bot.task)
        if declared is not None and (problem := bot.refusal(declared)):
            raise InvalidSetting(bot.task_setting, bot.task, problem)

    def acting_as(self, caller: Caller) -> CallerEngine:
        return CallerEngine(self.app, caller, self.large_views)

    def check_is_shared(self) -> None:
        """Refuse an engine on the memory of this process. Other processes would find no work there,
        or would work on the store that this one could not reach at its start."""
        if self.app.in_memory:
            raise NoPool("this service runs on the memory of its own process")


def service_of(request: Request) -> Service:
    found: Service = request.app.state.holdfast
    return found


async def _service(request: Request) -> Service:
    return service_of(request)


ServiceOf = Annotated[Service, Depends(_service)]
