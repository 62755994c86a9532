"""Workers of an app: their options from its settings, and how they end with it."""

from __future__ import annotations

import logging

from holdfast.domain.errors import StoreError
from holdfast.registry import Registry
from holdfast.runtime.worker.worker import Worker
from holdfast.runtime.worker_options import Rules, WorkerOptions
from holdfast.settings import Settings

log = logging.getLogger("holdfast")


def worker_options(
    settings: Settings,
    registry: Registry,
    *,
    slots: int | None,
    queues: tuple[str, ...] | None,
    heartbeat_thread: bool,
    schedules: bool,
) -> WorkerOptions:
    """Return the options of a worker; the engine's own queues come before those of users."""
    served = (*registry.own_queues(), *(queues or settings.queue_names))
    return WorkerOptions(
        slots=slots or settings.slots,
        queues=tuple(dict.fromkeys(served)),
        lease_seconds=settings.lease,
        drain_seconds=settings.drain,
        audit_seconds=settings.audit_keep,
        reconcile_seconds=settings.reconcile,
        heartbeat_thread=heartbeat_thread,
        queue_limit=settings.queue_limit,
        schedules=schedules,
        rules=Rules(
            checkpoint_ttl_seconds=settings.checkpoint_ttl,
            crash_limit=settings.crash_limit,
            unknown_type_seconds=settings.unknown_type_after,
            outage_seconds=settings.outage,
        ),
    )


async def end_worker(worker: Worker) -> None:
    """Drain a worker. A thread cannot be stopped, so its task is given back: that is no crash."""
    if not (left := await worker.drain()):
        return
    log.critical("plain functions still run, their tasks are given back: %s", ", ".join(left))
    try:
        await worker.give_back_rest()
    except StoreError as error:
        log.error("the tasks could not be given back; their leases will lapse: %s", error)
