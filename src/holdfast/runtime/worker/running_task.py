"""A task that this worker holds: shared by its run, the heartbeat and the worker."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from math import inf

import msgspec

from holdfast.domain.task.events import TaskProgress
from holdfast.domain.task.task import Progress
from holdfast.ports import Renewal


class Stop(StrEnum):
    LEASE_LOST = "lease lost"  # someone else may have it: write nothing more
    DRAIN = "the worker stops"  # give it back


class RunningTask:
    """The heartbeat reads and writes this from its own thread; each field is set whole."""

    renew_until = inf  # a hung stage must lose its lease
    ends = inf  # when the stage that runs is interrupted
    out_of_time = False  # and was
    in_stage = False  # the user's code runs, not a commit
    in_thread = False  # a plain function runs: it cannot be stopped
    ending = False  # its last write is under way: the lease may be gone by our own hand
    stop: Stop | None = None
    told = False  # that it was lost while a plain function ran
    is_alone = False  # it is a suspect, and nothing else runs in this process
    progress_is_new = False
    run: asyncio.Task[None] | None = None
    _begun: tuple[str, float] | None = None
    _begun_at = ""  # where the task was then
    _said: Progress | None = None
    _cancels_before = 0
    _overdue_at = inf

    def __init__(self, task_id: str, lease_id: str, *, safe_until: float, version: int = 0) -> None:
        self.task_id = task_id
        self.lease_id = lease_id
        self.version = version  # of the record, when it was claimed
        self.safe_until = safe_until  # by our own clock: past it the lease may be another's

    # -- what it says of itself

    def begin(self, stage: str, *, at: float, ends: float, renew_until: float) -> None:
        """A stage starts; that it has done nothing yet is all there is to say of it."""
        self._overdue_at = ends
        self._begun, self._said, self.progress_is_new = (stage, at), None, True
        self.renew_until = renew_until

    def note_begun(self, position: str, *, alone: bool) -> None:
        """Note that a stage has begun, for the next beat: a crash counts only then."""
        self._begun_at, self.is_alone = position, alone

    def note_overdue(self, now: float) -> None:
        """A stage that runs past its time is to blame itself, whoever runs beside it."""
        if self.in_stage and now >= self._overdue_at and not self.is_alone:
            self.is_alone = self.progress_is_new = True

    def note_company(self) -> None:
        """Note that the task no longer runs alone; the next renewal tells the store."""
        self.is_alone, self.progress_is_new = False, True

    def wait_without_end(self) -> None:
        """No stage runs: the time of the last one does not end the lease."""
        self.renew_until = inf

    def report(self, progress: Progress) -> None:
        self._said, self.progress_is_new = progress, True

    @property
    def progress(self) -> Progress | None:
        """Made when somebody looks: most stages end before anybody does."""
        said = self._said
        if said is None and self._begun is not None:
            stage, at = self._begun
            said = Progress(fraction=0.0, stage=stage, at=at)
        if said is None or not self._begun_at:
            return said
        return msgspec.structs.replace(said, begun=self._begun_at, alone=self.is_alone)

    @property
    def has_begun(self) -> bool:
        """Whether a stage of the task was called by this holder."""
        return bool(self._begun_at)

    def renewal(self, *, again: bool = False) -> Renewal:
        """``again``: with what it says of itself, even if the store knows it."""
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
        """Callable from any thread; the first reason stands, but a lost lease beats a drain."""
        if self.stop is None or why is Stop.LEASE_LOST:
            self.stop = why
            if self.run is not None:
                self.run.get_loop().call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        """A drain interrupts the user's code only: a commit that was begun is awaited."""
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
        """The interruption of a stage that had run out of time; False: it was not the only one."""
        assert self.run is not None
        self.out_of_time = False
        return self.run.uncancel() <= self._cancels_before
