"""Polling for a condition that another process brings about, up to a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.02

T = TypeVar("T")


class NotInTime(TimeoutError):
    """The awaited condition did not come about in time."""


def until(condition: Callable[[], T], what: str, *, seconds: float = 60.0) -> T:
    """Return the first true result of ``condition``, or raise :class:`NotInTime`."""
    pause = threading.Event()
    ends_at = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > ends_at:
            raise NotInTime(f"not within {seconds:g} s: {what}")
        pause.wait(POLL_SECONDS)
    return answer
