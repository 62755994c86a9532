"""Lines in the log that anybody can cause: a few a second, short, and plain."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from holdfast.domain.plain import plain_line
from holdfast.server.limits import Rates

log = logging.getLogger("holdfast.server")

LINES_RATE = 5.0  # a second, of one kind and from one
PART_MAX_CHARS = 300


class Lines:
    """Of one process."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._rates = Rates()
        self._left_out = Counter[str]()

    def say(
        self,
        level: int,
        kind: str,
        *parts: object,
        of: str = "",
        exc_info: BaseException | None = None,
    ) -> None:
        """``kind``: with a place for each part. ``of``: who causes it, and is counted by himself.
        How many were left out is told with the next."""
        who = f"{of} {kind}"
        if self._rates.wait_seconds(who, rate=LINES_RATE, now=self._steady()):
            self._left_out[who] += 1
            return
        if count := self._left_out.pop(who, 0):
            log.log(level, "%d more lines such as the next one were left out", count)
        log.log(level, kind, *map(_short, parts), exc_info=exc_info)


def _short(part: object) -> str:
    return plain_line(str(part)[:PART_MAX_CHARS])
