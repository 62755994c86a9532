"""Keeps the leases of a worker, from a thread that a blocked event loop cannot stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.ports import Beat, Clock, Renewal, Store
from holdfast.runtime.deadlines import deadline, sleep
from holdfast.runtime.worker.outages import StoreOutages
from holdfast.runtime.worker.running_task import RunningTask, Stop

log = logging.getLogger("holdfast.heartbeat")

TICK_SECONDS = 0.5
MARGIN = 0.1  # the last part of a lease, in which a run that cannot renew is stopped
PROGRESS_SECONDS = 10.0  # what a stage last said is published at least this often


class Heartbeat:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        outages: StoreOutages,
        lease_seconds: float,
        describe: Callable[[], Beat],
        on_zombie: Callable[[RunningTask], None],
        publish: Callable[[RunningTask], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._outages = outages
        self._lease_seconds = lease_seconds
        self._every_seconds = min(lease_seconds / 3, PROGRESS_SECONDS)
        # What cannot be renewed is seen while a part of the margin is left.
        self._tick_seconds = min(TICK_SECONDS, lease_seconds * MARGIN / 2)
        self._describe = describe
        self._on_zombie = on_zombie
        self._publish = publish
        self._held: dict[str, RunningTask] = {}
        self._last_beat = -PROGRESS_SECONDS
        self._unsure: frozenset[str] = frozenset()  # leases whose part of the store was away
        self._stop_asked = False
        self._wake: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    def safe_until(self, asked_at: float) -> float:
        """By our own clock, from before the store was asked; stops us before the lease ends."""
        return asked_at + self._lease_seconds * (1 - MARGIN)

    def add(self, held: RunningTask) -> None:
        self._held[held.lease_id] = held

    def remove(self, held: RunningTask) -> None:
        self._held.pop(held.lease_id, None)

    async def renew(self, held: RunningTask) -> None:
        """Renew one lease at once, if the store answers: another process has kept it until now, and
        it may end later than is known here. Called before `start`."""
        await self._beat([held], self._clock.steady())

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
        self._wake = lambda: _tell(loop, stop)
        if self._stop_asked:
            return
        beating = asyncio.create_task(self.run())
        await stop.wait()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await self._store.detach()

    async def tick(self) -> None:
        """Renew when it is time or a stage has something to say; stop what cannot be renewed."""
        now = self._clock.steady()
        held = list(self._held.values())
        for h in held:
            h.note_overdue(now)
        is_time = now - self._last_beat >= self._every_seconds
        renewable = [h for h in held if h.may_renew(now)]
        if is_time or any(h.progress_is_new for h in held):
            if await self._beat(renewable, now):
                self._last_beat = now
        elif unsure := [h for h in renewable if h.lease_id in self._unsure]:
            await self._beat(unsure, now)  # no beat of all: the others' time runs on
        for h in held:
            if self._clock.steady() >= h.safe_until:
                self._lost(h)
            if h.stop is Stop.LEASE_LOST and h.in_thread and not h.told:
                h.told = True
                self._on_zombie(h)

    async def _beat(self, held: list[RunningTask], asked_at: float) -> bool:
        """False: nothing of the store has answered."""
        renewals = [h.renewal() for h in held]
        try:
            async with deadline(self._clock, self._patience_seconds(asked_at)):
                kept = await self._renewed(renewals)
        except PartlyUnavailable as error:
            self._outages.note(error)
            kept = error.answers
        except (StoreError, TimeoutError) as error:
            self._outages.note(error)
            return False
        unsure = set[str]()
        for h, is_kept in zip(held, kept, strict=True):
            if isinstance(is_kept, StoreError):
                unsure.add(h.lease_id)  # asked again soon; else it ends by our own clock
            elif is_kept:
                h.safe_until = self.safe_until(asked_at)
                self._publish(h)
            elif h.lease_id in self._held and not h.ending:
                self._lost(h)
        self._unsure = frozenset(unsure)
        return True

    async def _renewed(self, renewals: list[Renewal]) -> Sequence[bool | StoreError]:
        """What one stage says about itself must not cost all the others their lease."""
        seconds = self._lease_seconds
        try:
            return await self._store.renew(self._describe(), renewals, lease_seconds=seconds)
        except StoreError:
            raise
        except Exception:
            log.exception("the progress of a stage could not be written")
        bare = [Renewal(task_id=r.task_id, lease_id=r.lease_id) for r in renewals]
        return await self._store.renew(self._describe(), bare, lease_seconds=seconds)

    def _patience_seconds(self, asked_at: float) -> float:
        """A beat that hangs must not hide that a lease ends meanwhile."""
        ends = [h.safe_until - asked_at for h in list(self._held.values()) if h.stop is None]
        return max(self._tick_seconds, min([self._every_seconds, *ends]))

    def _lost(self, held: RunningTask) -> None:
        if held.stop is Stop.LEASE_LOST:
            return
        log.warning("task %s: its lease is lost, its run is stopped", held.task_id)
        held.ask_to_stop(Stop.LEASE_LOST)


def _tell(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)


def leave_running(held: RunningTask) -> None:
    """Say that a plain function goes on without its lease; it cannot be stopped."""
    log.critical(
        "task %s: its lease is lost while its plain function runs; another worker may run it too",
        held.task_id,
    )
