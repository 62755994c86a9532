"""The submitter: it checks payloads, makes records of new tasks and inserts them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from holdfast.clock import new_ids
from holdfast.domain import names
from holdfast.domain.error_text import bare_name
from holdfast.domain.errors import (
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    PartlyUnavailable,
    Refused,
    StoreUnavailable,
    SubmittedInPart,
)
from holdfast.domain.task.task import Task
from holdfast.domain.task.trace import is_traceparent
from holdfast.domain.task.transition import Insertion, Submission
from holdfast.engine.handle import Handle
from holdfast.engine.operations.control import NOT_OPEN
from holdfast.engine.plans.create import Planned
from holdfast.engine.queue_watch import QueueWatch
from holdfast.engine.refusal_log import RefusalLog
from holdfast.ports import Store
from holdfast.ports.tracing import Span
from holdfast.registry import TaskType
from holdfast.runtime import new_task
from holdfast.runtime.committer import Gather

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

PART = 200  # tasks of one call in one insert


class SubmitTerms(TypedDict, total=False):
    """The terms of a submission apart from its payload, for one task or for many alike."""

    tenant: str | None
    queue: str | None
    trace_id: str | None
    user: Any
    callback: Any  # a URL that is notified of the outcome, or the message of a chat to answer


class Submitter:
    """The way in for every task of an app; it works while the app is open."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._registry = app.registry
        self._queue_limit = app.settings.queue_limit
        self._is_open = False
        self._store: Store  # of the last opening: submits under way at a close go there
        self._refusals: RefusalLog
        self._put: Gather[Submission, Insertion]
        self._queue_watch: QueueWatch | None = None

    def open(self, store: Store, watch: QueueWatch | None) -> None:
        self._is_open, self._store, self._queue_watch = True, store, watch
        self._refusals = RefusalLog(self._app.clock)
        self._put = Gather(self._insert)

    def close(self) -> None:
        """Accept no more, and log the refusals that no line has counted yet."""
        if self._is_open:
            self._is_open, self._queue_watch = False, None
            self._refusals.flush(0.0)

    async def submit(
        self,
        declared: TaskType,
        payload: Any,
        *,
        tenant: str | None = None,
        key: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: Any = None,
    ) -> Handle[Any]:
        """Submit a task, which is durable when this returns; `submit` of a task type calls it."""
        if not self._is_open:
            raise HoldfastError(NOT_OPEN)
        if not self._registry.is_checked:
            self._registry.check()
        terms: SubmitTerms = {
            "tenant": tenant,
            "queue": queue,
            "trace_id": trace_id,
            "user": user,
            "callback": None if callback is None else self._app.check_callback(callback),
        }
        if self._app.tracer.on:
            with self._trace(declared, terms) as span:
                task_id = await self._submit(declared, payload, key, terms)
                span.set_attributes(task_id=task_id)
        else:
            task_id = await self._submit(declared, payload, key, terms)
        self._watch_queue(queue or declared.queue)
        return Handle(self._app, task_id, declared.result)

    async def _submit(
        self, declared: TaskType, payload: Any, key: str | None, terms: SubmitTerms
    ) -> str:
        body = declared.payload.encode(payload)
        keys = None if key is None else [names.check("key", key)]
        record = new_task.record(declared, now=self._app.clock.now(), **terms)
        [submission] = self._submissions(declared, record, [body], keys)
        return new_task.accepted_id(submission.task, await self._put(submission), self._queue_limit)

    async def submit_many(
        self,
        declared: TaskType,
        payloads: Iterable[Any],
        *,
        keys: Iterable[str] | None = None,
        **terms: Unpack[SubmitTerms],
    ) -> list[Handle[Any]]:
        """Submit a task for each payload, in their order; all are checked before the first goes in.

        Each part is made while the one before it is on its way. After a part of which something
        was not accepted nothing more is sent.
        """
        if not self._is_open:
            raise HoldfastError(NOT_OPEN)
        self._registry.check()
        terms["callback"] = self._app.check_callback(terms.get("callback"))
        with self._trace(declared, terms) as span:
            ids = await self._many(declared, payloads, keys, terms)
            span.set_attributes(tasks=len(ids))
        self._watch_queue(terms.get("queue") or declared.queue)
        return [Handle(self._app, task_id, declared.result) for task_id in ids]

    def _watch_queue(self, queue: str) -> None:
        watch = self._queue_watch
        if watch is not None and self._app.clock.steady() >= watch.due.get(queue, -math.inf):
            watch.check(queue)

    def describe_task(
        self, declared: TaskType, payload: Any, **terms: Unpack[SubmitTerms]
    ) -> Planned:
        """Describe a task for a plan; `on` of a task type calls it."""
        self._registry.check()
        terms["callback"] = self._app.check_callback(terms.get("callback"))
        if terms.get("trace_id") is None:
            terms["trace_id"] = self._app.tracer.current_traceparent()
        record = new_task.record(declared, now=self._app.clock.now(), **terms)
        effects, body = declared.effects_namespace, declared.payload.encode(payload)
        return Planned(record=record, payload=body, effects_namespace=effects)

    @contextmanager
    def _trace(self, declared: TaskType, terms: SubmitTerms) -> Iterator[Span]:
        """Give the tasks the span, unless they have a trace id that is not a parent of it."""
        given = terms.get("trace_id")
        with self._app.tracer.submit(declared.name, terms.get("tenant"), given) as span:
            if given is None or is_traceparent(given):
                terms["trace_id"] = span.traceparent or given
            try:
                yield span
            except Exception as error:
                span.fail(bare_name(type(error)), str(error))
                raise

    async def _many(
        self,
        declared: TaskType,
        payloads: Iterable[Any],
        keys: Iterable[str] | None,
        terms: SubmitTerms,
    ) -> list[str]:
        record = new_task.record(declared, now=self._app.clock.now(), **terms)
        bodies = await _encode_all(declared, payloads)
        given = None if keys is None else [names.check("key", key) for key in keys]
        if given is not None and len(given) != len(bodies):
            raise InvalidInput(f"{len(given)} keys for {len(bodies)} payloads")
        bulk, sending = _Many(), None
        for start in range(0, len(bodies), PART):
            part = slice(start, start + PART)
            keys_here = None if given is None else given[part]
            made = self._submissions(declared, record, bodies[part], keys_here)
            if sending is not None:
                await sending
            if bulk.errors:
                break
            sending = asyncio.create_task(self._send(bulk, start, made))
            await _yield_to_loop()
        if sending is not None:
            await sending
        return bulk.ids(len(bodies))

    async def _send(self, bulk: _Many, start: int, batch: Sequence[Submission]) -> None:
        try:
            answers: Sequence[Insertion | Exception] = await self._insert(batch)
        except PartlyUnavailable as error:
            answers = error.answers
        except Exception as error:
            answers = [error] * len(batch)
        for number, (submission, answer) in enumerate(zip(batch, answers, strict=True), start):
            if isinstance(answer, Exception):
                bulk.errors[number] = answer
                continue
            try:
                bulk.accepted[number] = new_task.accepted_id(
                    submission.task, answer, self._queue_limit
                )
            except Refused as error:
                bulk.errors[number] = error

    async def _insert(self, batch: Sequence[Submission]) -> Sequence[Insertion]:
        try:
            inserted = await self._store.tasks.insert(batch, depth_limit=self._queue_limit)
        except StoreUnavailable as error:
            self._refusals.add(error)
            raise
        if self._refusals.causes:
            self._refusals.flush()
        return inserted

    def _submissions(
        self, declared: TaskType, record: Task, bodies: Sequence[bytes], keys: Sequence[str] | None
    ) -> list[Submission]:
        ids = new_ids(self._app.clock, self._app.chance, len(bodies))
        effects = declared.effects_namespace
        return new_task.submissions(
            self._store, record, bodies, keys, ids, effects_namespace=effects
        )


class _Many:
    """The answers to the tasks of one call, by number."""

    def __init__(self) -> None:
        self.accepted: dict[int, str] = {}
        self.errors: dict[int, Exception] = {}

    def ids(self, total: int) -> list[str]:
        if not self.errors:
            return list(self.accepted.values())
        if self.accepted:
            raise SubmittedInPart(total, self.accepted, self.errors)
        raise next(iter(self.errors.values()))


async def _encode_all(declared: TaskType, payloads: Iterable[Any]) -> list[bytes]:
    encode, bodies = declared.payload.encode, list[bytes]()
    for number, payload in enumerate(payloads):
        try:
            bodies.append(encode(payload))
        except InvalidPayload:
            encode(payload, what=f"payloads.{number}")  # the same error, with its number
            raise
        if number % PART == PART - 1:
            await asyncio.sleep(0)  # others want to run, too
    return bodies


async def _yield_to_loop() -> None:
    """Yield to the loop until the insert that was begun is on its way to the store."""
    for _ in range(2):
        await asyncio.sleep(0)
