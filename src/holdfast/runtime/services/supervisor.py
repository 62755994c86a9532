"""The supervisor keeps the services of a worker running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.worker")

RESTART_SECONDS = 1.0


class Supervisor:
    """Restarts a service that failed: a defect must not end the service."""

    def __init__(self, env: WorkerEnvironment) -> None:
        self._worker, self._clock = env.worker, env.clock

    def start(self, service: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._keep_up(service))

    async def _keep_up(self, service: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await service()
            except Exception:
                log.exception("a service of worker %s failed; it is started again", self._worker)
            await sleep(self._clock, RESTART_SECONDS)
