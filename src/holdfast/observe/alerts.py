"""Alerts tell a person what to know, judged from a snapshot and from the alerts before.

An alert is raised when its value passes its threshold, and cleared when it falls below 80 % of it,
so a value that swings around a threshold raises one alert. Nothing is read or kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from holdfast.domain.task.placement import Place
from holdfast.observe.snapshot import Alert, Severity, Snapshot
from holdfast.ports import Awaited, OutageGroup, Switch

CLEARED_BELOW = 0.8  # of the threshold
EVERY_OTHER = "*"  # among the thresholds of queues

SEVERITIES: Mapping[str, Severity] = {
    "backlog": Severity.TICKET,
    "checkpoints": Severity.TICKET,
    "tenant-locks": Severity.TICKET,
    "lone-lock": Severity.PAGE,
    "event-lag": Severity.TICKET,
    "not-durable": Severity.PAGE,
    "no-workers": Severity.PAGE,
    "suspended": Severity.TICKET,
    "oldest-age": Severity.TICKET,
    "outage": Severity.TICKET,
    "store-away": Severity.PAGE,
}
OF_QUEUES = ("backlog", "no-workers", "oldest-age")
OF_GROUPS = ("outage",)
LATE: Mapping[Awaited, str] = {
    Awaited.LEASE: "a lease has lapsed",
    Awaited.TASK: "a task was due",
    Awaited.TRIGGER: "a trigger was due",
    Awaited.PLAN: "a plan was due",
}

Name: TypeAlias = tuple[str, str]  # code, and the queue or error group
LONE_LOCK: Name = ("lone-lock", "")
NO_WORKERS: Name = ("no-workers", "")  # none at all; with a queue: none for that queue
OF_ONE_PROCESS: tuple[Name, ...] = (("event-lag", ""), ("not-durable", ""))
STORE_AWAY: Name = ("store-away", "")  # of one process, too; no store can be asked meanwhile
Alerts: TypeAlias = Mapping[Name, Alert]


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The values above which an alert is raised."""

    backlog: Mapping[str, int] = msgspec.field(default_factory=lambda: {EVERY_OTHER: 10_000})
    checkpoints: int = 10_000
    tenant_locks: int = 100
    event_lag_seconds: float = 5.0
    oldest_seconds: float = 900.0
    late_seconds: float = 15.0  # a restart of all workers takes less
    outage_seconds: float = 300.0


class AlertRaised(msgspec.Struct, frozen=True, kw_only=True, tag="AlertRaised", rename="camel"):
    alert: Alert
    at: float


class AlertCleared(msgspec.Struct, frozen=True, kw_only=True, tag="AlertCleared", rename="camel"):
    alert: Alert  # as it last was
    at: float


def name_of(change: AlertRaised | AlertCleared) -> str:
    """Return the name by which hooks and receivers know the change."""
    return str(type(change).__struct_config__.tag)


class Measure(msgspec.Struct, frozen=True):
    """A value with its threshold, and the message when it is passed."""

    code: str
    value: float
    threshold: float
    message: str
    queue: str = ""
    group: str = ""

    @property
    def name(self) -> Name:
        return self.code, self.queue or self.group


def shared_names(queues: Iterable[str], groups: Iterable[str] = ()) -> list[Name]:
    """Return the names of the alerts that every process sees alike, sooner or later."""
    of_some = (*OF_QUEUES, *OF_GROUPS)
    of_store = [NO_WORKERS, *((code, "") for code in SEVERITIES if code not in of_some)]
    of_all = [name for name in of_store if name not in (*OF_ONE_PROCESS, STORE_AWAY)]
    of_queues = [(code, queue) for queue in queues for code in OF_QUEUES]
    return of_all + of_queues + [(code, group) for group in groups for code in OF_GROUPS]


def judge(facts: Snapshot, limits: Thresholds, before: Alerts, *, now: float) -> Alerts:
    """Return the alerts of now; one that was there before keeps its ``since``. An alert that needs
    an examination stays as it was until there is one."""
    is_unexamined = facts.findings is None and LONE_LOCK in before
    unknown = {LONE_LOCK: before[LONE_LOCK]} if is_unexamined else {}
    return {
        measure.name: _alert(measure, before.get(measure.name), now)
        for measure in _measures(facts, limits, now)
        if _is_raised(measure, was_raised=measure.name in before)
    } | unknown


def away(error: str, before: Alerts, *, now: float) -> Alerts:
    """Return the alerts while the store does not answer: those known before, and this one."""
    measure = Measure("store-away", 1, 0, f"the store is out of reach: {error}")
    return {**before, measure.name: _alert(measure, before.get(measure.name), now)}


