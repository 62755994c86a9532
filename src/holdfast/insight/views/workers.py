"""The JSON views of workers, which the command line and the API share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from holdfast.domain.task.envelope import iso
from holdfast.insight.views.view import Time, View
from holdfast.ports import WorkerInfo


class WorkerView(View):
    worker: str
    host: Annotated[str, Field(examples=["host-1"])]
    pid: int
    live: Annotated[bool, Field(examples=[True])]
    seenSecondsAgo: Annotated[float, Field(examples=[1.5])]
    queues: tuple[str, ...]
    types: tuple[str, ...]
    slots: Annotated[int, Field(examples=[128])]
    running: int
    startedAt: Time
    draining: Annotated[bool, Field(description="A person has asked it to stop")]


def worker_view(worker: WorkerInfo, draining: Collection[str] = ()) -> WorkerView:
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
        "startedAt": iso(beat.started_at),
        "draining": beat.worker in draining,
    }
