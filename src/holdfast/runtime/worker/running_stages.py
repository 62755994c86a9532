"""Which stages run in this process, so that a suspect of crashes can run beside none."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from holdfast.domain.task.crashes import position
from holdfast.domain.task.task import Task
from holdfast.ports import Clock
from holdfast.runtime.worker.running_task import RunningTask, Stop

GATE_SECONDS = 60.0  # for so long at most nothing new begins beside a suspect
LOOK_SECONDS = 0.1


class RunningStages:
    """All workers of one process share it, whichever threads their loops run in."""

    def __init__(self) -> None:
        self.suspect: RunningTask | None = None  # it keeps the others out
        self._running: set[str] = set()  # the leases of the stages that run
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    def begin(self, held: RunningTask, task: Task) -> None:
        alone = held is self.suspect and not self._running
        held.note_begun(position(task.last_completed, task.next_undo), alone=alone)
        self._running.add(held.lease_id)

    def end(self, held: RunningTask) -> None:
        self._running.discard(held.lease_id)
        if self._waiting:
            self.wake()

    def release(self, held: RunningTask) -> None:
        """Let the others in again, if it is this suspect that keeps them out."""
        if self.suspect is held:
            self.suspect = None
            self.wake()

    async def let_in(self, held: RunningTask, clock: Clock) -> bool:
        """Wait while a suspect keeps others out; False: the run is to be stopped meanwhile."""
        held.wait_without_end()
        while self.suspect is not None and self.suspect is not held and held.stop is None:
            await self.wait(clock)
        return held.stop is not Stop.DRAIN

    async def until_free(self, held: RunningTask, clock: Clock, seconds: float) -> None:
        """Wait until no stage runs here, but not longer than that, or until it is to be stopped."""
        ends = clock.steady() + seconds
        while self._running and clock.steady() < ends and held.stop is None:
            await self.wait(clock)

    async def wait(self, clock: Clock) -> None:
        """Wait until a stage or a suspect has ended here, or for a moment."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = clock.call_later(LOOK_SECONDS, lambda: _finish(future))
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            timer.cancel()

    def wake(self) -> None:
        """Let those who wait look again."""
        for future in tuple(self._waiting):
            with suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


PROCESS_STAGES = RunningStages()
