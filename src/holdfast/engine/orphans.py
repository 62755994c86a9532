"""Tasks whose worker has died with them, and which a start has to wait for."""

from __future__ import annotations

import logging
import os
import socket

from holdfast.domain.errors import StoreError
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Clock, Filter, Store, WorkerInfo

log = logging.getLogger("holdfast.worker")

CHECKED_MAX = 50  # tasks that run now
RUNNING = (Status.RUNNING, Status.ROLLING_BACK)


async def warn_of_orphans(store: Store, clock: Clock, *, lease_seconds: float) -> None:
    """Log which tasks dead workers hold, and until when."""
    try:
        page = await store.views.find(Filter(statuses=RUNNING), limit=CHECKED_MAX)
        held = [task for task in page.tasks if task.lease is not None]
        workers = await store.views.workers(live_within_seconds=lease_seconds) if held else ()
    except StoreError:
        return  # the start itself logs the outage
    by_name = {worker.beat.worker: worker for worker in workers}
    owners = {task.id: by_name.get(task.lease.owner) for task in held if task.lease is not None}
    orphans = [task for task in held if _is_gone(owners[task.id])]
    if orphans:
        warning = _format_orphan(orphans[0], owners[orphans[0].id], clock.now(), lease_seconds)
        others = len(orphans) - 1
        more = f" (and {others} more {'task' if others == 1 else 'tasks'})" if others else ""
        log.warning("%s%s", warning, more)


def _format_orphan(task: Task, owner: WorkerInfo | None, now: float, lease_seconds: float) -> str:
    assert task.lease is not None
    left = min(lease_seconds, max(0.0, task.lease.until - now))
    seen = "not seen any more"
    if owner is not None:
        seen = f"pid {owner.beat.pid}, last seen {owner.seen_seconds_ago:.0f} s ago"
    return (
        f"worker {task.lease.owner} ({seen}) has died; its lease of task {task.id} ends in "
        f"{left:.0f} s, and then another worker takes the task over"
    )


def _is_gone(worker: WorkerInfo | None) -> bool:
    """Return whether a worker's process has ended, as far as this machine can tell."""
    if worker is None or not worker.live:
        return True
    if worker.beat.host != socket.gethostname() or worker.beat.pid == os.getpid():
        return False
    try:
        os.kill(worker.beat.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # the process belongs to another user
    return False
