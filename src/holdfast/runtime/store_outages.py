"""When the store was last out of reach: leases that lapsed then are nobody's crash."""

from __future__ import annotations

import logging

from holdfast.domain.errors import PartlyUnavailable, StoreError, StoreUnavailable
from holdfast.ports import Clock

log = logging.getLogger("holdfast.store")

SAID_EVERY_SECONDS = 10.0


class StoreOutages:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: float | None = None
        self._said: dict[bool, float] = {}  # of outages, and of what else goes wrong
        self._is_told = False

    def note(self, error: StoreError | TimeoutError) -> None:
        """What else a store may say is no outage: whoever crashes meanwhile is counted."""
        is_outage, now = _is_outage(error), self._clock.steady()
        if is_outage:
            self._last = now
        said = self._said.get(is_outage)
        if said is not None and now - said < SAID_EVERY_SECONDS:
            return
        self._said[is_outage] = now
        if is_outage:
            self._is_told = True
            log.error("the store is out of reach: %s", str(error) or "it did not answer in time")
        else:
            log.error("%s", error)

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


def _is_outage(error: StoreError | TimeoutError) -> bool:
    if isinstance(error, PartlyUnavailable):
        told = [one for one in error.answers if isinstance(one, StoreError)]
        return not told or any(map(_is_outage, told))
    return isinstance(error, StoreUnavailable | TimeoutError)
