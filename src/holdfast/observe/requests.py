"""Requests that were answered, and how long it took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from holdfast.observe import text

SPANS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LIMIT = 2_000  # of method, route and status: a caller must not be able to fill the memory
OTHER = "other"


class _Spread:
    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SPANS) + 1)
        self.total_seconds = 0.0


class Requests:
    def __init__(self) -> None:
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._spreads: dict[tuple[str, str], _Spread] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        if (method, route, status) not in self._answered:
            method, route = self._bounded(method, route)
        self._answered[method, route, status] += 1
        spread = self._spreads.get((method, route))
        if spread is None:
            spread = self._spreads[method, route] = _Spread()
        spread.counts[bisect_left(SPANS, seconds)] += 1
        spread.total_seconds += seconds

    def _bounded(self, method: str, route: str) -> tuple[str, str]:
        if len(self._answered) >= LIMIT:
            return OTHER, OTHER
        return (method if method in METHODS else OTHER), route

    def lines(self) -> Iterator[str]:
        answered = (
            ((method, route, str(status)), count)
            for (method, route, status), count in self._answered.items()
        )
        spreads = ((key, each.counts, each.total_seconds) for key, each in self._spreads.items())
        yield from text.family("holdfast_http_requests_total", answered)
        yield from text.histogram("holdfast_http_request_duration_seconds", SPANS, spreads)
