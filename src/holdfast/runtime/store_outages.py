"""The outages of the store: leases that lapsed in one are nobody's crash."""

from __future__ import annotations

import logging

from holdfast.domain.errors import PartlyUnavailable, StoreError, StoreUnavailable
from holdfast.ports import Clock

log = logging.getLogger("holdfast.store")

LOG_EVERY_SECONDS = 10.0


class StoreOutages:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: float | None = None
        self._logged_at: dict[bool, float] = {}  # outages, and other errors
        self._is_logged = False

    def note(self, error: StoreError | TimeoutError) -> None:
        """Note an error of the store; one that is no outage excuses no crash."""
        is_outage, now = _is_outage(error), self._clock.steady()
        if is_outage:
            self._last = now
        logged_at = self._logged_at.get(is_outage)
        if logged_at is not None and now - logged_at < LOG_EVERY_SECONDS:
            return
        self._logged_at[is_outage] = now
        if is_outage:
            self._is_logged = True
            log.error("the store is out of reach: %s", str(error) or "it did not answer in time")
        else:
            log.error("%s", error)

    def over(self) -> None:
        """Log the end of an outage that was logged: the store has answered."""
        if self._is_logged:
            self._is_logged = False
            log.warning("the store answers again")

    def stood_still(self) -> None:
        """Note that this process did not run for a while: it cannot tell who else did."""
        self._last = self._clock.steady()

    def within(self, seconds: float) -> bool:
        return self._last is not None and self._clock.steady() - self._last < seconds


def _is_outage(error: StoreError | TimeoutError) -> bool:
    if isinstance(error, PartlyUnavailable):
        errors = [answer for answer in error.answers if isinstance(answer, StoreError)]
        return not errors or any(map(_is_outage, errors))
    return isinstance(error, StoreUnavailable | TimeoutError)
