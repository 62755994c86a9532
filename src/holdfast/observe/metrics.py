"""Metrics that Prometheus scrapes: the store's numbers, and those of this process."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from holdfast.observe import text
from holdfast.observe.families import FAMILIES
from holdfast.observe.snapshot import Snapshot
from holdfast.version import __version__

__all__ = ["CONTENT_TYPE", "Metrics", "Snapshot"]

AUTH_FAILURES = ("unauthenticated", "forbidden", "too-many-requests")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SPANS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LIMIT = 2_000  # of method, route and status: a caller must not be able to fill the memory
OTHER = "other"
LAG_SECONDS = 30.0


class _Spread:
    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SPANS) + 1)
        self.total_seconds = 0.0


class RequestCounts:
    """Counts and durations of the requests that were answered."""

    def __init__(self) -> None:
        self._answered: Counts[tuple[str, str, int]] = Counts()
        self._spreads: dict[tuple[str, str], _Spread] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        if (method, route, status) not in self._answered:
            method, route = self._bound_labels(method, route)
        self._answered[method, route, status] += 1
        spread = self._spreads.get((method, route))
        if spread is None:
            spread = self._spreads[method, route] = _Spread()
        spread.counts[bisect_left(SPANS, seconds)] += 1
        spread.total_seconds += seconds

    def _bound_labels(self, method: str, route: str) -> tuple[str, str]:
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


class Lag:
    """The worst lag of events in the last 30 to 60 seconds; the lag of a gone reader ends, too."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._began = steady()
        self._present = self._past = 0.0

    def note(self, seconds: float) -> None:
        self._move_on()
        self._present = max(self._present, seconds)

    def worst(self) -> float:
        self._move_on()
        return max(self._present, self._past)

    def _move_on(self) -> None:
        passed = self._steady() - self._began
        if passed >= LAG_SECONDS:
            self._past = self._present if passed < 2 * LAG_SECONDS else 0.0
            self._present, self._began = 0.0, self._steady()


class Metrics:
    """Metrics with a registry of their own: other counters of the process are not mixed in."""

    def __init__(self, *, steady: Callable[[], float] = time.monotonic) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._auth_failures = self._counter("holdfast_auth_failures_total")
        for kind in AUTH_FAILURES:  # a rule does not see that a series begins
            self._auth_failures.labels(kind)
        self.sse_streams = self._gauge("holdfast_sse_streams")  # inc() and dec()
        self._connections = self._gauge("holdfast_http_connections")
        self._refused_connections = self._counter("holdfast_http_connections_refused_total")
        self._lag = Lag(steady)
        self._gauge("holdfast_event_lag_seconds").set_function(self._lag.worst)
        self._gauge("holdfast_build_info").labels(__version__).set(1)
        self._requests = RequestCounts()

    def exposition(self, snapshot: Snapshot | None) -> bytes:
        """Return the text for Prometheus; ``snapshot`` None: the store does not answer."""
        lines = [*text.sample("holdfast_up", snapshot is not None), *self._requests.lines()]
        if snapshot is not None:
            lines += text.lines(snapshot)
        return "\n".join(lines).encode() + b"\n" + generate_latest(_Plain(self._registry))

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` as declared, not as requested: ``/api/tasks/{id}``."""
        self._requests.add(method, route, status, seconds)

    def count_connections(self, count: Callable[[], int], reasons: Iterable[str]) -> None:
        """Show open connections by ``count``, and refused ones by each of ``reasons``."""
        self._connections.set_function(count)
        for reason in reasons:
            self._refused_connections.labels(reason)  # the series is there from the start

    def connection_refused(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def event_lag(self, seconds: float) -> None:
        self._lag.note(seconds)

    def worst_event_lag(self) -> float:
        """Return the worst lag of the last minute."""
        return self._lag.worst()

    def auth_failed(self, kind: str) -> None:
        self._auth_failures.labels(kind).inc()

    def _counter(self, name: str) -> Counter:
        described = FAMILIES[name]
        return Counter(name, described.help, described.labels, registry=self._registry)

    def _gauge(self, name: str) -> Gauge:
        described = FAMILIES[name]
        return Gauge(name, described.help, described.labels, registry=self._registry)


class _Plain:
    """A registry without the time at which each counter was made, which doubles their number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
