"""The JSON views of workers, which the command line and the API share."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated

from holdfast.domain.task.envelope import iso
from holdfast.insight.views import fields
from holdfast.insight.views.view import Time, View, about, example
from holdfast.ports import WorkerInfo


class WorkerHealth(View):
    worker: fields.WorkerName
    live: Annotated[bool, example(True)]
    seenSecondsAgo: Annotated[float, example(1.5)]
    queues: tuple[fields.QueueName, ...]
    types: tuple[fields.TypeName, ...]
    slots: Annotated[int, example(128)]
    running: int


class WorkerView(WorkerHealth):
    host: Annotated[str, example("host-1")]
    pid: fields.ProcessId
    startedAt: Time
    draining: Annotated[bool, about("True if a person has asked it to drain")]


class ProcessState(StrEnum):
    ALIVE = "alive"
    WAITING = "waiting"  # it died, and is started again after a while
    STOPPING = "stopping"


class ProcessView(View):
    pid: fields.ProcessId | None
    state: ProcessState
    startedAt: Time | None
    restarts: int


class PoolView(View):
    """The worker processes of this service."""

    wanted: Annotated[int, example(1)]
    limit: Annotated[int, example(32)]
    processes: list[ProcessView]


class LiveWorkers(View):
    workers: list[WorkerView]


class WorkerList(LiveWorkers):
    pool: PoolView


class Drained(View):
    worker: fields.WorkerName
    changed: Annotated[fields.Changed, about("False if the worker was asked before")]


def worker_health_view(worker: WorkerInfo) -> WorkerHealth:
    beat = worker.beat
    return {
        "worker": beat.worker,
        "live": worker.live,
        "seenSecondsAgo": worker.seen_seconds_ago,
        "queues": beat.queues,
        "types": beat.types,
        "slots": beat.slots,
        "running": beat.running,
    }


def worker_view(worker: WorkerInfo, draining: Collection[str] = ()) -> WorkerView:
    beat = worker.beat
    shown = worker_health_view(worker)
    return {
        "worker": shown["worker"],
        "host": beat.host,
        "pid": beat.pid,
        **shown,
        "startedAt": iso(beat.started_at),
        "draining": beat.worker in draining,
    }
