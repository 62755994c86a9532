"""Looks at a store that was never there."""

from typing import Any

from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import By
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import Beat, Stats, Switch, SwitchSetting, WorkerInfo
from tests.support.task_records import NOW, task


def stats(**fields: Any) -> Stats:
    defaults: dict[str, Any] = {
        "by_status": {},
        "by_queue": {},
        "moves": (),
        "refused": {},
        "heads": {},
        "now": NOW,
    }
    return Stats(**(defaults | fields))


def snapshot(*, snapshot_of: dict[str, Any] | None = None, **fields: Any) -> Snapshot:
    """``fields`` of its stats, and ``snapshot_of`` its own."""
    return Snapshot(stats=stats(**fields), **(snapshot_of or {}))


def waiting(queue: str, ready: int, *, age_seconds: float = 0.0, **others: int) -> dict[str, Any]:
    places = {Place.READY: ready} | {Place(name): count for name, count in others.items()}
    heads = {queue: task(queue=queue, updated_at=NOW - age_seconds)} if ready else {}
    return {"by_queue": {queue: places}, "heads": heads}


def worker(name: str = "w-1", *queues: str, live: bool = True, running: int = 1) -> WorkerInfo:
    beat = Beat(
        worker=name,
        host="host",
        pid=7,
        types=("mail",),
        queues=queues or ("default",),
        slots=10,
        running=running,
        started_at=NOW,
    )
    return WorkerInfo(beat=beat, seen_seconds_ago=1.0, live=live)


def thrown(switch: Switch, name: str) -> SwitchSetting:
    return SwitchSetting(switch=switch, name=name, by=By(actor="ada"), at=NOW)
