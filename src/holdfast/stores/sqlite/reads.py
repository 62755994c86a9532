"""What can be asked of the store: each read of the port, on one consistent look."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from holdfast.domain import checkpoint as ckpt
from holdfast.domain.checkpoint import Checkpoint
from holdfast.domain.errors import SerialisationError
from holdfast.domain.events import Event
from holdfast.domain.state import Status
from holdfast.domain.task import Place, Task
from holdfast.domain.transition import Audit
from holdfast.ports import Detail, Moves, Peek, Stats, TenantView, WorkerInfo
from holdfast.stores import codec
from holdfast.stores.sqlite.boot import StoreClock
from holdfast.stores.sqlite.claiming import stages_of
from holdfast.stores.sqlite.readers import Look

T = TypeVar("T")
log = logging.getLogger(__name__)


def readable(task_id: str, record: bytes, until: float | None = None) -> Task | None:
    """None: it cannot be read, which `doctor` tells. Its neighbours can."""
    try:
        return codec.decode_leased(record, until)
    except SerialisationError as error:
        log.warning("task %s is unreadable; see `holdfast doctor`: %s", task_id, error)
        return None


def load(look: Look, ids: Sequence[str]) -> list[Task | None]:
    return [_load(look, task_id) for task_id in ids]


def _load(look: Look, task_id: str) -> Task | None:
    found = look.row("task_get", task_id)
    return readable(task_id, found[1], found[2]) if found else None


def peek(look: Look, ids: Sequence[str]) -> list[Peek | None]:
    return [_peek(look, task_id) for task_id in ids]


def _peek(look: Look, task_id: str) -> Peek | None:
    if found := look.row("peek_task", task_id):
        record, _, result = found
    elif buried := look.row("tombstone_get", task_id):
        record, result = buried
    else:
        return None
    task = readable(task_id, record)
    if task is None:
        return None
    return codec.peek_at(task, result)


def detail(look: Look, task_id: str) -> Detail | None:
    found = look.row("task_whole", task_id)
    if found is None:
        return None
    n, record, until, progress = found
    task = readable(task_id, record, until)
    if task is None:
        return None
    payload = look.row("payload_get", n)
    result, data = look.row("outcome_get", n) or (None, None)
    checkpoint = look.row("checkpoint_get", n)
    return Detail(
        task=task,
        payload=payload[0] if payload else b"",
        result=result,
        data=data,
        checkpoint=checkpoint[0] if checkpoint else None,
        stages=stages_of(look.rows("stages_get", n)),
        events=tuple(_events(look, task_id, n)),
        progress=codec.or_none(codec.decode_progress, progress) if progress else None,
    )


def _events(look: Look, task_id: str, n: int) -> Iterator[Event]:
    for (body,) in look.rows("events_get", n):
        try:
            yield from codec.decode_events(body)
        except SerialisationError as error:
            log.warning("task %s has an unreadable event: %s", task_id, error)


def checkpoint(look: Look, task_id: str) -> Checkpoint | None:
    task = look.row("task_get", task_id)
    found = look.row("checkpoint_get", task[0]) if task else None
    if found is None:
        return None
    stages = stages_of(look.rows("stages_get", task[0]))
    return msgspec.structs.replace(
        ckpt.decode(found[0]),
        stage_durations={s.name: round(s.duration_seconds * 1000) for s in stages},
    )


def tenants(look: Look, names: Sequence[str]) -> list[TenantView]:
    return [_tenant(look, name) for name in names]


def _tenant(look: Look, name: str) -> TenantView:
    active, place, fence, waiting = look.row("tenant_view", name) or (None, None, 0, 0)
    return TenantView(
        tenant=name,
        active=active,
        locked_by=active if place == Place.LEASED else None,
        fence=fence,
        waiting=waiting,
    )


def line(look: Look, tenant: str, limit: int) -> list[str]:
    return [task_id for (task_id,) in look.rows("line_ids", tenant, limit)]


def workers(look: Look, now: float, live_within_seconds: float) -> list[WorkerInfo]:
    return [
        WorkerInfo(beat=beat, seen_seconds_ago=now - seen, live=now - seen <= live_within_seconds)
        for body, seen in look.rows("workers_all")
        if (beat := codec.or_none(codec.decode_beat, body)) is not None
    ]


def stats(look: Look, clock: StoreClock) -> Stats:
    by_status: Counter[Status] = Counter()
    by_queue: defaultdict[str, Counter[Place]] = defaultdict(Counter)
    for queue, place, status, count in look.rows("totals_all"):
        by_status[Status(status)] += count
        by_queue[queue][Place(place)] += count
    return Stats(
        by_status=by_status,
        by_queue=by_queue,
        moves=tuple(
            Moves(before=Status(a), after=Status(b), count=count, dwell_seconds=seconds)
            for a, b, count, seconds in look.rows("moves_all")
        ),
        refused=dict(look.rows("refusals_all")),
        heads=_heads(look, [queue for queue, places in by_queue.items() if places[Place.READY]]),
        now=clock.now(),
    )


def _heads(look: Look, queues: Sequence[str]) -> dict[str, Task]:
    found = {}
    for queue in queues:
        row = look.row("ready_of_queue", queue, 1)
        task = readable(queue, row[1]) if row else None
        if task is not None:
            found[queue] = task
    return found


def audits(look: Look, limit: int, cursor: str | None) -> list[Audit]:
    return [
        entry
        for (body,) in look.rows("audits_newest", int(cursor or 0), limit)
        if (entry := codec.or_none(codec.decode_audit, body)) is not None
    ]
