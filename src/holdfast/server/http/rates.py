"""How much one caller may ask for in a while. Counted in this process alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

CALLERS_MAX = 10_000  # remembered; the one that was seen longest ago is forgotten first
BURST_SECONDS = 2.0  # what may come at once, in seconds of the rate


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Rates:
    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_seconds(self, who: str, *, rate: float, now: float) -> float:
        """0.0: go on, and it is counted; else when there will be room."""
        burst = max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = self._buckets[who] = _Bucket(burst, now)
            if len(self._buckets) > CALLERS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(who)
        bucket.left = min(burst, bucket.left + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.left < 1.0:
            return (1.0 - bucket.left) / rate
        bucket.left -= 1.0
        return 0.0
