"""Workers of an app: their options from its settings, and how they end with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, TypedDict

from holdfast.domain.errors import StoreError
from holdfast.engine.options import Option
from holdfast.registry import Registry
from holdfast.runtime.worker.running_tasks import RunningTask
from holdfast.runtime.worker.suspects import Isolate
from holdfast.runtime.worker.worker import Worker
from holdfast.runtime.worker_options import Rules, WorkerOptions
from holdfast.settings import Settings

log = logging.getLogger("holdfast")


class WorkerTerms(TypedDict, total=False):
    """The options of `app.worker` and `app.running`."""

    name: Annotated[str | None, Option(None, "the worker's name; None: a new one")]
    slots: Annotated[int | None, Option(None, "how many tasks it runs at once; None: the setting")]
    queues: Annotated[tuple[str, ...] | None, Option(None, "what it serves; None: the setting")]
    heartbeat_thread: Annotated[bool, Option(True, "renew leases in a thread, not on the loop")]
    schedules: Annotated[bool, Option(True, "whether the worker fires triggers")]
    on_zombie: Annotated[
        Callable[[RunningTask], None] | None,
        Option(None, "called for a function that still runs after its lease was lost"),
    ]
    on_drained: Annotated[Callable[[], None] | None, Option(None, "called after a drain")]
    isolate: Annotated[Isolate | None, Option(None, "how a suspect is run in its own process")]


def worker_options(settings: Settings, registry: Registry, terms: WorkerTerms) -> WorkerOptions:
    """Return the options of a worker; the engine's own queues come before those of users."""
    served = (*registry.own_queues(), *(terms["queues"] or settings.queue_names))
    return WorkerOptions(
        slots=terms["slots"] or settings.slots,
        queues=tuple(dict.fromkeys(served)),
        lease_seconds=settings.lease,
        drain_seconds=settings.drain,
        audit_seconds=settings.audit_keep,
        reconcile_seconds=settings.reconcile,
        heartbeat_thread=terms["heartbeat_thread"],
        queue_limit=settings.queue_limit,
        schedules=terms["schedules"],
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
        await worker.give_back_all()
    except StoreError as error:
        log.error("the tasks could not be given back; their leases will lapse: %s", error)
