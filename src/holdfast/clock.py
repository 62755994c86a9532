"""The machine's clocks, behind the Clock port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.ports import Timer

# The monotonic clock of Linux stands still in suspend, leases do not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.clock_gettime(_STEADY)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, call)
