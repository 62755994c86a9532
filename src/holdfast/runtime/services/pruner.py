"""The pruner deletes what has outlived its retention, and repairs an inconsistent store."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.domain.errors import StoreError
from holdfast.ports import Finding, Kept
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.pruner")

EVERY_SECONDS = 60.0
BATCH = 500
FINDINGS = 1000  # that one comparison returns
BATCHES_A_ROUND = 20


class Pruner:
    def __init__(self, env: WorkerEnvironment) -> None:
        self._store, self._clock = env.store, env.clock
        self._reconcile_seconds = env.options.reconcile_seconds
        self._ages: dict[Kept, float] = {
            Kept.TASKS: 0.0,  # each has its own ``keep``
            Kept.TRIGGERS: 0.0,  # each has its own ``keep``
            Kept.PLANS: 0.0,  # each has its own ``keep``
            Kept.CHECKPOINTS: env.options.rules.checkpoint_ttl_seconds,
            Kept.TOMBSTONES: 0.0,  # each has its own end
            Kept.AUDIT: env.options.audit_seconds,
            Kept.WORKERS: 3600.0,
        }

    async def run(self) -> None:
        while True:
            await sleep(self._clock, EVERY_SECONDS)
            try:
                await self.tick()
            except StoreError:
                continue  # the timers log the outage

    async def tick(self) -> None:
        for kind, age in self._ages.items():
            for _ in range(BATCHES_A_ROUND):
                pruned = await self._store.admin.prune(
                    kind, older_than_seconds=age, limit=BATCH, dry_run=False
                )
                if pruned < BATCH:
                    break
        if self._reconcile_seconds > 0:
            for finding in await self._reconcile():
                log.warning("doctor finding %s", finding)

    async def _reconcile(self) -> Sequence[Finding]:
        every = self._reconcile_seconds
        return await self._store.admin.doctor(fix=True, limit=FINDINGS, every_seconds=every)
