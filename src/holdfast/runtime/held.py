"""A task that this worker holds: shared by its run, the heartbeat and the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from enum import StrEnum

from holdfast.domain.events import TaskProgress
from holdfast.domain.task import Progress
from holdfast.ports import Renewal


class Stop(StrEnum):
    LEASE_LOST = "lease lost"  # someone else may have it: write nothing more
    DRAIN = "the worker stops"  # give it back


class Held:
    """The heartbeat reads and writes this from its own thread; each field is set whole."""

    def __init__(self, task_id: str, lease_id: str, *, safe_until: float) -> None:
        self.task_id = task_id
        self.lease_id = lease_id
        self.safe_until = safe_until  # by our own clock: past it the lease may be another's
        self.renew_until: float | None = None  # a hung stage must lose its lease
        self.in_stage = False  # the user's code runs, not a commit
        self.in_thread = False  # a plain function runs: it cannot be stopped
        self.ending = False  # its last write is under way: the lease may be gone by our own hand
        self.stop: Stop | None = None
        self.told = False  # that it was lost while a plain function ran
        self.last_chance = False  # one more crash and it is suspended as poison
        self.version = 0  # of the record, when it was claimed
        self.progress: Progress | None = None
        self.progress_is_new = False
        self.on_stop: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def report(self, progress: Progress) -> None:
        self.progress, self.progress_is_new = progress, True

    def renewal(self) -> Renewal:
        fresh = self.progress if self.progress_is_new else None
        self.progress_is_new = False
        return Renewal(task_id=self.task_id, lease_id=self.lease_id, progress=fresh)

    def event(self) -> TaskProgress | None:
        if self.progress is None:
            return None
        return TaskProgress(
            task_id=self.task_id,
            version=self.version,
            at=self.progress.at,
            fraction=self.progress.fraction,
            stage=self.progress.stage,
            message=self.progress.message,
        )

    def may_renew(self, now: float) -> bool:
        return self.stop is not Stop.LEASE_LOST and (
            self.renew_until is None or now < self.renew_until
        )

    def ask_to_stop(self, why: Stop) -> None:
        """Callable from any thread; the first reason stands, but a lost lease beats a drain."""
        if self.stop is None or why is Stop.LEASE_LOST:
            self.stop = why
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        """A drain interrupts the user's code only: a commit that was begun is awaited."""
        if self.stop is Stop.LEASE_LOST or self.in_stage:
            self.on_stop()
