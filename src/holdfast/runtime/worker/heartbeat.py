"""The heartbeat renews the leases of a worker, from a thread that a blocked event loop cannot stop.

A lease that cannot be renewed is given up by our own clock, before the store hands its task out
again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.ports import Beat, Renewal
from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.runtime.deadlines import deadline, sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker.running_tasks import MARGIN, LeaseGone, RunningTask, RunningTasks, Stop

log = logging.getLogger("holdfast.heartbeat")

TICK_SECONDS = 0.5
AGAIN_SECONDS = 0.25
PROGRESS_SECONDS = 10.0  # what a stage last said is published at least this often


class Heartbeat:
    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        running: RunningTasks,
        describe: Callable[[], Beat],
        on_zombie: Callable[[RunningTask], None],
        publish: Callable[[RunningTask], None],
    ) -> None:
        self._store, self._clock, self._outages = env.store, env.clock, env.outages
        self._running, self._describe = running, describe
        self._on_zombie, self._publish = on_zombie, publish
        self._lease_seconds = lease_seconds = env.options.lease_seconds
        self._every_seconds = min(lease_seconds / 3, PROGRESS_SECONDS)
        # What cannot be renewed is seen while a part of the margin is left.
        self._tick_seconds = min(TICK_SECONDS, lease_seconds * MARGIN / 2)
        self._last_beat = -PROGRESS_SECONDS
        self._unsure: frozenset[str] = frozenset()  # leases whose part of the store was away
        self._stop_asked = False
        self._wake: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    async def take_over(self, running: RunningTask) -> None:
        """Renew a lease that another process has kept until now, if the store answers: it may end
        later than is known here. Called before `start`."""
        await self._beat([running], self._clock.steady())

    async def renew_now(self, running: RunningTask) -> None:
        """Tell the store what a stage reports, without waiting for the next beat: the death of
        this process does not erase it."""
        while (asked_at := self._clock.steady()) < running.safe_until:
            try:
                # Again: a beat that does not arrive may have taken the news with it.
                (is_kept,) = await self._store.tasks.renew(
                    self._describe(),
                    [running.renewal(again=True)],
                    lease_seconds=self._lease_seconds,
                )
            except StoreError as error:
                self._outages.note(error)
                await sleep(self._clock, AGAIN_SECONDS)
                continue
            if not is_kept:
                break
            running.safe_until = self._running.safe_until(asked_at)
            if self._clock.steady() < running.safe_until:
                return  # else this process was stopped before it could read the answer
        raise LeaseGone(running.task_id)

    def start(self) -> None:
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run_until_stopped()),
            name="holdfast-heartbeat",
            daemon=True,
        )
        self._thread.start()

    async def stop(self) -> None:
        self._stop_asked = True
        if self._wake is not None:
            self._wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout=2 * self._every_seconds)

    async def run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception:
                log.exception("a heartbeat failed")
            await sleep(self._clock, self._tick_seconds)

    async def _run_until_stopped(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: _set(loop, stop)
        if self._stop_asked:
            return
        beating = asyncio.create_task(self.run())
        await stop.wait()
        await cancel_and_wait(beating)
        await self._store.detach()

    async def tick(self) -> None:
        """Renew when it is time or a stage has new progress; stop what cannot be renewed."""
        now = self._clock.steady()
        running = self._renewed_tasks()
        for task in running:
            task.note_overdue(now)
        is_time = now - self._last_beat >= self._every_seconds
        renewable = [task for task in running if task.may_renew(now)]
        if is_time or any(task.progress_is_new for task in running):
            if await self._beat(renewable, now):
                self._last_beat = now
        elif unsure := [task for task in renewable if task.lease_id in self._unsure]:
            await self._beat(unsure, now)  # no beat of all: the others' time runs on
        for task in running:
            if self._clock.steady() >= task.safe_until:
                self._note_lost(task)
            if task.stop is Stop.LEASE_LOST and task.in_thread and not task.zombie_reported:
                task.zombie_reported = True
                self._on_zombie(task)

    def _renewed_tasks(self) -> list[RunningTask]:
        return [running for running in self._running.snapshot() if running.is_renewed]

    async def _beat(self, running: list[RunningTask], asked_at: float) -> bool:
        """Renew these leases once; False: no part of the store has answered."""
        renewals = [task.renewal() for task in running]
        try:
            async with deadline(self._clock, self._patience_seconds(asked_at)):
                kept = await self._renew(renewals)
        except PartlyUnavailable as error:
            self._outages.note(error)
            kept = error.answers
        except (StoreError, TimeoutError) as error:
            self._outages.note(error)
            return False
        unsure = set[str]()
        for task, is_kept in zip(running, kept, strict=True):
            if isinstance(is_kept, StoreError):
                unsure.add(task.lease_id)  # asked again soon; else it ends by our own clock
            elif is_kept:
                task.safe_until = self._running.safe_until(asked_at)
                self._publish(task)
            elif task.is_renewed and not task.ending:
                self._note_lost(task)
        self._unsure = frozenset(unsure)
        return True

    async def _renew(self, renewals: list[Renewal]) -> Sequence[bool | StoreError]:
        """Renew without progress where it cannot be written: it must cost no other its lease."""
        seconds = self._lease_seconds
        try:
            return await self._store.tasks.renew(self._describe(), renewals, lease_seconds=seconds)
        except StoreError:
            raise
        except Exception:
            log.exception("the progress of a stage could not be written")
        bare = [Renewal(task_id=r.task_id, lease_id=r.lease_id) for r in renewals]
        return await self._store.tasks.renew(self._describe(), bare, lease_seconds=seconds)

    def _patience_seconds(self, asked_at: float) -> float:
        """Return how long a beat may hang without hiding that a lease ends meanwhile."""
        ends = [task.safe_until - asked_at for task in self._renewed_tasks() if task.stop is None]
        return max(self._tick_seconds, min([self._every_seconds, *ends]))

    def _note_lost(self, running: RunningTask) -> None:
        if running.stop is Stop.LEASE_LOST:
            return
        log.warning("task %s: its lease is lost, its run is stopped", running.task_id)
        running.ask_to_stop(Stop.LEASE_LOST)


def _set(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)


def leave_running(running: RunningTask) -> None:
    """Log that a plain function goes on without its lease; it cannot be stopped."""
    log.critical(
        "task %s: its lease is lost while its plain function runs; another worker may run it too",
        running.task_id,
    )
