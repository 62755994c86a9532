"""The lag of events: how late they reach their readers."""

from __future__ import annotations

from collections.abc import Callable

SPAN_SECONDS = 30.0


class Lag:
    """The worst of the last 30 to 60 seconds: a reader that has gone does not stay the worst."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._began = steady()
        self._present = self._past = 0.0

    def note(self, seconds: float) -> None:
        self._move_on()
        self._present = max(self._present, seconds)

    def worst(self) -> float:
        self._move_on()
        return max(self._present, self._past)

    def _move_on(self) -> None:
        passed = self._steady() - self._began
        if passed >= SPAN_SECONDS:
            self._past = self._present if passed < 2 * SPAN_SECONDS else 0.0
            self._present, self._began = 0.0, self._steady()
