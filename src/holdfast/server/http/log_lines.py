"""Lines in the log that anybody can cause: a few a second, short, and plain."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from holdfast.domain.plain import plain_line
from holdfast.server.http.edge import counted_address
from holdfast.server.http.limits import RateLimits

log = logging.getLogger("holdfast.server")

LINES_RATE = 5.0  # a second, of one kind and about one source
ALL_LINES_RATE = 50.0  # a second, about all sources together
SOURCES_MAX = 1_000  # whose lines that were left out are counted each by itself
PART_MAX_CHARS = 300


class LogLines:
    """The log lines of one process that others can cause, within a rate for each source."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._rates, self._all_rates = RateLimits(), RateLimits()
        self._left_out = OrderedDict[str, int]()  # the source that was left out last is at the end
        self._forgotten = 0  # lines that were left out, about sources that are not counted any more

    def say(
        self,
        level: int,
        kind: str,
        *parts: object,
        of: str = "",
        exc_info: BaseException | None = None,
    ) -> None:
        """Write a line, unless there were too many; the next one says how many were left out.

        ``kind`` has a place for each part. ``of`` is the address or the actor that causes the line.
        """
        who = f"{_source(of)} {kind}"
        if self._is_too_much(who, is_of_source=bool(of)):
            self._leave_out(who)
            return
        if count := self._left_out.pop(who, 0):
            log.log(level, "%d more lines such as the next one were left out", count)
        if self._forgotten:
            count, self._forgotten = self._forgotten, 0
            log.log(level, "%d more lines about other addresses were left out", count)
        log.log(level, kind, *map(_short, parts), exc_info=exc_info)

    def _is_too_much(self, who: str, *, is_of_source: bool) -> bool:
        now = self._steady()
        if self._rates.wait_seconds(who, rate=LINES_RATE, now=now):
            return True
        return is_of_source and self._all_rates.wait_seconds("", rate=ALL_LINES_RATE, now=now) > 0

    def _leave_out(self, who: str) -> None:
        self._left_out[who] = self._left_out.pop(who, 0) + 1
        if len(self._left_out) > SOURCES_MAX:
            self._forgotten += self._left_out.popitem(last=False)[1]


def _source(of: str) -> str:
    """Return by what a source is counted; an actor, who has no address, by his name."""
    try:
        return counted_address(of)
    except ValueError:
        return of


def _short(part: object) -> str:
    return plain_line(str(part)[:PART_MAX_CHARS])
