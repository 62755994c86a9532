"""The board on which tasks mark their start and end: one file, shared as memory.

Every engine is measured by the same few bytes: each task marks its own when it starts and when it
is done, whatever process it runs in, and the harness reads them. Nothing but the standard library
is used here: this module is imported in the environment of each peer.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

_TIME = struct.Struct("<q")


class Board:
    """``size`` tasks, numbered from 0: how often each was started and done, and when."""

    def __init__(self, path: str | Path, size: int) -> None:
        self.size = size
        self._file = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(self._file, _bytes_of(size))
        self._starts, self._dones = 0, size
        self._started_at, self._done_at = 2 * size, 10 * size

    @classmethod
    def make(cls, path: str | Path, size: int) -> Board:
        with open(path, "wb") as file:
            file.truncate(_bytes_of(size))
        return cls(path, size)

    def close(self) -> None:
        self._map.close()
        os.close(self._file)

    # -- in a task

    def start(self, number: int) -> None:
        """The first start's time stays; later ones are counted."""
        self._count(self._starts + number, self._started_at + 8 * number, first=True)

    def done(self, number: int) -> None:
        self._count(self._dones + number, self._done_at + 8 * number, first=False)

    def mark(self, number: int) -> None:
        """Mark start and end at once: the whole body of a task that does nothing."""
        self.start(number)
        self.done(number)

    def _count(self, at: int, time_at: int, *, first: bool) -> None:
        count = self._map[at]
        if not (first and count):
            _TIME.pack_into(self._map, time_at, time.monotonic_ns())
        self._map[at] = min(255, count + 1)

    # -- in the harness

    def count_done(self) -> int:
        return self.size - self._map[self._dones : self._dones + self.size].count(b"\0")

    def count_started(self) -> int:
        return self.size - self._map[: self.size].count(b"\0")

    def dones(self) -> bytes:
        """Return how often each task was done, one byte for each."""
        return self._map[self._dones : self._dones + self.size]

    def started_at(self, number: int) -> int | None:
        """Return nanoseconds of the machine's monotonic clock, or None before the start."""
        return self._time(self._started_at, number)

    def done_at(self, number: int) -> int | None:
        return self._time(self._done_at, number)

    def _time(self, plane: int, number: int) -> int | None:
        (at,) = _TIME.unpack_from(self._map, plane + 8 * number)
        return at or None

    def span_seconds(self) -> float:
        """Return the seconds from the first start to the last end."""
        starts = self._times(self._started_at)
        ends = self._times(self._done_at)
        return (max(ends) - min(starts)) / 1e9

    def _times(self, plane: int) -> list[int]:
        view = memoryview(self._map)[plane : plane + 8 * self.size]
        try:
            return [at for at in view.cast("q") if at]
        finally:
            view.release()


def _bytes_of(size: int) -> int:
    return 18 * size
