"""What a person asks over all machines: that a worker drains, that a tenant is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreError
from holdfast.domain.task.task import By
from holdfast.ports import Clock, Store, Switch, SwitchSetting
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker.executor import HeldTenants

log = logging.getLogger("holdfast.worker")

LOOK_SECONDS = 3.0
THREADS_SECONDS = 0.5
HELD, FREE = "held", "free"  # as the audit has them


class DrainableWorker(Protocol):
    """Of a worker, what an order needs."""

    name: str

    @property
    def in_threads(self) -> Collection[str]: ...

    def stop_claiming(self) -> None: ...

    async def drain(self) -> list[str]: ...


class DrainWatch:
    """For one worker, on its loop. ``on_drained`` tells its owner that it has drained by order."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        outages: StoreOutages,
        worker: DrainableWorker,
        holds: HeldTenants,
        on_drained: Callable[[], None] | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._outages = outages
        self._worker = worker
        self._holds = holds
        self._on_drained = on_drained
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> None:
        await sleep(self._clock, LOOK_SECONDS)
        while not await self._is_told_to_drain():
            await sleep(self._clock, LOOK_SECONDS)
        log.info("worker %s is told to drain", self._worker.name)
        self._worker.stop_claiming()
        # A thread cannot be stopped, and this process may live on. Unlike at a process's end there
        # is time: the leases are kept until the last plain function has returned.
        while self._worker.in_threads:
            await sleep(self._clock, THREADS_SECONDS)
        self._draining = asyncio.create_task(self._drain())  # which ends this service, too

    def abandon(self) -> None:
        if self._draining is not None:
            self._draining.cancel()

    async def _is_told_to_drain(self) -> bool:
        try:
            thrown = await self._store.admin.switches()
        except StoreError as error:
            self._outages.note(error)
            return False
        await self._mind_holds([one for one in thrown if one.switch is Switch.HOLD])
        mine = (Switch.DRAIN, self._worker.name)
        return any((one.switch, one.name) == mine for one in thrown)

    async def _mind_holds(self, holds: Sequence[SwitchSetting]) -> None:
        """Know who is held, and remove the holds that are over, unless others took their place."""
        now = self._clock.now()
        over = [one for one in holds if not one.stands(now)]
        self._holds.replace(one.name for one in holds if one.stands(now))
        for one in over:
            entry = Audit(
                task_id=f"tenant:{one.name}",
                command="release",
                by=By(actor="engine", reason="its time is up"),
                at=now,
                before=HELD,
                after=FREE,
            )
            try:
                await self._store.admin.set_switch(
                    Switch.HOLD, one.name, on=True, audit=entry, until=one.until
                )
            except StoreError as error:
                self._outages.note(error)

    async def _drain(self) -> None:
        try:
            await self._worker.drain()
        except Exception:
            log.exception("worker %s has not drained as it should", self._worker.name)
        if self._on_drained is not None:
            self._on_drained()
