"""The timers sweep lapsed leases and due times: unconditionally, also on an idle queue."""

from __future__ import annotations

import logging

from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.domain.task.crashes import suspect_from
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.timers")

TICK_SECONDS = 0.5
BATCH = 500


class Timers:
    """Every worker runs the timers; each step is atomic in the store, so that many do no harm."""

    def __init__(self, env: WorkerEnvironment) -> None:
        self._store, self._clock, self._outages = env.store, env.clock, env.outages
        self._lease_seconds = env.options.lease_seconds
        self._alone_from = suspect_from(env.options.rules.crash_limit)

    async def run(self) -> None:
        while True:
            try:
                wait_seconds = await self.tick()
                self._outages.over()
            except StoreError as error:
                self._outages.note(error)
                wait_seconds = TICK_SECONDS
            await self._pause(wait_seconds)

    async def _pause(self, seconds: float) -> None:
        """Sleep; after a stop of the whole process let the heartbeat renew our leases first."""
        before = self._clock.steady()
        await sleep(self._clock, seconds)
        if self._clock.steady() - before - seconds > self._lease_seconds / 3:
            self._outages.stood_still()
            await sleep(self._clock, 2 * TICK_SECONDS)

    async def _expire(self, *, count_crashes: bool) -> int:
        """Take back lapsed leases; a part of the store that is away holds up no other."""
        try:
            return await self._store.tasks.expire(
                limit=BATCH, count_crashes=count_crashes, alone_from=self._alone_from
            )
        except PartlyUnavailable as error:
            self._outages.note(error)
            return sum(n for n in error.answers if not isinstance(n, StoreError))

    async def tick(self) -> float:
        """Sweep once; return how long until the next sweep."""
        counted = not self._outages.within(2 * self._lease_seconds)
        lost = await self._expire(count_crashes=counted)
        if lost:
            log.info("leases had lapsed: %d tasks are ready to be taken over", lost)
        due = await self._store.tasks.promote(limit=BATCH)
        if BATCH in (lost, due.count):
            return 0.0
        return TICK_SECONDS if due.next_seconds is None else min(TICK_SECONDS, due.next_seconds)
