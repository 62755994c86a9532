"""When the store was last out of reach: leases that lapsed then are nobody's crash."""

from __future__ import annotations

import logging

from holdfast.ports import Clock

log = logging.getLogger("holdfast.store")

SAID_EVERY_SECONDS = 10.0


class Outages:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: float | None = None
        self._said: float | None = None
        self._is_told = False

    def note(self, error: BaseException) -> None:
        now = self._last = self._clock.steady()
        if self._said is None or now - self._said >= SAID_EVERY_SECONDS:
            self._said, self._is_told = now, True
            log.error("the store is out of reach: %s", error)

    def over(self) -> None:
        """The store has answered: whoever was told of the outage is told of its end."""
        if self._is_told:
            self._is_told = False
            log.warning("the store answers again")

    def stood_still(self) -> None:
        """This process did not run for a while: it cannot tell who else did."""
        self._last = self._clock.steady()

    def within(self, seconds: float) -> bool:
        return self._last is not None and self._clock.steady() - self._last < seconds
