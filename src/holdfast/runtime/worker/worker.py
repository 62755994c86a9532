"""A worker: claims what it can run, runs it, and gives back what it cannot finish."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count

from holdfast.domain.errors import PartlyUnavailable, SerialisationError, StoreError
from holdfast.domain.task import decide
from holdfast.domain.task.crashes import is_suspect
from holdfast.domain.task.events import TaskProgress
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.ports import Beat, Claimed, Clock, Renewal, Store, Topic
from holdfast.ports.tracing import NO_TRACER, Tracer
from holdfast.registry import Registry
from holdfast.runtime.committer import Gather
from holdfast.runtime.deadlines import Deadlines, sleep, wait_for_all
from holdfast.runtime.ids import new_id
from holdfast.runtime.plans.service import PlanService
from holdfast.runtime.schedule.declared_triggers import DeclaredTriggers
from holdfast.runtime.schedule.scheduler import Scheduler
from holdfast.runtime.services.drain_watch import DrainWatch
from holdfast.runtime.services.services import WorkerOptions, maintenance_services
from holdfast.runtime.worker import forks
from holdfast.runtime.worker.attempt import Attempts, LeaseGone
from holdfast.runtime.worker.executor import Executor
from holdfast.runtime.worker.heartbeat import Heartbeat, leave_running
from holdfast.runtime.worker.lanes import ASIDE_SECONDS, Lanes
from holdfast.runtime.worker.meter import Meter
from holdfast.runtime.worker.outage_groups import OutageGroups
from holdfast.runtime.worker.outages import StoreOutages
from holdfast.runtime.worker.running_stages import PROCESS_STAGES, RunningStages
from holdfast.runtime.worker.running_task import RunningTask, Stop
from holdfast.runtime.worker.stage_notes import StageNotes
from holdfast.runtime.worker.suspects import Isolate, Suspects
from holdfast.runtime.worker.tenant_holds import HeldTenants
from holdfast.runtime.worker.threads import DaemonThreads, Threads

log = logging.getLogger("holdfast.worker")

IDLE_SECONDS = 5.0  # a look without a signal: only a lost wake-up needs it
TRY_AGAIN_SECONDS = (0.05, 1.0)
SERVICE_REST_SECONDS = 1.0
STRANGE_SECONDS = 0.5  # after a claim that gave only tasks of unknown types
STOP_SECONDS = 1.0  # for a run that was told that its lease is lost


class Worker:
    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        clock: Clock,
        chance: random.Random,
        options: WorkerOptions,
        name: str | None = None,
        threads: Threads | None = None,
        on_zombie: Callable[[RunningTask], None] | None = None,
        on_progress: Callable[[TaskProgress], None] | None = None,
        on_drained: Callable[[], None] | None = None,
        isolate: Isolate | None = None,
        company: RunningStages = PROCESS_STAGES,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        host = socket.gethostname()
        # Unique per incarnation: a restarted worker is not the one that held the lease.
        self.name = name or f"{host}-{os.getpid()}-{new_id(clock, chance)[-8:]}"
        self._host = host
        self._store, self._registry = store, registry
        self._clock, self._chance = clock, chance
        self._options = options
        self._resend_seconds = options.lease_seconds / 2  # then a lease would be too short to use
        self._crash_limit = options.rules.crash_limit
        self._started_at = clock.now()
        self._on_progress, self._tracer = on_progress, tracer
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, RunningTask] = {}
        self._lanes = Lanes(options.queues, options.slots, clock)
        self._company = company
        self._slot_freed, self._drain_asked = asyncio.Event(), asyncio.Event()
        self._drained: asyncio.Event | None = None  # once a drain has begun
        self._services: list[asyncio.Task[None]] = []
        self._scheduler: Scheduler | None = None
        self._claimer: asyncio.Task[None] | None = None
        self._is_idle = False  # the claimer waits for the bell
        self._outages = StoreOutages(clock)
        self._write = Gather[Transition, Outcome](store.apply)
        self._heartbeat = Heartbeat(
            store=store,
            clock=clock,
            outages=self._outages,
            lease_seconds=options.lease_seconds,
            describe=self._describe,
            on_zombie=on_zombie or leave_running,
            publish=self._publish,
        )
        self._notes = StageNotes(
            store=store,
            clock=clock,
            outages=self._outages,
            describe=self._describe,
            lease_seconds=options.lease_seconds,
            safe_until=self._heartbeat.safe_until,
        )
        self._plans = PlanService(
            store=store,
            clock=clock,
            chance=chance,
            outages=self._outages,
            owner=self.name,
            lease_seconds=options.lease_seconds,
        )
        self._declared = DeclaredTriggers(
            store=store,
            registry=registry,
            clock=clock,
            chance=chance,
            outages=self._outages,
            announce=self._announce,
            queue_limit=options.queue_limit,
            live_within_seconds=2 * options.lease_seconds,
        )
        self._outage_groups = OutageGroups(clock, lease_seconds=options.lease_seconds)
        self._meter = Meter(store=store, clock=clock, outages=self._outages)
        self._holds = HeldTenants()
        self._orders = DrainWatch(
            store=store,
            clock=clock,
            outages=self._outages,
            worker=self,
            holds=self._holds,
            on_drained=on_drained,
        )
        self._deadlines = Deadlines(clock, self._running.values)
        self._executor = Executor(
            registry=registry,
            clock=clock,
            rules=options.rules,
            attempts=Attempts(
                clock=clock,
                chance=chance,
                threads=threads or DaemonThreads(),
                deadlines=self._deadlines,
                grace_seconds=options.rules.stage_grace_seconds,
                took=self._meter.add,
                note=self._notes.write,
                company=company,
                closing=self._is_closing,
                tracer=tracer,
                outage_seconds=options.rules.outage_seconds,
                on_outage=self._outage_groups.note,
            ),
            write=self._write_until_lost,
            type_is_served=self._type_is_served,
            draining=self._drain_asked.is_set,
            holds=self._holds,
            publish=self._publish,
        )
        self._suspects = Suspects(
            clock=clock,
            chance=chance,
            company=company,
            isolate=isolate,
            line_limit=options.slots // 2,
            hand_over=self._heartbeat.remove,
            run=self._executor.run,
            put_off=self._executor.put_off,
            note=self._notes.write,
        )

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def in_threads(self) -> frozenset[str]:
        """The leases under which plain functions run now."""
        return frozenset(lease for lease, held in self._running.items() if held.in_thread)

    def begun(self) -> tuple[Beat, list[Renewal]]:
        """Return what a supervisor has to tell the store when this worker has died."""
        running = self._running.values()
        return self._describe(), [h.renewal(again=True) for h in running if h.has_begun]

    async def start(self) -> None:
        forks.watch(self._loop)
        services = maintenance_services(self._store, self._clock, self._outages, self._options)
        services += [self._plans.run, self._meter.run, self._orders.run]
        if self._options.schedules:
            self._scheduler = self._new_scheduler()
            services += [self._scheduler.run, self._declared.run]
        if self._options.heartbeat_thread:
            self._heartbeat.start()
        else:
            services.append(self._heartbeat.run)
        self._services = [asyncio.create_task(self._keep_up(run)) for run in services]
        self._claimer = asyncio.create_task(self._keep_up(self._claim_until_drained))

    async def take(self, claimed: Claimed, *, safe_until: float) -> asyncio.Task[None]:
        """Run a suspect that another process has claimed; this one claims nothing."""
        forks.watch(self._loop)
        task, lease = claimed.task, decide.lease_of(claimed.task)
        held = RunningTask(task.id, lease.id, safe_until=safe_until, version=task.version)
        self._company.suspect = held  # for good: nothing else ever begins here
        await self._heartbeat.renew(held)
        self._heartbeat.start()
        return self._start(claimed, held)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(
            store=self._store,
            registry=self._registry,
            clock=self._clock,
            chance=self._chance,
            outages=self._outages,
            declared=self._declared,
            owner=self.name,
            queue_limit=self._options.queue_limit,
            unknown_type_seconds=self._options.rules.unknown_type_seconds,
            tracer=self._tracer,
        )

    async def drain(self) -> list[str]:
        """Stop claiming, let stages finish until the deadline, give back the rest.

        What is left when this returns are plain functions that still run: their tasks' ids.
        """
        if self._drained is not None:
            await self._drained.wait()
        else:
            self._drained = asyncio.Event()
            try:
                await self._drain()
            finally:
                self._drained.set()
        return [held.task_id for held in self._running.values()]

    async def _drain(self) -> None:
        self.stop_claiming()
        if self._claimer is not None:  # a claim that was sent may have been carried out
            await asyncio.wait((self._claimer,), timeout=self._options.lease_seconds)
        runs = _runs(self._running.values())
        await wait_for_all(self._clock, runs, self._options.drain_seconds)
        await self._stop_runs(Stop.DRAIN, wait_seconds=self._options.lease_seconds)
        await self._stop_runs(Stop.LEASE_LOST, wait_seconds=STOP_SECONDS)
        if self._scheduler is not None:
            await self._scheduler.stop()
        for service in (*self._services, self._claimer):
            if service is not None:
                service.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self._plans.stop()
        await self._heartbeat.stop()
        self._deadlines.close()
        for held in self._running.values():
            held.ask_to_stop(Stop.LEASE_LOST)  # nothing more is written, whatever they return
        await self._meter.stop()
        try:
            await self._store.leave(self.name)
        except StoreError as error:
            self._outages.note(error)

    def stop_claiming(self) -> None:
        self._drain_asked.set()
        self._slot_freed.set()
        if self._claimer is not None and self._is_idle:
            self._claimer.cancel()

    async def _stop_runs(self, why: Stop, *, wait_seconds: float) -> None:
        stoppable = [held for held in self._running.values() if not held.in_thread]
        for held in stoppable:
            held.ask_to_stop(why)
        if runs := _runs(stoppable):
            await asyncio.wait(runs, timeout=wait_seconds)

    def abandon(self) -> None:
        """As if the process had died here: nothing more is claimed or written."""
        self._plans.abandon()
        self._orders.abandon()
        for task in (*self._services, self._claimer, *_runs(self._running.values())):
            if task is not None:
                task.cancel()

    async def give_back_rest(self, *, but: RunningTask | None = None) -> None:
        """The last act of a process that ends: what it still holds is free to be taken, uncounted.

        ``but``: the one that hung. Its lease lapses and counts, or it would hang for ever anew.
        """
        rest = {held.lease_id: held for held in self._running.values() if held is not but}
        if self._claimer is not None:
            self._claimer.cancel()  # else it would claim again what is given back
        reason, now = "the worker's process ends", self._clock.now()
        found = await self._store.load([held.task_id for held in rest.values()])
        await self._store.apply(
            [
                decide.give_back(task, reason, now=now, interrupted=True)
                for task in found
                if task is not None and task.lease is not None and task.lease.id in rest
            ]
        )

    # -- claiming

    async def _claim_until_drained(self) -> None:
        request = new_id(self._clock, self._chance)
        asked_at: float | None = None  # when this request was first sent: its leases run from then
        while asked_at is not None or not self._drain_asked.is_set():
            if asked_at is not None and self._clock.steady() - asked_at > self._resend_seconds:
                request, asked_at = new_id(self._clock, self._chance), None
                continue
            asked = self._lanes.ask()
            if self._company.suspect is not None and asked_at is None:
                await self._company.wait(self._clock)
                continue
            if asked is None:
                await self._until_freed()
                continue
            ticket = self._store.ticket(Topic.READY)
            asked_at = self._clock.steady() if asked_at is None else asked_at
            try:
                claimed = await self._store.claim(
                    self.name,
                    request=request,
                    queues=asked.queues,
                    limit=asked.limit,
                    lease_seconds=self._options.lease_seconds,
                )
            except PartlyUnavailable as error:
                self._outages.note(error)
                claimed = error.answers
            except StoreError as error:
                self._outages.note(error)
                await self._pause(1)
                continue
            self._begin(claimed, asked_at)
            self._lanes.got(asked, len(claimed))
            request, asked_at = new_id(self._clock, self._chance), None
            if not claimed:
                if self._drain_asked.is_set() or not asked.for_work:
                    continue
                seconds = IDLE_SECONDS if asked.for_all else ASIDE_SECONDS
                await self._until_ready(ticket, seconds)
            elif not self._knew_any(claimed):
                await sleep(self._clock, STRANGE_SECONDS)

    def _knew_any(self, claimed: Sequence[Claimed]) -> bool:
        known = sum(self._registry.find(one.task.type) is not None for one in claimed)
        self._lanes.knew(known, len(claimed))
        return known > 0

    def _begin(self, claimed: Sequence[Claimed], asked_at: float) -> None:
        safe_until = self._heartbeat.safe_until(asked_at)
        is_late = self._clock.steady() >= safe_until  # there is nothing to keep: given back
        for one in claimed:
            task, lease = one.task, decide.lease_of(one.task)
            held = RunningTask(task.id, lease.id, safe_until=safe_until, version=task.version)
            self._start(one, held, kept=not is_late)

    def _start(
        self, claimed: Claimed, held: RunningTask, *, kept: bool = True
    ) -> asyncio.Task[None]:
        run = held.run = self._loop.create_task(self._run(claimed, held))
        self._running[held.lease_id] = held
        self._lanes.begin(claimed.task.queue)
        if kept:
            self._heartbeat.add(held)
        return run

    async def _run(self, claimed: Claimed, held: RunningTask) -> None:
        try:
            if is_suspect(claimed.task, self._crash_limit):
                await self._suspects.run(claimed, held)
            else:
                await self._executor.run(claimed, held)
        except LeaseGone:
            log.info("task %s was taken over", held.task_id)
        except SerialisationError as error:
            # As good as lost: the lease lapses, and the store's sweep sees to the record.
            log.error(
                "task %s: its run is stopped, nothing can be written: %s", held.task_id, error
            )
        except asyncio.CancelledError:
            if held.stop is None:
                raise
        except Exception:
            # Not the user's code: that is caught where it is called. The lease will lapse.
            log.exception("task %s: the engine failed it", held.task_id)
        finally:
            self._heartbeat.remove(held)
            self._company.end(held)
            del self._running[held.lease_id]
            self._lanes.end(claimed.task.queue)
            self._slot_freed.set()

    # -- the store, from a run

    async def _write_until_lost(self, transition: Transition) -> Outcome:
        """An outage does not fail a stage: the same write again, until the lease's own time."""
        write, tries = self._write, 0
        while True:
            try:
                return await write(transition)
            except SerialisationError:
                # A batch may fail for another's record: only alone it is known to be for ours.
                if write is not self._write:
                    raise  # it would be answered for ever
                write = Gather(self._store.apply)
                continue
            except StoreError as error:
                self._outages.note(error)
            tries += 1
            await self._pause(tries)

    async def _type_is_served(self, name: str) -> bool:
        for tries in count(1):
            try:
                live = await self._store.workers(
                    live_within_seconds=2 * self._options.lease_seconds
                )
            except StoreError as error:
                self._outages.note(error)
                await self._pause(tries)
            else:
                return any(worker.live and name in worker.beat.types for worker in live)
        raise AssertionError("count never ends")

    # -- waiting

    async def _until_freed(self) -> None:
        """Or until it is time to look for deliveries again."""
        self._slot_freed.clear()
        timer = None
        if self._lanes.has_room_aside:
            timer = self._clock.call_later(ASIDE_SECONDS, self._slot_freed.set)
        await self._slot_freed.wait()
        if timer is not None:
            timer.cancel()

    async def _until_ready(self, ticket: int, seconds: float) -> None:
        self._is_idle = True
        try:
            await self._store.wait(Topic.READY, ticket, timeout=seconds)
        except asyncio.CancelledError:
            if not self._drain_asked.is_set():
                raise
        finally:
            self._is_idle = False

    async def _pause(self, tries: int) -> None:
        least, most = TRY_AGAIN_SECONDS
        wait = min(most, least * 2 ** min(tries, 10))
        await sleep(self._clock, wait * (0.5 + self._chance.random() / 2))

    # -- small things

    async def _keep_up(self, service: Callable[[], Awaitable[None]]) -> None:
        """A service does not end because of a defect in it: it says so and goes on."""
        while True:
            try:
                return await service()
            except Exception:
                log.exception("a service of worker %s failed; it is started again", self.name)
            await sleep(self._clock, SERVICE_REST_SECONDS)

    def _is_closing(self) -> bool:
        """Whether the loop ends: then all of its tasks are cancelled, not only a run."""
        asked = self._claimer
        return asked is not None and (asked.done() or asked.cancelling() > 0)

    def _publish(self, held: RunningTask) -> None:
        """Called from the heartbeat's thread too; the listener is called on the worker's loop."""
        event = held.event()
        if event is not None and self._on_progress is not None:
            self._loop.call_soon_threadsafe(self._on_progress, event)

    async def _announce(self) -> None:
        await self._store.renew(self._describe(), (), lease_seconds=self._options.lease_seconds)

    def _describe(self) -> Beat:
        return Beat(
            worker=self.name,
            host=self._host,
            pid=os.getpid(),
            types=self._registry.served(),
            queues=self._options.queues,
            slots=self._options.slots,
            running=len(self._running),
            started_at=self._started_at,
            triggers=tuple(self._declared.ids()),
            schedules=self._options.schedules,
            outages=self._outage_groups.lately(),
        )


def _runs(held: Iterable[RunningTask]) -> list[asyncio.Task[None]]:
    return [one.run for one in held if one.run is not None]
