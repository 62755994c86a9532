"""The view part of the SQLite store: each read goes to the readers, on one consistent view."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from holdfast.ports import Detail, ErrorGroup, Filter, Page, Peek, Stats, TenantView, WorkerInfo
from holdfast.stores import codec
from holdfast.stores.sqlite.file.open_parts import RequireOpen
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.tasks.records import (
    RecordRow,
    TaskPosition,
    bodies_of,
    readable,
    record_row,
    started_event,
    unpack_events,
)
from holdfast.stores.sqlite.transaction import json_list
from holdfast.stores.sqlite.views import find, measures

NO_TENANT = (None, False, 0, 0)

log = logging.getLogger("holdfast.stores.sqlite.reads")


class SqliteViews:
    def __init__(self, require_open: RequireOpen) -> None:
        self._parts = require_open

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._parts().readers.do(_tasks, ids)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._parts().readers.do(_peeks, ids)

    async def detail(self, task_id: str) -> Detail | None:
        return await self._parts().readers.do(_detail, task_id)

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        return await self._parts().readers.do(_checkpoint, task_id)

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._parts().readers.do(find.find, where, limit, cursor)

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        return await self._parts().readers.do(_tenants, names, line_limit)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        now = self._parts().clock.now()
        return await self._parts().readers.do(_workers, now, live_within_seconds)

    async def stats(self) -> Stats:
        return await self._parts().readers.do(measures.stats, self._parts().clock)

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await self._parts().readers.do(measures.errors, limit)


def _tasks(view: ReadView, ids: Sequence[str]) -> list[Task | None]:
    rows = map(record_row, view.rows("records_of", json_list(ids)))
    tasks = {row.position.id: readable(row) for row in rows}
    return [tasks.get(task_id) for task_id in ids]


def _row(view: ReadView, task_id: str) -> RecordRow | None:
    row = view.row("record_of", task_id)
    return record_row(row) if row else None


def _peeks(view: ReadView, ids: Sequence[str]) -> list[Peek | None]:
    return [_peek(view, task_id) for task_id in ids]


def _peek(view: ReadView, task_id: str) -> Peek | None:
    if row := _row(view, task_id):
        task = readable(row)
        outcome = view.row("outcome_get", row.position.n)
        result = outcome[0] if outcome else None
    elif buried := view.row("tombstone_get", task_id):
        task, result = codec.or_none(codec.decode_task, buried[0]), buried[1]
    else:
        return None
    return None if task is None else codec.peek_at(task, result.encode() if result else None)


def _detail(view: ReadView, task_id: str) -> Detail | None:
    row = _row(view, task_id)
    task = readable(row) if row else None
    if row is None or task is None:
        return None
    n = row.position.n
    bodies = bodies_of(view.rows("bodies_get", n))
    checkpoint, progress = view.row("checkpoint_get", n), view.row("progress_get", n)
    return Detail(
        task=task,
        payload=view.row("payload_get", n)[0].encode(),
        result=bodies.result,
        data=bodies.data,
        checkpoint=checkpoint[0].encode() if checkpoint else None,
        stages=bodies.stages,
        events=tuple(_events(view, row.position)),
        progress=(
            codec.or_none(codec.decode_progress, progress[0]) if progress and progress[0] else None
        ),
    )


def _events(view: ReadView, row: TaskPosition) -> Iterator[Event]:
    """Yield the events of each write, then the start that no write has stored yet."""
    (first,) = view.row("events_first", row.n)
    yield from _decode_events(row.id, 1, first)
    for version, started, events in view.rows("journal_get", row.n):
        if started is not None:
            yield started_event(row.id, version - 1, *msgspec.json.decode(started))
        yield from _decode_events(row.id, version, events)
    if row.started is not None:
        yield started_event(row.id, row.present, *row.started)


def _decode_events(task_id: str, version: int, events: str) -> Iterator[Event]:
    try:
        yield from unpack_events(task_id, version, events)
    except SerialisationError as error:
        log.warning("task %s has an unreadable event: %s", task_id, error)


def _checkpoint(view: ReadView, task_id: str) -> Checkpoint | None:
    row = _row(view, task_id)
    stored = view.row("checkpoint_get", row.position.n) if row else None
    if row is None or stored is None:
        return None
    stages = bodies_of(view.rows("bodies_get", row.position.n)).stages
    return msgspec.structs.replace(
        ckpt.decode(stored[0].encode()),
        stage_durations={s.name: round(s.duration_seconds * 1000) for s in stages},
    )


def _tenants(view: ReadView, names: Sequence[str], line_limit: int) -> list[TenantView]:
    states = {name: state for name, *state in view.rows("tenant_views", json_list(names))}
    return [
        _tenant(name, states.get(name, NO_TENANT), _line(view, name, line_limit)) for name in names
    ]


def _line(view: ReadView, tenant: str, limit: int) -> tuple[str, ...]:
    return tuple(id for (id,) in view.rows("line_ids", tenant, limit)) if limit > 0 else ()


def _tenant(name: str, state: Sequence[Any], line: tuple[str, ...]) -> TenantView:
    active, leased, fence, waiting = state
    return TenantView(
        tenant=name,
        active=active,
        locked_by=active if leased else None,
        fence=fence,
        waiting=waiting,
        line=line,
    )


def _workers(view: ReadView, now: float, live_within_seconds: float) -> list[WorkerInfo]:
    return [
        WorkerInfo(beat=beat, seen_seconds_ago=now - seen, live=now - seen <= live_within_seconds)
        for body, seen in view.rows("workers_all")
        if (beat := codec.or_none(codec.decode_beat, body)) is not None
    ]
