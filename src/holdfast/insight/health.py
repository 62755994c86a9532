"""A health report says whether the store agrees with itself and whether anything is stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain.phrases import ago, count
from holdfast.domain.plan.plan import SUSPENDED
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.placement import START, Place
from holdfast.domain.task.task import Task
from holdfast.domain.trigger.trigger import TriggerStatus
from holdfast.engine.operations import switches
from holdfast.observe.alerts import LATE, Thresholds
from holdfast.ports import (
    LIVE_LEASES,
    Awaited,
    Check,
    Filter,
    Finding,
    Stats,
    Store,
    Switch,
    WorkerInfo,
)

FINDINGS = 1000
PAGE = 500
LEASES_LOOKED_AT = 10_000
WAITING_SHOWN = 20
GRACE_SECONDS = 2.0  # a lapsed lease is taken over within this


class Health(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    durable: bool
    checks: tuple[Check, ...]
    workers: tuple[WorkerInfo, ...]
    stats: Stats
    oldest: Task | None  # the ready task that has waited longest
    findings: tuple[Finding, ...]
    stuck: tuple[str, ...]
    waiting: tuple[str, ...]  # what waits for a person, which is no fault of the store

    @property
    def clean(self) -> bool:
        return self.durable and not self.stuck and all(finding.mended for finding in self.findings)


async def examine(
    store: Store,
    *,
    fix: bool,
    lease_seconds: float,
    hide: Redactor,
    seen: Callable[[int], None] | None = None,
) -> Health:
    findings = await store.admin.doctor(fix=fix, limit=FINDINGS, seen=seen)
    workers = await store.views.workers(live_within_seconds=LIVE_LEASES * lease_seconds)
    stats = await store.views.stats()
    lapsed = _select_lapsed(await _load_leased(store), stats.now)
    checks = await store.admin.checks()
    workers = _without_the_lost(workers, lapsed)
    return Health(
        store=store.url,
        durable=store.durable,
        checks=tuple(checks),
        workers=tuple(workers),
        stats=stats,
        oldest=min(stats.heads.values(), key=lambda task: task.status_since, default=None),
        findings=tuple(findings),
        stuck=(
            *_describe_unserved(stats, workers),
            *_describe_late(stats, workers),
            *(_describe_lapse(task, stats.now) for task in lapsed),
        ),
        waiting=(
            *await _describe_pauses(store, stats.now, hide),
            *await _describe_waiting(store, hide),
        ),
    )


async def _describe_pauses(store: Store, now: float, hide: Redactor) -> list[str]:
    """Describe the queues that a person has paused, and that only a person resumes."""
    return [
        switches.format_switch(setting, now, hide.text(setting.by.reason))
        for setting in await switches.active_switches(store, now)
        if setting.switch is not Switch.DRAIN
    ]


async def _describe_waiting(store: Store, hide: Redactor) -> list[str]:
    """Describe plans and triggers that wait for a person; `holdfast suspended` lists tasks."""
    plans = await store.plans.find(statuses=tuple(SUSPENDED), limit=WAITING_SHOWN)
    suspended = (TriggerStatus.SUSPENDED,)
    triggers = await store.triggers.find_all(statuses=suspended, limit=WAITING_SHOWN)
    return [
        f"{kind} {record.id} is {record.status}: {hide.text(record.reason or '-')}"
        for kind, records in (("plan", plans.plans), ("trigger", triggers.triggers))
        for record in records
    ]


async def _load_leased(store: Store) -> list[Task]:
    leased: list[Task] = []
    cursor = None
    for _ in range(LEASES_LOOKED_AT // PAGE):
        where = Filter(statuses=tuple(START.to.values()))
        page = await store.views.find(where, limit=PAGE, cursor=cursor)
        leased += [task for task in page.tasks if task.place is Place.LEASED]
        cursor = page.cursor
        if cursor is None:
            break
    return leased


def _describe_unserved(stats: Stats, workers: Sequence[WorkerInfo]) -> list[str]:
    """Describe the queues whose next task no live worker can claim."""
    served = {(q, t) for w in workers if w.live for q in w.beat.queues for t in w.beat.types}
    return [
        f"queue {queue}: {count(stats.by_queue[queue][Place.READY], 'task')} ready, the next is "
        f"of type {task.type}, and no live worker serves it"
        for queue, task in sorted(stats.heads.items())
        if (queue, task.type) not in served
    ]


def _describe_late(stats: Stats, workers: Sequence[WorkerInfo]) -> list[str]:
    """Describe what a live worker would have moved by now, apart from leases."""
    if any(worker.live for worker in workers):
        return []
    return [
        f"{LATE[kind]} {ago(seconds)}, and no worker is alive to move it"
        for kind, seconds in stats.late_seconds.items()
        if kind is not Awaited.LEASE and seconds > Thresholds().late_seconds
    ]


def _select_lapsed(leased: Sequence[Task], now: float) -> list[Task]:
    """Return the tasks whose lease, and tenant's lock, has lapsed and nobody has taken back."""
    return [
        task for task in leased if task.lease is not None and task.lease.until < now - GRACE_SECONDS
    ]


def _without_the_lost(
    workers: Sequence[WorkerInfo], lapsed: Sequence[Task]
) -> Sequence[WorkerInfo]:
    """Return the workers, with those that let a lease lapse as not live."""
    lost = {task.lease.owner for task in lapsed if task.lease is not None}
    return [
        msgspec.structs.replace(worker, live=worker.live and worker.beat.worker not in lost)
        for worker in workers
    ]


def _describe_lapse(task: Task, now: float) -> str:
    assert task.lease is not None
    locked = f" and tenant {task.tenant} is locked" if task.tenant else ""
    until = task.lease.until
    lapsed = f"lapsed {ago(now - until)}" if until else "is in no index"
    return f"task {task.id}: the lease of {task.lease.owner} {lapsed}{locked}; nobody takes it over"
