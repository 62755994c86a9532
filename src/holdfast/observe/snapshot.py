"""A snapshot of the store, for all parts that show or judge it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from holdfast.domain.task.placement import WAITING, Place
from holdfast.domain.task.state import SUSPENDED
from holdfast.ports import OF_QUEUES, OutageGroup, Stats, Switch, SwitchSetting, WorkerInfo


class Severity(StrEnum):
    PAGE = "page"  # somebody is woken
    TICKET = "ticket"  # in working hours
    INFO = "info"


class Alert(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition that a person should know of, for as long as it lasts."""

    code: str  # stable: "backlog"
    severity: Severity
    queue: str = ""  # empty: of the whole store
    group: str = ""  # of an outage: the fingerprint of its error group
    message: str = msgspec.field(name="says")
    value: float
    threshold: float
    since: float

    @property
    def name(self) -> tuple[str, str]:
        """Return the alert's identity: its code, and the queue or error group that it is about."""
        return self.code, self.queue or self.group


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    stats: Stats
    workers: tuple[WorkerInfo, ...] = ()
    switches: tuple[SwitchSetting, ...] = ()
    alerts: tuple[Alert, ...] = ()
    durable: bool = True
    degraded: bool = False  # on memory, because the real store was out of reach at the start
    findings: Mapping[str, int] | None = None  # of the last examination, by invariant
    event_lag_seconds: float = 0.0
    stages: tuple[tuple[str, str], ...] = ()  # each type and stage that is declared here
    outages: tuple[OutageGroup, ...] = ()  # error groups with tasks that wait for an outage's end

    @property
    def queues(self) -> list[str]:
        """Return the queues that have had tasks, are served by a worker or have a switch set."""
        switched = (setting.name for setting in self.switches if setting.switch in OF_QUEUES)
        served = (queue for worker in self.live for queue in worker.beat.queues)
        return sorted({*self.stats.by_queue, *self.stats.heads, *switched, *served})

    @property
    def live(self) -> list[WorkerInfo]:
        return [worker for worker in self.workers if worker.live]

    @property
    def suspended(self) -> int:
        return sum(self.stats.by_status.get(status, 0) for status in SUSPENDED)

    def switched_names(self, switch: Switch) -> set[str]:
        """Return the queues, workers or tenants for which a person has set the switch."""
        return {setting.name for setting in self.switches if setting.switch is switch}

    def depth(self, queue: str, places: Iterable[Place] = WAITING) -> int:
        counted = self.stats.by_queue.get(queue, {})
        return sum(counted.get(place, 0) for place in places)

    def oldest_seconds(self, queue: str) -> float:
        """Return how long the task that is next in its queue has waited since its last change."""
        head = self.stats.heads.get(queue)
        return 0.0 if head is None else max(0.0, self.stats.now - head.updated_at)
