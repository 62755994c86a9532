"""Limits on callers, counted in this process: how often they may ask, and how much at once."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.domain.errors import HoldfastError

CALLERS_MAX = 10_000  # remembered; the one that was seen longest ago is forgotten first
BURST_SECONDS = 2.0  # what may come at once, in seconds of the rate


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimits:
    """The rate at which each caller may ask."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_seconds(self, who: str, *, rate: float, now: float) -> float:
        """Count a request and return 0.0, or return when there will be room for it."""
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


class Quota:
    """The number of requests of one kind that may run at once: of each token, and in all."""

    def __init__(
        self,
        *,
        total: int,
        of_token: int,
        full: Callable[[int], HoldfastError],
        token_full: Callable[[int], HoldfastError],
    ) -> None:
        """Make a quota; ``full`` and ``token_full`` return the refusal, given the limit."""
        self._total, self._of_token = total, of_token
        self._full, self._token_full = full, token_full
        self._taken = 0
        self._by_token = Counter[str]()

    @property
    def taken(self) -> int:
        return self._taken

    def taken_by(self, token_id: str) -> int:
        """Return how many places a token has."""
        return self._by_token.get(token_id, 0)

    @contextmanager
    def place(self, token_id: str) -> Iterator[None]:
        """Take a place for one request, and give it back at its end."""
        if self._by_token[token_id] >= self._of_token:
            raise self._token_full(self._of_token)
        if self._taken >= self._total:
            raise self._full(self._total)
        self._taken += 1
        self._by_token[token_id] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._by_token[token_id] -= 1
            if not self._by_token[token_id]:
                del self._by_token[token_id]
