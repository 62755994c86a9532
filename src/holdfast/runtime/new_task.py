"""The records and submissions of new tasks, for callers that submit and for triggers that fire."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.errors import IntakePaused, InvalidInput, KeyConflict, QueueFull
from holdfast.domain.task import decide
from holdfast.domain.task.effects import effects_id, key_required
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Conflict, Full, Insertion, IntakeClosed, Submission
from holdfast.domain.trigger.definition import canonical
from holdfast.encoding.codec import encode_plain
from holdfast.ports import Store
from holdfast.registry import OWN_QUEUES, TaskType

USER_LIMIT_BYTES = 16 * 1024  # it is part of the record, which is read again and again


def record(
    declared: TaskType,
    *,
    now: float,
    tenant: str | None = None,
    queue: str | None = None,
    trace_id: str | None = None,
    user: Any = None,
    callback: str | None = None,
) -> Task:
    """Return the record that the tasks of one call share; each gets an id and a key of its own."""
    if queue in OWN_QUEUES and declared.queue != queue:
        raise InvalidInput(f"queue {queue!r} is the engine's own")
    return Task(
        id="",
        type=declared.name,
        tenant=None if tenant is None else names.check("tenant", tenant),
        queue=declared.queue if queue is None else names.check("queue", queue),
        trace_id=None if trace_id is None else names.check_text("trace_id", trace_id),
        user=plain_user(user),
        callback=callback,
        stages=declared.stage_names,
        workflow=declared.workflow,
        hold=declared.hold,
        keep_seconds=declared.keep_seconds,
        retry_max=declared.stages[0].retry.max,
        created_at=now,
        updated_at=now,
        status_since=now,
        status=Status.PENDING,
    )


def plain_user(user: Any) -> Any:
    """Return a copy of the user's value as it is now, whatever becomes of it."""
    if user is None:
        return None
    return msgspec.json.decode(encode_plain(user, "user", limit_bytes=USER_LIMIT_BYTES))


def submissions(
    store: Store,
    record: Task,
    bodies: Sequence[bytes],
    keys: Sequence[str] | None,
    ids: Sequence[str],
    *,
    effects_namespace: str | None = None,
) -> list[Submission]:
    if keys is None and effects_namespace is not None:
        raise key_required(record.type)
    tenant, made = record.tenant, list[Submission]()
    all_keys = repeat(None, len(ids)) if keys is None else keys
    for task_id, body, key in zip(ids, bodies, all_keys, strict=True):
        task = replace(record, id=store.partitioned_id(task_id, tenant=tenant, key=key), key=key)
        if key is not None and effects_namespace is not None:
            effects = effects_id(effects_namespace, record.type, tenant, key)
            task = replace(task, effects=effects)
        known_by = "" if key is None else digest(record.type, body, record.callback)
        made.append(decide.submit(task, body, known_by))
    return made


def accepted_id(task: Task, answer: Insertion, queue_limit: int) -> str:
    """Return the id under which the store accepted a task, or raise why it did not."""
    match answer:
        case Conflict(task_id):
            raise KeyConflict(task.tenant, task.key or "", task_id)
        case Full(queue):
            raise QueueFull(queue, queue_limit)
        case IntakeClosed(queue):
            raise IntakePaused(queue)
    return answer.task_id


def digest(name: str, body: bytes, callback: str | None = None) -> str:
    """Return the same digest for the same payload, in any order of its fields, and callback."""
    text = name.encode() + b"\n" + canonical(body)
    if callback is not None:
        text += b"\n" + callback.encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
