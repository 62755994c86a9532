"""The tasks that a worker runs, and the stages that run in its process.

A `RunningTask` is shared by the run, the heartbeat's thread and the worker. `RunningTasks` starts
the runs of one worker and knows the leases that they hold. `RunningStages` is shared by all workers
of a process, so that a suspect of crashes can run beside no other stage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from math import inf

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.crashes import position
from holdfast.domain.task.events import TaskProgress
from holdfast.domain.task.task import Progress, Task
from holdfast.ports import Claimed, Clock, Renewal

log = logging.getLogger("holdfast.worker")

MARGIN = 0.1  # the last part of a lease, in which a run that cannot renew is stopped
GATE_SECONDS = 60.0  # the longest time in which nothing new begins beside a suspect
POLL_SECONDS = 0.1


class LeaseGone(Exception):
    """Another worker may hold the task now, so nothing more may be written here."""


class Stop(StrEnum):
    LEASE_LOST = "lease lost"  # another worker may hold it: nothing more is written
    DRAIN = "the worker stops"  # the task is given back


class RunningTask:
    """A task under our lease. The heartbeat's thread reads and sets its fields, each as a whole."""

    renew_until = inf  # a hung stage must lose its lease
    ends = inf  # when the stage that runs is interrupted
    out_of_time = False  # the stage was interrupted because its time was up
    in_stage = False  # the user's code runs, not a commit
    in_thread = False  # a plain function runs: it cannot be stopped
    ending = False  # its last write is under way: the lease may be gone by our own hand
    stop: Stop | None = None
    zombie_reported = False  # the lease was lost while a plain function ran, and that was reported
    is_alone = False  # it is a suspect, and nothing else runs in this process
    progress_is_new = False
    run: asyncio.Task[None] | None = None
    _begun: tuple[str, float] | None = None
    _begun_at: tuple[int, int] | None = None  # the task's last completed stage and next undo then
    _reported: Progress | None = None
    _cancels_before = 0
    _overdue_at = inf

    def __init__(
        self,
        task_id: str,
        lease_id: str,
        *,
        safe_until: float,
        version: int = 0,
        is_renewed: bool = True,
    ) -> None:
        self.task_id = task_id
        self.lease_id = lease_id
        self.version = version  # of the record, when it was claimed
        self.safe_until = safe_until  # by our own clock: past it the lease may be another's
        self.is_renewed = is_renewed  # by this worker's heartbeat

    # -- progress

    def begin(self, stage: str, *, at: float, ends: float, renew_until: float) -> None:
        """Note that a stage starts, without any progress yet."""
        self._overdue_at = ends
        self._begun, self._reported, self.progress_is_new = (stage, at), None, True
        self.renew_until = renew_until

    def note_begun(self, task: Task, *, alone: bool) -> None:
        """Note that a stage has begun, for the next beat: a crash counts only then."""
        self._begun_at, self.is_alone = (task.last_completed, task.next_undo), alone

    def note_overdue(self, now: float) -> None:
        """Blame a stage that runs past its time, whichever stages run beside it."""
        if self.in_stage and now >= self._overdue_at and not self.is_alone:
            self.is_alone = self.progress_is_new = True

    def note_company(self) -> None:
        """Note that the task no longer runs alone; the next renewal tells the store."""
        self.is_alone, self.progress_is_new = False, True

    def wait_without_end(self) -> None:
        """Renew the lease without an end: no stage runs whose time could be up."""
        self.renew_until = inf

    def report(self, progress: Progress) -> None:
        self._reported, self.progress_is_new = progress, True

    @property
    def progress(self) -> Progress | None:
        """Return the progress, made on demand: most stages end before anybody reads it."""
        progress = self._reported
        if progress is None and self._begun is not None:
            stage, at = self._begun
            progress = Progress(fraction=0.0, stage=stage, at=at)
        if progress is None or self._begun_at is None:
            return progress
        return msgspec.structs.replace(
            progress, begun=position(*self._begun_at), alone=self.is_alone
        )

    @property
    def has_begun(self) -> bool:
        """Return whether a stage of the task was called by this holder."""
        return self._begun_at is not None

    def renewal(self, *, again: bool = False) -> Renewal:
        """Return the next renewal; with ``again`` it repeats progress that the store knows."""
        fresh = self.progress if self.progress_is_new or again else None
        self.progress_is_new = False
        return Renewal(task_id=self.task_id, lease_id=self.lease_id, progress=fresh)

    def event(self) -> TaskProgress | None:
        progress = self.progress
        if progress is None:
            return None
        return TaskProgress(
            task_id=self.task_id,
            version=self.version,
            at=progress.at,
            fraction=progress.fraction,
            stage=progress.stage,
            message=progress.message,
        )

    # -- being stopped

    def may_renew(self, now: float) -> bool:
        return self.stop is not Stop.LEASE_LOST and now < self.renew_until

    def ask_to_stop(self, why: Stop) -> None:
        """Ask from any thread; the first reason stands, but a lost lease beats a drain."""
        if self.stop is None or why is Stop.LEASE_LOST:
            self.stop = why
            if self.run is not None:
                self.run.get_loop().call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        """Interrupt the run; a drain interrupts only the user's code, and awaits a commit."""
        if self.stop is Stop.LEASE_LOST or self.in_stage:
            self.interrupt()

    def interrupt(self) -> None:
        if self.run is not None:
            self.run.cancel()

    def time_is_up(self) -> None:
        """Interrupt the stage that runs; `take_back` is then called when it has ended."""
        if self.run is not None:
            self.ends, self.out_of_time = inf, True
            self._cancels_before = self.run.cancelling()
            self.run.cancel()

    def take_back(self) -> bool:
        """Withdraw the interruption of a stage that ran out of time; False: there are others."""
        assert self.run is not None
        self.out_of_time = False
        return self.run.uncancel() <= self._cancels_before


