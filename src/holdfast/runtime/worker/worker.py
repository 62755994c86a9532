"""A worker claims what it can run, runs it, and gives back what it cannot finish.

`Worker` wires its parts: the claimer asks for tasks, the executor runs each of them, the heartbeat
renews their leases, the shutdown drains. Beside them run the services that maintain the store, the
scheduler and the drivers of plans.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from itertools import count

from holdfast.domain.errors import StoreError
from holdfast.domain.task import decide
from holdfast.domain.task.events import TaskProgress
from holdfast.ports import Beat, Claimed, Renewal
from holdfast.runtime.committer import Committer
from holdfast.runtime.deadlines import back_off
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.plans.service import PlanService
from holdfast.runtime.schedule.declared_sync import DeclaredTriggers
from holdfast.runtime.schedule.scheduler import Scheduler
from holdfast.runtime.services.drain_watch import DrainWatch
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.services.sealer import Sealer
from holdfast.runtime.services.supervisor import Supervisor
from holdfast.runtime.services.timers import Timers
from holdfast.runtime.worker import forks
from holdfast.runtime.worker.attempt import Attempts, Deadlines
from holdfast.runtime.worker.claimer import Claimer
from holdfast.runtime.worker.executor import Executor, HeldTenants
from holdfast.runtime.worker.heartbeat import Heartbeat, leave_running
from holdfast.runtime.worker.meter import Meter
from holdfast.runtime.worker.outage_groups import OutageGroups
from holdfast.runtime.worker.running_tasks import (
    PROCESS_STAGES,
    RunningStages,
    RunningTask,
    RunningTasks,
)
from holdfast.runtime.worker.shutdown import Shutdown
from holdfast.runtime.worker.stage_errors import StageErrors
from holdfast.runtime.worker.suspects import Isolate, Suspects
from holdfast.runtime.worker.threads import DaemonThreads, Threads


class Worker:
    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        threads: Threads | None = None,
        on_zombie: Callable[[RunningTask], None] | None = None,
        on_progress: Callable[[TaskProgress], None] | None = None,
        on_drained: Callable[[], None] | None = None,
        isolate: Isolate | None = None,
        stages: RunningStages = PROCESS_STAGES,
    ) -> None:
        self.name, self._env, self._stages = env.worker, env, stages
        self._store, self._options = env.store, env.options
        self._host, self._started_at = socket.gethostname(), env.clock.now()
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._services: list[asyncio.Task[None]] = []
        self._drain_asked = asyncio.Event()
        self._outage_groups = OutageGroups(env)
        self._running = RunningTasks(lease_seconds=env.options.lease_seconds, stages=stages)
        self._held_tenants = HeldTenants()
        self._meter = Meter(env)
        self._deadlines = Deadlines(env.clock, self._running.snapshot)
        self._heartbeat = Heartbeat(
            env,
            running=self._running,
            describe=self._describe,
            on_zombie=on_zombie or leave_running,
            publish=self._publish,
        )
        self._executor = self._new_executor(threads or DaemonThreads())
        self._claimer = self._new_claimer(isolate)
        self._plans = PlanService(env)
        self._declared = DeclaredTriggers(env, self._announce)
        self._scheduler = Scheduler(env, self._declared) if env.options.schedules else None
        self._drain_watch = DrainWatch(env, self, self._held_tenants, on_drained)
        self._shutdown = Shutdown(
            env,
            claimer=self._claimer,
            running=self._running,
            services=self._services,
            heartbeat=self._heartbeat,
            deadlines=self._deadlines,
            meter=self._meter,
            plans=self._plans,
            scheduler=self._scheduler,
        )

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def held_tenants(self) -> HeldTenants:
        return self._held_tenants

    @property
    def in_threads(self) -> frozenset[str]:
        """Return the leases under which plain functions run now."""
        running = self._running.snapshot()
        return frozenset(task.lease_id for task in running if task.in_thread)

    def last_report(self) -> tuple[Beat, list[Renewal]]:
        """Return what a supervisor reports to the store when this worker has died."""
        running = self._running.snapshot()
        return self._describe(), [task.renewal(again=True) for task in running if task.has_begun]

    async def start(self) -> None:
        forks.watch(self._loop)
        env = self._env
        services: list[Callable[[], Awaitable[None]]] = [Timers(env).run, Pruner(env).run]
        services += [Sealer(env).run, self._plans.run, self._meter.run, self._drain_watch.run]
        if self._scheduler is not None:
            services += [self._scheduler.run, self._declared.run]
        if self._options.heartbeat_thread:
            self._heartbeat.start()
        else:
            services.append(self._heartbeat.run)
        supervisor = Supervisor(env)
        self._services += [supervisor.start(service) for service in services]
        self._claimer.task = supervisor.start(self._claimer.run)

    async def take(self, claimed: Claimed, *, safe_until: float) -> asyncio.Task[None]:
        """Run a suspect that another process has claimed; this one claims nothing."""
        forks.watch(self._loop)
        task, lease = claimed.task, decide.lease_of(claimed.task)
        running = RunningTask(
            task.id, lease.id, safe_until=safe_until, version=task.version, is_renewed=False
        )
        self._stages.suspect = running  # it stays set: nothing else ever begins in this process
        await self._heartbeat.take_over(running)
        running.is_renewed = True
        self._heartbeat.start()
        return self._claimer.start(claimed, running)

    def stop_claiming(self) -> None:
        self._claimer.stop()

    async def drain(self) -> list[str]:
        """Stop claiming, let stages finish until the deadline, give back the rest.

        The ids that are returned are of tasks whose plain functions still run.
        """
        return await self._shutdown.drain()

    def abandon(self) -> None:
        """Stop as if the process had died here: nothing more is claimed or written."""
        self._drain_watch.abandon()
        self._shutdown.abandon()

    async def give_back_all(self, *, but: RunningTask | None = None) -> None:
        """Free what a process that ends still holds, but for the one that hung."""
        await self._shutdown.give_back_all(but=but)

    # -- what the parts ask of the worker

    async def _type_is_served(self, name: str) -> bool:
        env = self._env
        for tries in count(1):
            try:
                workers = await env.store.views.workers(live_within_seconds=env.live_within_seconds)
            except StoreError as error:
                env.outages.note(error)
                await back_off(env.clock, env.chance, tries)
            else:
                return any(worker.live and name in worker.beat.types for worker in workers)
        raise AssertionError("count never ends")

    def _publish(self, running: RunningTask) -> None:
        """Call the listener on the worker's loop, also from the heartbeat's thread."""
        event = running.event()
        if event is not None and self._on_progress is not None:
            self._loop.call_soon_threadsafe(self._on_progress, event)

    async def _announce(self) -> None:
        await self._store.tasks.renew(
            self._describe(), (), lease_seconds=self._options.lease_seconds
        )

    def _describe(self) -> Beat:
        return Beat(
            worker=self.name,
            host=self._host,
            pid=os.getpid(),
            types=self._env.registry.runnable_types(),
            queues=self._options.queues,
            slots=self._options.slots,
            running=len(self._running),
            started_at=self._started_at,
            triggers=tuple(self._declared.ids()),
            schedules=self._options.schedules,
            outages=self._outage_groups.lately(),
        )

    # -- the parts

    def _new_executor(self, threads: Threads) -> Executor:
        env = self._env
        errors = StageErrors(
            env, closing=lambda: self._claimer.is_cancelled, on_outage=self._outage_groups.note
        )
        attempts = Attempts(
            env,
            threads=threads,
            deadlines=self._deadlines,
            count=self._meter.add,
            renew_now=self._heartbeat.renew_now,
            stages=self._stages,
            errors=errors,
        )
        return Executor(
            registry=env.registry,
            clock=env.clock,
            rules=env.options.rules,
            attempts=attempts,
            write=Committer(env).write,
            type_is_served=self._type_is_served,
            draining=self._drain_asked.is_set,
            held_tenants=self._held_tenants,
            publish=self._publish,
        )

    def _new_claimer(self, isolate: Isolate | None) -> Claimer:
        suspects = Suspects(
            self._env,
            stages=self._stages,
            isolate=isolate,
            run=self._executor.run,
            put_off=self._executor.put_off,
            renew_now=self._heartbeat.renew_now,
        )
        return Claimer(
            self._env,
            running=self._running,
            stages=self._stages,
            drain_asked=self._drain_asked,
            execute=self._executor.run,
            execute_suspect=suspects.run,
        )
