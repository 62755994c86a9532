"""The services by which every worker maintains the store, beside its own tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.domain.task.crashes import suspect_from
from holdfast.ports import Clock, Store
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.services.sealer import Sealer
from holdfast.runtime.services.timers import Timers
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker.options import WorkerOptions


def maintenance_services(
    store: Store, clock: Clock, outages: StoreOutages, options: WorkerOptions
) -> list[Callable[[], Awaitable[None]]]:
    """Return the services that move due tasks, take back lapsed leases, prune and seal audits."""
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
