"""Which stages run in this process, so that a suspect of crashes can run beside none."""

from __future__ import annotations

from holdfast.domain.crashes import position
from holdfast.domain.task import Task
from holdfast.ports import Clock
from holdfast.runtime.held import Held, Stop
from holdfast.runtime.timing import sleep

GATE_SECONDS = 60.0  # for so long at most nothing new begins beside a suspect
LOOK_SECONDS = 0.1


class Company:
    """All workers of one process share it."""

    def __init__(self) -> None:
        self.suspect: Held | None = None  # it keeps the others out
        self._running: set[str] = set()  # the leases of the stages that run

    def begin(self, held: Held, task: Task) -> None:
        alone = held is self.suspect and not self._running
        held.note_begun(position(task.last_completed, task.next_undo), alone=alone)
        self._running.add(held.lease_id)

    def end(self, held: Held) -> None:
        self._running.discard(held.lease_id)

    async def let_in(self, held: Held, clock: Clock) -> bool:
        """Wait while a suspect keeps others out; False: the run is to be stopped meanwhile."""
        held.wait_without_end()
        while self.suspect is not None and self.suspect is not held and held.stop is None:
            await sleep(clock, LOOK_SECONDS)
        return held.stop is not Stop.DRAIN

    async def until_free(self, held: Held, clock: Clock, seconds: float) -> None:
        """Wait until no stage runs here, but not longer than that, or until it is to be stopped."""
        ends = clock.steady() + seconds
        while self._running and clock.steady() < ends and held.stop is None:
            await sleep(clock, LOOK_SECONDS)


OF_THIS_PROCESS = Company()
