"""The view part of the Redis store: reads are spread over the partitions.

Each read takes one consistent step on its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.events import Event
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import StageRecord, Task
from holdfast.ports import Detail, ErrorGroup, Filter, Page, Peek, Stats, TenantView, WorkerInfo
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Reply, by_name, pairs_of, unless_foreign
from holdfast.stores.redis.encoding import claim, event_log, record
from holdfast.stores.redis.encoding.submission import created_events
from holdfast.stores.redis.partition import (
    Partition,
    Partitions,
    fail_without_partition,
    gather_all,
)
from holdfast.stores.redis.views import counts, error_groups, find

log = logging.getLogger("holdfast.stores.redis.reads")


class RedisViews:
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._parts.spread(ids, self._parts.of_task, load, lambda _: None)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._parts.spread(ids, self._parts.of_task, peek, lambda _: None)

    async def detail(self, task_id: str) -> Detail | None:
        part = self._parts.of_task(task_id)
        return await detail(part, task_id) if part else None

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        part = self._parts.of_task(task_id)
        return await checkpoint(part, task_id) if part else None

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        parts = [self._parts.of_tenant(where.tenant)] if where.tenant else [*self._parts]
        pages = await gather_all(find.find(part, where, limit, cursor) for part in parts)
        return find.merge_pages(pages, limit)

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        async def ask(part: Partition, part_names: list[str]) -> list[TenantView]:
            return await tenants(part, part_names, line_limit)

        return await self._parts.spread(names, self._parts.of_tenant, ask, fail_without_partition)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        return await workers(self._parts.first, live_within_seconds)

    async def stats(self) -> Stats:
        return counts.merge_stats(await gather_all(counts.stats(part) for part in self._parts))

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await error_groups.errors(self._parts, limit)


# -- tasks


async def load(part: Partition, ids: Sequence[str]) -> list[Task | None]:
    answers = await part.call_in_batches(scripts.LOAD, ids)
    return [
        record.loaded_task(task_id, answer) for task_id, answer in zip(ids, answers, strict=True)
    ]


async def peek(part: Partition, ids: Sequence[str]) -> list[Peek | None]:
    answers = await part.call_in_batches(scripts.PEEK, ids)
    return [_peek_reply(task_id, answer) for task_id, answer in zip(ids, answers, strict=True)]


def _peek_reply(task_id: str, answer: Any) -> Peek | None:
    if answer is None:
        return None
    try:
        reply = by_name(answer)
        if "wrong" in reply:
            raise ValueError(reply["wrong"].decode(errors="replace"))
        failure, reason = reply["failure"], reply["reason"]
        return Peek(
            task_id=task_id,
            status=Status(reply["status"].decode()),
            result=reply["result"],
            failure=record.decode_failure(failure) if failure else None,
            reason=reason.decode() if reason is not None else None,
        )
    except (ValueError, msgspec.DecodeError) as error:
        log.warning("task %s cannot be read: %s", task_id, error)
        return None


async def detail(part: Partition, task_id: str) -> Detail | None:
    answer = await part.call(scripts.DETAIL, task_id)
    if answer is None:
        return None
    reply = by_name(answer)
    task = record.readable(task_id, reply)
    if task is None:
        return None
    for text in reply["damaged"]:
        log.warning("task %s has a part that cannot be read: %s", task_id, text.decode())
    fields = record.texts(reply["fields"])
    progress = fields.get("progress") if task.lease is not None else None
    return Detail(
        task=task,
        payload=claim.payload_in(reply["payload"] or b""),
        result=claim.inline_or_kept(fields, "result", reply["result"]),
        data=claim.inline_or_kept(fields, "data", reply["data"]),
        checkpoint=reply["checkpoint"],
        stages=_stages(reply["stages"], fields),
        events=(*_events(task, reply["events"] or []), *event_log.implied_events(task, fields)),
        progress=codec.or_none(codec.decode_progress, progress.encode()) if progress else None,
    )


def _stages(pairs: list[bytes] | None, fields: record.Fields) -> tuple[StageRecord, ...]:
    return codec.or_none(lambda stages: record.decode_stages(stages, fields), pairs or []) or ()


def _events(task: Task, elements: Sequence[bytes]) -> Iterator[Event]:
    if not elements or not elements[0].startswith(b"1\n"):
        yield from created_events(task)
    for element in elements:
        try:
            yield from event_log.decode_events(task.id, element)
        except SerialisationError as error:
            log.warning("task %s has an event that cannot be read: %s", task.id, error)


async def checkpoint(part: Partition, task_id: str) -> Checkpoint | None:
    answer = await part.call(scripts.CHECKPOINT, task_id)
    if answer is None:
        return None
    reply = by_name(answer)
    stages = _stages(reply["stages"], {})
    durations = {stage.name: round(stage.duration_seconds * 1000) for stage in stages}
    return replace(ckpt.decode(reply["checkpoint"]), stage_durations=durations)


# -- tenants and workers


async def tenants(part: Partition, names: Sequence[str], line_limit: int) -> list[TenantView]:
    answers = await part.call_in_batches(scripts.TENANTS, names)
    views = [_tenant(name, by_name(answer)) for name, answer in zip(names, answers, strict=True)]
    if line_limit < 1:
        return views
    commands = [("ZRANGE", part.keys("line", name), 0, line_limit - 1) for name in names]
    lines = await part.client.many(part.keys, commands)
    return [
        replace(view, line=tuple(task_id.decode() for task_id in unless_foreign(line)))
        for view, line in zip(views, lines, strict=True)
    ]


def _tenant(name: str, reply: Reply) -> TenantView:
    active, place = reply["active"], reply["place"]
    active_id = active.decode() if active is not None else None
    leased = place is not None and place.decode() == Place.LEASED
    return TenantView(
        tenant=name,
        active=active_id,
        locked_by=active_id if leased else None,
        fence=int(reply["fence"] or 0),
        waiting=reply["waiting"],
    )


async def workers(part: Partition, live_within_seconds: float) -> list[WorkerInfo]:
    reply = by_name(await part.call(scripts.WORKERS))
    now = float(reply["now"])
    seen = {worker: now - float(at) for worker, at in pairs_of(reply["seen"])}
    return [
        WorkerInfo(beat=beat, seen_seconds_ago=seen[name], live=seen[name] <= live_within_seconds)
        for name, body in pairs_of(reply["beats"])
        if name in seen and (beat := codec.or_none(codec.decode_beat, body)) is not None
    ]
