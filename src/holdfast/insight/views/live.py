"""Workers and alerts as JSON, for the command line and the API: add keys, never rename them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.insight.views.tasks import at
from holdfast.observe.snapshot import Alert
from holdfast.ports import WorkerInfo


def worker_shape(worker: WorkerInfo, draining: Collection[str] = ()) -> dict[str, Any]:
    beat = worker.beat
    return {
        "worker": beat.worker,
        "host": beat.host,
        "pid": beat.pid,
        "live": worker.live,
        "seenSecondsAgo": worker.seen_seconds_ago,
        "queues": beat.queues,
        "types": beat.types,
        "slots": beat.slots,
        "running": beat.running,
        "startedAt": at(beat.started_at),
        "draining": beat.worker in draining,
    }


def alert_shape(alert: Alert) -> dict[str, Any]:
    return {
        "code": alert.code,
        "severity": alert.severity,
        "queue": alert.queue or None,
        "group": alert.group or None,
        "says": alert.says,
        "value": alert.value,
        "threshold": alert.threshold,
        "since": at(alert.since),
    }
