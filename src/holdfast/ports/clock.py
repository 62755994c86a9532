"""The clock that the engine and its stores read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch; this time may jump."""

    def steady(self) -> float:
        """Return seconds that never jump and go on while the machine is suspended."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer: ...
