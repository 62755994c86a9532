"""The sealer adds audit entries to their chain, in stores that first write them elsewhere."""

from __future__ import annotations

from holdfast.domain.errors import StoreError
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

EVERY_SECONDS = 5.0
IDLE_SECONDS = 60.0  # until the first entry to seal: most stores never have one
BATCH = 500
BATCHES_A_ROUND = 20


class Sealer:
    def __init__(self, env: WorkerEnvironment) -> None:
        self._store, self._clock = env.store, env.clock
        self._pause_seconds = IDLE_SECONDS

    async def run(self) -> None:
        while True:
            try:
                if await self.tick():
                    self._pause_seconds = EVERY_SECONDS
                pause = self._pause_seconds
            except StoreError:
                pause = EVERY_SECONDS  # the timers log the outage
            await sleep(self._clock, pause)

    async def tick(self) -> int:
        sealed = 0
        for _ in range(BATCHES_A_ROUND):
            some = await self._store.admin.seal(limit=BATCH)
            sealed += some
            if some < BATCH:
                break
        return sealed
