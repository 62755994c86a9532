"""Clocks that are set again and again, forward and back, by minutes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from holdfast.clock import SystemClock

JUMP_SECONDS = 90.0  # at most so far off, either way
STAYS_SECONDS = 0.7  # between two jumps
PACE = 2.0  # seconds that the clocks gain in a second: something is due soon after a jump back


class JumpingClock(SystemClock):
    """The machine's clock, shifted by jumps that follow from the seed and the process's name.

    The machine's own clock cannot be set without root, so each child has a clock like this, as if
    it ran on a machine of its own whose clock somebody sets. In SQLite this clock decides what is
    due. In Redis the server's clock does, and the jumps affect what the schedulers compute and
    write. ``steady`` is left alone: leases do not follow the wall clock.
    """

    def __init__(
        self, name: str, *, began: float, seed: int, real: Callable[[], float] = time.time
    ) -> None:
        self._name, self._began, self._seed, self._real = name, began, seed, real
        self.on_jump: Callable[[float], None] = lambda _: None  # gets the new offset
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
            self.on_jump(self._offset)
        return real + PACE * elapsed + self._offset

    def _chance(self, of: object) -> random.Random:
        return random.Random(f"{self._seed} {self._name} {of}")
