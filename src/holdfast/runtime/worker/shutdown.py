"""The shutdown of a worker: it drains, and gives back what it cannot finish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from holdfast.domain.errors import StoreError
from holdfast.domain.task import decide
from holdfast.runtime.deadlines import wait_for_all
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.plans.service import PlanService
from holdfast.runtime.schedule.scheduler import Scheduler
from holdfast.runtime.worker.attempt import Deadlines
from holdfast.runtime.worker.claimer import Claimer
from holdfast.runtime.worker.heartbeat import Heartbeat
from holdfast.runtime.worker.meter import Meter
from holdfast.runtime.worker.running_tasks import RunningTask, RunningTasks, Stop

STOP_SECONDS = 1.0  # for a run that was told that its lease is lost


class Shutdown:
    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        claimer: Claimer,
        running: RunningTasks,
        services: Sequence[asyncio.Task[None]],
        heartbeat: Heartbeat,
        deadlines: Deadlines,
        meter: Meter,
        plans: PlanService,
        scheduler: Scheduler | None,
    ) -> None:
        self._worker, self._store, self._clock = env.worker, env.store, env.clock
        self._outages, self._options = env.outages, env.options
        self._claimer, self._running = claimer, running
        self._services = services
        self._heartbeat, self._deadlines, self._meter = heartbeat, deadlines, meter
        self._plans, self._scheduler = plans, scheduler
        self._drained: asyncio.Event | None = None  # once a drain has begun

    async def drain(self) -> list[str]:
        """Stop claiming, let stages finish until the deadline, give back the rest.

        The ids that are returned are of tasks whose plain functions still run.
        """
        if self._drained is not None:
            await self._drained.wait()
        else:
            self._drained = asyncio.Event()
            try:
                await self._drain()
            finally:
                self._drained.set()
        return [running.task_id for running in self._running.snapshot()]

    async def _drain(self) -> None:
        self._claimer.stop()
        if self._claimer.task is not None:  # a claim that was sent may have been carried out
            await asyncio.wait((self._claimer.task,), timeout=self._options.lease_seconds)
        runs = _runs(self._running.snapshot())
        await wait_for_all(self._clock, runs, self._options.drain_seconds)
        await self._stop_runs(Stop.DRAIN, wait_seconds=self._options.lease_seconds)
        await self._stop_runs(Stop.LEASE_LOST, wait_seconds=STOP_SECONDS)
        if self._scheduler is not None:
            await self._scheduler.stop()
        for service in self._services:
            service.cancel()
        self._claimer.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self._plans.stop()
        await self._heartbeat.stop()
        self._deadlines.close()
        for running in self._running.snapshot():
            running.ask_to_stop(Stop.LEASE_LOST)  # nothing more is written, whatever they return
        await self._meter.stop()
        try:
            await self._store.tasks.leave(self._worker)
        except StoreError as error:
            self._outages.note(error)

    async def _stop_runs(self, why: Stop, *, wait_seconds: float) -> None:
        stoppable = [running for running in self._running.snapshot() if not running.in_thread]
        for running in stoppable:
            running.ask_to_stop(why)
        if runs := _runs(stoppable):
            await asyncio.wait(runs, timeout=wait_seconds)

    def abandon(self) -> None:
        """Cancel everything, as if the process had died: nothing more is claimed or written."""
        self._plans.abandon()
        for service in self._services:
            service.cancel()
        self._claimer.cancel()
        for run in _runs(self._running.snapshot()):
            run.cancel()

    async def give_back_all(self, *, but: RunningTask | None = None) -> None:
        """Free what a process that ends still holds, uncounted.

        ``but`` is the one that hung: its lease lapses and counts, or it would hang for ever anew.
        """
        rest = {
            running.lease_id: running for running in self._running.snapshot() if running is not but
        }
        self._claimer.cancel()  # else it would claim again what is given back
        reason, now = "the worker's process ends", self._clock.now()
        tasks = await self._store.views.load([running.task_id for running in rest.values()])
        await self._store.tasks.apply(
            [
                decide.give_back(task, reason, now=now, interrupted=True)
                for task in tasks
                if task is not None and task.lease is not None and task.lease.id in rest
            ]
        )


def _runs(running: Iterable[RunningTask]) -> list[asyncio.Task[None]]:
    return [task.run for task in running if task.run is not None]
