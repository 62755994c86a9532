"""What every worker does for the store beside its own tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.domain.task.crashes import suspect_from
from holdfast.ports import Clock, Store
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.services.sealer import Sealer
from holdfast.runtime.services.timers import Timers
from holdfast.runtime.worker.executor import Rules
from holdfast.runtime.worker.outages import StoreOutages


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    slots: int = 128
    queues: tuple[str, ...] = ("default",)
    lease_seconds: float = 30.0
    drain_seconds: float = 30.0
    audit_seconds: float = 365 * 86_400
    reconcile_seconds: float = 3600
    queue_limit: int = 1_000_000
    schedules: bool = True  # False: others fire the triggers, who know the types of their tasks
    rules: Rules = field(default_factory=Rules)
    heartbeat_thread: bool = True  # False: on the worker's own loop, for simulations


def maintenance_services(
    store: Store, clock: Clock, outages: StoreOutages, options: WorkerOptions
) -> list[Callable[[], Awaitable[None]]]:
    """What is due moves, lapsed leases are taken back, what has outlived its time goes, and what
    was written down is sealed."""
    timers = Timers(
        store=store,
        clock=clock,
        outages=outages,
        lease_seconds=options.lease_seconds,
        alone_from=suspect_from(options.rules.crash_limit),
    )
    pruner = Pruner(
        store=store,
        clock=clock,
        checkpoint_seconds=options.rules.checkpoint_ttl_seconds,
        audit_seconds=options.audit_seconds,
        reconcile_seconds=options.reconcile_seconds,
    )
    return [timers.run, pruner.run, Sealer(store=store, clock=clock).run]
