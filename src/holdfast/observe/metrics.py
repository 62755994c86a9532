"""What Prometheus scrapes: the store's numbers, and those of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric

from holdfast.observe import text
from holdfast.observe.families import FAMILIES
from holdfast.observe.lag import Lag
from holdfast.observe.requests import Requests
from holdfast.observe.snapshot import Snapshot
from holdfast.version import __version__

__all__ = ["CONTENT_TYPE", "Metrics", "Snapshot"]

AUTH_FAILURES = ("unauthenticated", "forbidden", "too-many-requests")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """With a registry of its own: what else a process counts is not mixed in."""

    def __init__(self, *, steady: Callable[[], float] = time.monotonic) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._auth_failures = self._counter("holdfast_auth_failures_total")
        for kind in AUTH_FAILURES:  # a rule does not see that a series is born
            self._auth_failures.labels(kind)
        self.sse_streams = self._gauge("holdfast_sse_streams")  # inc() and dec()
        self._connections = self._gauge("holdfast_http_connections")
        self._refused_connections = self._counter("holdfast_http_connections_refused_total")
        self._lag = Lag(steady)
        self._gauge("holdfast_event_lag_seconds").set_function(self._lag.worst)
        self._gauge("holdfast_build_info").labels(__version__).set(1)
        self._requests = Requests()

    def exposition(self, snapshot: Snapshot | None) -> bytes:
        """None: the store is away; what this process knows by itself is told all the same."""
        told = [*text.one("holdfast_up", snapshot is not None), *self._requests.lines()]
        if snapshot is not None:
            told += text.lines(snapshot)
        return "\n".join(told).encode() + b"\n" + generate_latest(_Plain(self._registry))

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """``route`` as declared, never as asked: ``/api/tasks/{id}``."""
        self._requests.add(method, route, status, seconds)

    def count_connections(self, count: Callable[[], int], reasons: Iterable[str]) -> None:
        """``count``: those that are open; ``reasons``: why others can be refused."""
        self._connections.set_function(count)
        for reason in reasons:
            self._refused_connections.labels(reason)  # the series is there from the start

    def connection_refused(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def event_lag(self, seconds: float) -> None:
        self._lag.note(seconds)

    def worst_event_lag(self) -> float:
        """Of the last minute."""
        return self._lag.worst()

    def auth_failed(self, kind: str) -> None:
        self._auth_failures.labels(kind).inc()

    def _counter(self, name: str) -> Counter:
        described = FAMILIES[name]
        return Counter(name, described.says, described.labels, registry=self._registry)

    def _gauge(self, name: str) -> Gauge:
        described = FAMILIES[name]
        return Gauge(name, described.says, described.labels, registry=self._registry)


class _Plain:
    """Without the time at which each counter was made, which doubles their number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