def changes(before: Alerts, after: Alerts, *, now: float) -> Iterator[AlertRaised | AlertCleared]:
    for name, alert in after.items():
        if name not in before:
            yield AlertRaised(alert=alert, at=now)
    for name, alert in before.items():
        if name not in after:
            yield AlertCleared(alert=alert, at=now)


def _is_raised(measure: Measure, *, was_raised: bool) -> bool:
    if measure.value > measure.threshold:
        return True
    return was_raised and measure.value > 0 and measure.value >= CLEARED_BELOW * measure.threshold


def _alert(measure: Measure, before: Alert | None, now: float) -> Alert:
    return Alert(
        code=measure.code,
        severity=SEVERITIES[measure.code],
        queue=measure.queue,
        group=measure.group,
        message=measure.message,
        value=measure.value,
        threshold=measure.threshold,
        since=before.since if before else now,
    )


def _measures(facts: Snapshot, limits: Thresholds, now: float) -> Iterator[Measure]:
    yield from _of_the_store(facts, limits)
    for group in facts.outages:
        yield _outage(group, limits, now)
    paused = facts.switched_names(Switch.CLAIMING)
    for queue in facts.queues:
        yield _backlog(facts, limits, queue)
        if queue not in paused:  # else nobody expects that its tasks run
            yield _no_workers(facts, queue)
            yield _oldest(facts, limits, queue)


def _of_the_store(facts: Snapshot, limits: Thresholds) -> Iterator[Measure]:
    stats, lone = facts.stats, (facts.findings or {}).get("I2", 0)
    lag, most = facts.event_lag_seconds, limits.event_lag_seconds
    held = _count_of(stats.checkpoints, "checkpoint", "checkpoints")
    held += f" of unsettled tasks, threshold {limits.checkpoints}"
    locked = _count_of(stats.locks, "tenant is locked", "tenants are locked")
    locked += f", threshold {limits.tenant_locks}"
    yield Measure("checkpoints", stats.checkpoints, limits.checkpoints, held)
    yield Measure("tenant-locks", stats.locks, limits.tenant_locks, locked)
    differ = _count_of(lone, "lock and its task do", "locks and their tasks do")
    yield Measure("lone-lock", lone, 0, f"{differ} not agree: see `holdfast doctor`")
    yield Measure("event-lag", lag, most, f"events reach their readers {lag:.1f} s late")
    yield Measure("not-durable", int(not facts.durable), 0, _not_durable(facts))
    waits = _count_of(facts.suspended, "suspended task waits", "suspended tasks wait")
    yield Measure("suspended", facts.suspended, 0, f"{waits} for a person")
    yield _late_without_workers(facts, limits)


def _late_without_workers(facts: Snapshot, limits: Thresholds) -> Measure:
    """Measure what is late while no worker is live: any live worker would move it."""
    late = {} if facts.live else facts.stats.late_seconds
    late_records = ", ".join(f"{LATE[kind]} {seconds:.0f} s ago" for kind, seconds in late.items())
    most = max(late.values(), default=0.0)
    return Measure("no-workers", most, limits.late_seconds, f"no worker is alive: {late_records}")


def _outage(group: OutageGroup, limits: Thresholds, now: float) -> Measure:
    lasted = max(0.0, now - group.since)
    message = f"stage {group.stage} has met outages for {lasted:.0f} s: {group.error}"
    name = group.fingerprint
    return Measure("outage", lasted, limits.outage_seconds, message, group=name)


def _count_of(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _not_durable(facts: Snapshot) -> str:
    why = "the store was out of reach at the start" if facts.degraded else "the store is in memory"
    return f"a crash loses work: {why}"


def _backlog(facts: Snapshot, limits: Thresholds, queue: str) -> Measure:
    limit = limits.backlog.get(queue, limits.backlog.get(EVERY_OTHER))
    waiting = facts.depth(queue)
    waits = _count_of(waiting, "task waits", "tasks wait")
    message = f"{waits} in queue {queue}, threshold {limit}"
    return Measure("backlog", waiting, float("inf") if limit is None else limit, message, queue)


def _no_workers(facts: Snapshot, queue: str) -> Measure:
    draining = facts.switched_names(Switch.DRAIN)
    takers = [worker for worker in facts.live if worker.beat.worker not in draining]
    is_served = any(queue in worker.beat.queues for worker in takers)
    ready = 0 if is_served else facts.depth(queue, (Place.READY,))
    return Measure("no-workers", ready, 0, f"{ready} ready, no worker serves queue {queue}", queue)


def _oldest(facts: Snapshot, limits: Thresholds, queue: str) -> Measure:
    age = facts.oldest_seconds(queue)
    message = f"the next task of queue {queue} has waited for {age:.0f} s"
    return Measure("oldest-age", age, limits.oldest_seconds, message, queue)