class RunningTasks:
    """The roster of one worker: each task that it runs, by lease."""

    def __init__(self, *, lease_seconds: float, stages: RunningStages) -> None:
        self.lease_seconds = lease_seconds
        self._stages = stages
        self._tasks: dict[str, RunningTask] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._tasks)

    def snapshot(self) -> list[RunningTask]:
        """Return the tasks that run now; callable from any thread."""
        return list(self._tasks.values())

    def safe_until(self, asked_at: float) -> float:
        """Return until when a lease asked for at that time, by our own clock, is surely ours."""
        return asked_at + self.lease_seconds * (1 - MARGIN)

    def start(
        self,
        claimed: Claimed,
        running: RunningTask,
        execute: Callable[[Claimed, RunningTask], Awaitable[None]],
        free: Callable[[str], None],
    ) -> asyncio.Task[None]:
        """Run a claimed task; ``free`` gets its queue when its slot is free again."""
        run = running.run = self._loop.create_task(self._run(claimed, running, execute, free))
        self._tasks[running.lease_id] = running
        return run

    async def _run(
        self,
        claimed: Claimed,
        running: RunningTask,
        execute: Callable[[Claimed, RunningTask], Awaitable[None]],
        free: Callable[[str], None],
    ) -> None:
        try:
            await execute(claimed, running)
        except LeaseGone:
            log.info("task %s was taken over", running.task_id)
        except SerialisationError as error:
            # The task is lost to us: its lease lapses, and the store's sweep handles the record.
            log.error(
                "task %s: its run is stopped, nothing can be written: %s", running.task_id, error
            )
        except asyncio.CancelledError:
            if running.stop is None:
                raise
        except Exception:
            # The user's code has not failed: its errors are caught at its call. The lease lapses.
            log.exception("task %s: its run failed in the engine", running.task_id)
        finally:
            running.is_renewed = False
            self._stages.end(running)
            del self._tasks[running.lease_id]
            free(claimed.task.queue)


class RunningStages:
    """The stages that run in one process, shared by its workers in whichever threads they run."""

    def __init__(self) -> None:
        self.suspect: RunningTask | None = None  # while it is set, no other stage begins
        self._running: set[str] = set()  # the leases of the stages that run
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    def begin(self, running: RunningTask, task: Task) -> None:
        alone = running is self.suspect and not self._running
        running.note_begun(task, alone=alone)
        self._running.add(running.lease_id)

    def end(self, running: RunningTask) -> None:
        self._running.discard(running.lease_id)
        if self._waiting:
            self.wake()

    def release(self, running: RunningTask) -> None:
        """Let other stages begin again, if this suspect kept them out."""
        if self.suspect is running:
            self.suspect = None
            self.wake()

    async def let_in(self, running: RunningTask, clock: Clock) -> bool:
        """Wait while a suspect keeps others out; False: the run is to be stopped meanwhile."""
        running.wait_without_end()
        while self.suspect is not None and self.suspect is not running and running.stop is None:
            await self.wait(clock)
        return running.stop is not Stop.DRAIN

    async def until_free(self, running: RunningTask, clock: Clock, seconds: float) -> None:
        """Wait until no stage runs here, but not longer than that, or until it is to be stopped."""
        ends = clock.steady() + seconds
        while self._running and clock.steady() < ends and running.stop is None:
            await self.wait(clock)

    async def wait(self, clock: Clock) -> None:
        """Wait until a stage or a suspect has ended here, or for a moment."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = clock.call_later(POLL_SECONDS, lambda: _finish(future))
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            timer.cancel()

    def wake(self) -> None:
        """Wake all who wait, so that they check again."""
        for future in tuple(self._waiting):
            with suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


PROCESS_STAGES = RunningStages()
