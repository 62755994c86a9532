"""A word in the log about queues to which tasks are submitted and which no live worker serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from holdfast.domain.errors import StoreError
from holdfast.ports import LIVE_LEASES, Clock, Store
from holdfast.registry import OWN_QUEUES

AGAIN_SECONDS = 600.0  # a queue is looked at no more often than that
QUEUES_MAX = 1_000  # of which it is known when they were looked at
LAST_LOOK_SECONDS = 1.0  # for the looks under way when the app is closed

log = logging.getLogger("holdfast.queues")


class QueueWatch:
    """Looks beside the submits, so that none of them waits for it."""

    def __init__(
        self, store: Store, clock: Clock, *, lease_seconds: float, own: Callable[[], set[str]]
    ) -> None:
        """``own``: the queues that workers of this process serve."""
        self._store, self._clock = store, clock
        self._live_within_seconds = LIVE_LEASES * lease_seconds
        self._own = own
        self._looked: dict[str, float] = {}
        self._looks: set[asyncio.Task[None]] = set()

    def note(self, queue: str) -> None:
        """Look, now and then, whether anybody serves the queue of a task just submitted."""
        now, looked = self._clock.steady(), self._looked.get(queue)
        if looked is not None and now - looked < AGAIN_SECONDS:
            return
        if len(self._looked) >= QUEUES_MAX:
            self._looked.clear()
        self._looked[queue] = now
        if queue not in self._own():
            look = asyncio.create_task(self._look(queue))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def _look(self, queue: str) -> None:
        try:
            workers = await self._store.workers(live_within_seconds=self._live_within_seconds)
        except StoreError:
            return  # whoever submits hears of it
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
        if self._looks:
            await asyncio.wait(self._looks, timeout=LAST_LOOK_SECONDS)
        for look in self._looks:
            look.cancel()
