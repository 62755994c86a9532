"""Clocks that are set again and again, forward and back, by minutes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from holdfast.clock import SystemClock

JUMP_SECONDS = 90.0  # at most so far off, either way
STAYS_SECONDS = 0.7  # between two jumps
PACE = 2.0  # seconds that the clocks gain in a second: so that after jumps back, too, there is
# soon something due


class JumpingClock(SystemClock):
    """The machine's clock, shifted by jumps that follow from the seed and the process's name.

    The machine's own clock cannot be set without root, so each child wears one of these: as if
    each ran on a machine of its own whose clock somebody sets. SQLite judges by it what is due. On
    Redis the server's clock does; there the jumps act on what the schedulers compute and write.
    ``steady`` is left alone: leases do not follow the clock on the wall.
    """

    def __init__(
        self, name: str, *, began: float, seed: int, real: Callable[[], float] = time.time
    ) -> None:
        self._name, self._began, self._seed, self._real = name, began, seed, real
        self.told: Callable[[float], None] = lambda _: None  # of each jump, how far off it is now
        self._phase = self._chance("phase").random()
        self._number: int | None = None
        self._offset = 0.0

    def now(self) -> float:
        real = self._real()
        elapsed = real - self._began
        number = int(elapsed / STAYS_SECONDS + self._phase)
        if number != self._number:
            self._number = number
            self._offset = self._chance(number).uniform(-JUMP_SECONDS, JUMP_SECONDS)
            self.told(self._offset)
        return real + PACE * elapsed + self._offset

    def _chance(self, of: object) -> random.Random:
        return random.Random(f"{self._seed} {self._name} {of}")
