"""The drain watch polls the switches that people set: a worker drains, a tenant is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreError
from holdfast.domain.task.task import By
from holdfast.ports import Switch, SwitchSetting
from holdfast.ports.switches import FREE, HELD
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker.executor import HeldTenants

log = logging.getLogger("holdfast.worker")

POLL_SECONDS = 3.0
THREADS_SECONDS = 0.5


class DrainableWorker(Protocol):
    """A worker, as far as a drain needs it."""

    name: str

    @property
    def in_threads(self) -> Collection[str]: ...

    def stop_claiming(self) -> None: ...

    async def drain(self) -> list[str]: ...


class DrainWatch:
    """Watches for one worker, on its loop; ``on_drained`` is called after a drain that it began."""

    def __init__(
        self,
        env: WorkerEnvironment,
        worker: DrainableWorker,
        held_tenants: HeldTenants,
        on_drained: Callable[[], None] | None,
    ) -> None:
        self._store, self._clock, self._outages = env.store, env.clock, env.outages
        self._worker, self._held_tenants, self._on_drained = worker, held_tenants, on_drained
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> None:
        await sleep(self._clock, POLL_SECONDS)
        while not await self._is_to_drain():
            await sleep(self._clock, POLL_SECONDS)
        log.info("worker %s drains, as a person asked", self._worker.name)
        self._worker.stop_claiming()
        # A thread cannot be stopped, and this process may live on. Unlike at a process's end there
        # is time: the leases are kept until the last plain function has returned.
        while self._worker.in_threads:
            await sleep(self._clock, THREADS_SECONDS)
        self._draining = asyncio.create_task(self._drain())  # the drain ends this service, too

    def abandon(self) -> None:
        if self._draining is not None:
            self._draining.cancel()

    async def _is_to_drain(self) -> bool:
        try:
            settings = await self._store.admin.switches()
        except StoreError as error:
            self._outages.note(error)
            return False
        await self._apply_holds([hold for hold in settings if hold.switch is Switch.HOLD])
        mine = (Switch.DRAIN, self._worker.name)
        return any((setting.switch, setting.name) == mine for setting in settings)

    async def _apply_holds(self, holds: Sequence[SwitchSetting]) -> None:
        """Note which tenants are held, and remove holds that are over and were not replaced."""
        now = self._clock.now()
        over = [hold for hold in holds if not hold.stands(now)]
        self._held_tenants.replace(hold.name for hold in holds if hold.stands(now))
        for hold in over:
            entry = Audit(
                task_id=f"tenant:{hold.name}",
                command="release",
                by=By(actor="engine", reason="its time is up"),
                at=now,
                before=HELD,
                after=FREE,
            )
            try:
                await self._store.admin.set_switch(
                    Switch.HOLD, hold.name, on=True, audit=entry, until=hold.until
                )
            except StoreError as error:
                self._outages.note(error)

    async def _drain(self) -> None:
        try:
            await self._worker.drain()
        except Exception:
            log.exception("worker %s failed while it drained", self._worker.name)
        if self._on_drained is not None:
            self._on_drained()
