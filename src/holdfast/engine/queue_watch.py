"""A warning in the log about queues to which tasks are submitted and which no worker serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from holdfast.domain.errors import StoreError
from holdfast.ports import LIVE_LEASES, Clock, Store
from holdfast.registry import OWN_QUEUES

AGAIN_SECONDS = 600.0  # a queue is checked no more often than that
QUEUES_MAX = 1_000  # queues whose last check is remembered
LAST_CHECK_SECONDS = 1.0  # a closing app waits so long for checks under way

log = logging.getLogger("holdfast.queues")


class QueueWatch:
    """Checks queues in the background, so that no submit waits for it."""

    def __init__(
        self, store: Store, clock: Clock, *, lease_seconds: float, own: Callable[[], set[str]]
    ) -> None:
        """Watch the queues of a store; ``own`` are those that workers of this process serve."""
        self._store, self._clock = store, clock
        self._live_within_seconds = LIVE_LEASES * lease_seconds
        self._own = own
        self.due: dict[str, float] = {}  # queues that were checked, and when they are checked again
        self._checks: set[asyncio.Task[None]] = set()

    def check(self, queue: str) -> None:
        """Start to check whether a worker serves the queue; a submit calls this when it is due."""
        if len(self.due) >= QUEUES_MAX:
            self.due.clear()
        self.due[queue] = self._clock.steady() + AGAIN_SECONDS
        if queue not in self._own():
            check = asyncio.create_task(self._check(queue))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def _check(self, queue: str) -> None:
        try:
            workers = await self._store.views.workers(live_within_seconds=self._live_within_seconds)
        except StoreError:
            return  # the submit itself raises it
        served = {name for worker in workers if worker.live for name in worker.beat.queues}
        if queue in served:
            return
        others = ", ".join(sorted(served.difference(OWN_QUEUES))) or "none"
        log.warning(
            "no live worker serves queue %r, so its tasks wait; queues that are served: %s",
            queue,
            others,
        )

    async def close(self) -> None:
        if self._checks:
            await asyncio.wait(self._checks, timeout=LAST_CHECK_SECONDS)
        for check in self._checks:
            check.cancel()
