"""The plan service gives each plan that needs it one driver; every worker runs the service.

It polls no more often than there is something to do: a plan that waits for a person is in no
index, one that soaks is claimed when it has soaked, and a write to a plan signals.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.domain.errors import StoreError
from holdfast.domain.plan.plan import Plan
from holdfast.ports import Topic
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.plans.driver import PlanDriver

log = logging.getLogger("holdfast.plans")

AT_ONCE = 200  # plans that one process drives
POLL_SECONDS = 30.0  # the longest pause: only a lost wake-up needs it
LEAST_SECONDS = 0.01  # a plan may be due by another clock before it is due by the store's
TRY_AGAIN_SECONDS = 1.0


class PlanService:
    def __init__(self, env: WorkerEnvironment) -> None:
        self._env = env
        self._store, self._clock, self._outages = env.store, env.clock, env.outages
        self._driven: dict[asyncio.Task[None], PlanDriver] = {}

    async def run(self) -> None:
        while True:
            ticket = self._store.ticket(Topic.DUE)
            try:
                wait_seconds = await self._claim()
            except StoreError as error:
                self._outages.note(error)
                await sleep(self._clock, TRY_AGAIN_SECONDS)
                continue
            await self._store.wait(Topic.DUE, ticket, timeout=wait_seconds)

    async def _claim(self) -> float:
        """Claim plans that need a driver; return how long until the next claim."""
        room = AT_ONCE - len(self._driven)
        if room <= 0:
            return TRY_AGAIN_SECONDS
        due = await self._store.plans.claim(
            self._env.worker, limit=room, lease_seconds=self._env.options.lease_seconds
        )
        for plan in due.plans:
            self._begin(plan)
        if len(due.plans) == room or due.next_seconds is None:
            return TRY_AGAIN_SECONDS if due.plans else POLL_SECONDS
        return min(POLL_SECONDS, max(LEAST_SECONDS, due.next_seconds))

    def _begin(self, plan: Plan) -> None:
        driver = PlanDriver(plan, self._env)
        run = asyncio.create_task(driver.run())
        self._driven[run] = driver
        run.add_done_callback(self._forget)

    def _forget(self, run: asyncio.Task[None]) -> None:
        self._driven.pop(run, None)
        if not run.cancelled() and (error := run.exception()) is not None:
            # A defect. The lease lapses, and somebody tries again.
            log.error("the driver of a plan failed", exc_info=error)

    def abandon(self) -> None:
        """Cancel the drivers, as if the process had died here."""
        for run in self._driven:
            run.cancel()

    async def stop(self) -> None:
        """Give the plans back, so that others may go on with them at once."""
        runs = dict(self._driven)
        self.abandon()
        await asyncio.gather(*runs, return_exceptions=True)
        for driver in runs.values():
            try:
                await driver.give_back()
            except StoreError as error:
                log.warning("a plan could not be given back, its lease will lapse: %s", error)
