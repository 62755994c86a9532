"""Log lines about refused submits, at intervals: the log may be on the disk that is full."""

from __future__ import annotations

import logging
import math

from holdfast.domain.errors import StoreFull, StoreUnavailable
from holdfast.ports import Clock

log = logging.getLogger("holdfast")

INTERVAL_SECONDS = 10.0


class RefusalLog:
    """Logs the first refusal at once, and counts those that follow until the next line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.causes = dict[str, tuple[float, int]]()  # when it was logged, how many came since

    def add(self, error: StoreUnavailable) -> None:
        cause = "full" if isinstance(error, StoreFull) else "out of reach"
        now, (logged_at, unlogged) = self._clock.steady(), self.causes.get(cause, (-math.inf, 0))
        if now - logged_at < INTERVAL_SECONDS:
            self.causes[cause] = logged_at, unlogged + 1
            return
        self.causes[cause] = now, 0
        more = f" ({unlogged} more refusals since the last such line)" if unlogged else ""
        log.critical("submits were refused, the store is %s: %s%s", cause, error, more)

    def flush(self, after_seconds: float = INTERVAL_SECONDS) -> None:
        """Log the refusals that no line has counted, where the last line is so old."""
        now = self._clock.steady()
        for cause, (logged_at, unlogged) in tuple(self.causes.items()):
            if now - logged_at < after_seconds:
                continue
            if not unlogged:
                del self.causes[cause]
                continue
            self.causes[cause] = now, 0
            line = "%d more submits were refused since the last such line, the store was %s"
            log.critical(line, unlogged, cause)
