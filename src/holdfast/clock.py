"""The machine's clocks behind the Clock port, and ids made of the time and chance."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial

from holdfast.ports import Clock, Timer

# The monotonic clock of Linux stands still in suspend, leases do not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    now = staticmethod(time.time)  # each task reads the time five times: no frame of ours
    steady = staticmethod(partial(time.clock_gettime, _STEADY))

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, call)


# -- ids that sort by the time at which they were made (UUID version 7)

_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id(clock: Clock, chance: random.Random) -> str:
    return new_ids(clock, chance, 1)[0]


def new_ids(clock: Clock, chance: random.Random, count: int) -> list[str]:
    born = f"{int(clock.now() * 1000) & (1 << 48) - 1:012x}"
    start = f"{born[:8]}-{born[8:]}-7"
    drawn = chance.randbytes(10 * count).hex()
    return [
        f"{start}{drawn[i + 1 : i + 4]}-{_VARIANT[drawn[i + 4]]}{drawn[i + 5 : i + 8]}"
        f"-{drawn[i + 8 : i + 20]}"
        for i in range(0, 20 * count, 20)
    ]
