"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from holdfast.domain.durations import seconds

# Any round number; the two differ so that code which mixes up the clocks is caught.
START_NOW = 1_700_000_000.0
START_STEADY = 5_000.0


@dataclass(slots=True, order=True)
class ManualTimer:
    at: float  # by the steady clock
    number: int  # timers of one moment fire in the order in which they were set
    call: Callable[[], None] = field(compare=False)
    loop: asyncio.AbstractEventLoop | None = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        """Call on the loop that set the timer, which need not be the one that moves the clock."""
        if self.cancelled:
            return
        if self.loop is None or self.loop is _running_loop():
            self.call()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.call)


class ManualClock:
    """A Clock whose time a test moves; any thread may read it and set timers."""

    def __init__(self, *, now: float = START_NOW, steady: float = START_STEADY) -> None:
        self._now, self._steady = now, steady
        self._offset_seconds = now - steady
        self._timers: list[ManualTimer] = []
        self._numbers = count()
        self._lock = threading.RLock()

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._steady

    def times(self) -> tuple[float, float]:
        """Return the time for leases and due times, and the wall clock's, as a server would."""
        return self._steady + self._offset_seconds, self._now

    def call_later(self, seconds: float, call: Callable[[], None]) -> ManualTimer:
        with self._lock:
            at = self._steady + max(0.0, seconds)
            timer = ManualTimer(at, next(self._numbers), call, _running_loop())
            heapq.heappush(self._timers, timer)
            return timer

    def advance(self, by: float | str) -> None:
        """Move time on (``90``, ``"5m"``); each timer on the way fires at its own moment."""
        end = self._steady + seconds(by)
        while timer := self._next_until(end):
            self._move_to(timer.at)
            timer.fire()
        self._move_to(end)

    async def elapse(self, by: float | str, *, turns: int = 20) -> None:
        """Move the clock like ``advance``, but let what a timer wakes run before time goes on."""
        end = self._steady + seconds(by)
        await give_way(turns)
        while timer := self._next_until(end):
            self._move_to(timer.at)
            timer.fire()
            await give_way(turns)
        self._move_to(end)
        await give_way(turns)

    def jump(self, by: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        with self._lock:
            self._now += by

    @property
    def next_timer_seconds(self) -> float | None:
        """Return how long until the next timer fires, or None when none is set."""
        with self._lock:
            self._drop_cancelled()
            return self._timers[0].at - self._steady if self._timers else None

    def _next_until(self, end: float) -> ManualTimer | None:
        with self._lock:
            self._drop_cancelled()
            if self._timers and self._timers[0].at <= end:
                return heapq.heappop(self._timers)
            return None

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)

    def _move_to(self, steady: float) -> None:
        with self._lock:
            passed = max(0.0, steady - self._steady)
            self._now, self._steady = self._now + passed, self._steady + passed


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def give_way(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
