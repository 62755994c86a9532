"""The way in: payloads are checked and made into records, singly or in bulk, and inserted."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

from holdfast.clock import new_ids
from holdfast.domain import names
from holdfast.domain.error_text import bare_name
from holdfast.domain.errors import (
    IntakePaused,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    PartlyUnavailable,
    QueueFull,
    Refused,
    StoreFull,
    StoreUnavailable,
    SubmittedInPart,
)
from holdfast.domain.task.task import Task
from holdfast.domain.task.trace import is_traceparent
from holdfast.domain.task.transition import Conflict, Full, Insertion, Shut, Submission
from holdfast.ports import Clock, Store
from holdfast.ports.tracing import NO_TRACER, Span, Tracer
from holdfast.registry import TaskType
from holdfast.runtime import new_task
from holdfast.runtime.committer import Gather

log = logging.getLogger("holdfast")

PART = 200  # tasks of a bulk in one insert
SAY_AGAIN_SECONDS = 10.0  # between two lines of the log about refused submits


class Terms(TypedDict, total=False):
    """What may be said beside the payload, for one task or for many alike."""

    tenant: str | None
    queue: str | None
    trace_id: str | None
    user: Any
    callback: str | None  # a URL that is told how it ended


class Submitter:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        chance: random.Random,
        queue_limit: int,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._store = store
        self._clock = clock
        self._chance = chance
        self._queue_limit = queue_limit
        self._tracer = tracer
        self._put = Gather[Submission, Insertion](self._insert)
        self._said = dict[str, tuple[float, int]]()  # when, and how many were left out since

    async def one(
        self, declared: TaskType, payload: Any, key: str | None, **terms: Unpack[Terms]
    ) -> str:
        """The task's id; it is durable then."""
        if not self._tracer.on:
            return await self._one(declared, payload, key, terms)
        with self._traced(declared, terms) as span:
            task_id = await self._one(declared, payload, key, terms)
            span.tell(task_id=task_id)
            return task_id

    async def _one(self, declared: TaskType, payload: Any, key: str | None, terms: Terms) -> str:
        body = declared.payload.encode(payload)
        keys = None if key is None else [names.check("key", key)]
        [submission] = self._made(declared, self._record(declared, **terms), [body], keys)
        return self._accepted(submission, await self._put(submission))

    async def many(
        self,
        declared: TaskType,
        payloads: Iterable[Any],
        keys: Iterable[str] | None,
        **terms: Unpack[Terms],
    ) -> list[str]:
        """The ids, in the order of the payloads, which are all checked before the first goes in.

        Each part is made while the one before it is on its way. Behind a part of which something
        was not accepted nothing more is sent.
        """
        if not self._tracer.on:
            return await self._many(declared, payloads, keys, terms)
        with self._traced(declared, terms) as span:
            ids = await self._many(declared, payloads, keys, terms)
            span.tell(tasks=len(ids))
            return ids

    @contextmanager
    def _traced(self, declared: TaskType, terms: Terms) -> Iterator[Span]:
        """The tasks carry the span, unless they were given a text that says something else."""
        given = terms.get("trace_id")
        with self._tracer.submit(declared.name, terms.get("tenant"), given) as span:
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
        terms: Terms,
    ) -> list[str]:
        record = self._record(declared, **terms)
        bodies = await _encoded(declared, payloads)
        given = None if keys is None else [names.check("key", key) for key in keys]
        if given is not None and len(given) != len(bodies):
            raise InvalidInput(f"{len(given)} keys for {len(bodies)} payloads")
        bulk, sending = _Bulk(), None
        for start in range(0, len(bodies), PART):
            part = slice(start, start + PART)
            keys_here = None if given is None else given[part]
            made = self._made(declared, record, bodies[part], keys_here)
            if sending is not None:
                await sending
            if bulk.errors:
                break
            sending = asyncio.create_task(self._send(bulk, start, made))
            await _turns()
        if sending is not None:
            await sending
        return bulk.ids(len(bodies))

    async def _send(self, bulk: _Bulk, start: int, batch: Sequence[Submission]) -> None:
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
                bulk.accepted[number] = self._accepted(submission, answer)
            except Refused as error:
                bulk.errors[number] = error

    async def _insert(self, batch: Sequence[Submission]) -> Sequence[Insertion]:
        try:
            inserted = await self._store.insert(batch, depth_limit=self._queue_limit)
        except StoreUnavailable as error:
            self._say_refused("full" if isinstance(error, StoreFull) else "out of reach", error)
            raise
        if self._said:
            self._say_left_out(SAY_AGAIN_SECONDS)
        return inserted

    def _say_refused(self, why: str, error: StoreUnavailable) -> None:
        """Log a refusal, but seldom: the log may be on the disk that is full."""
        now, (said_at, left_out) = self._clock.steady(), self._said.get(why, (-math.inf, 0))
        if now - said_at < SAY_AGAIN_SECONDS:
            self._said[why] = said_at, left_out + 1
            return
        self._said[why] = now, 0
        more = f" ({left_out} more refusals since the last such line)" if left_out else ""
        log.critical("submits were refused, the store is %s: %s%s", why, error, more)

    def close(self) -> None:
        """Tell of the refusals that no line has told of yet."""
        self._say_left_out(0.0)

    def _say_left_out(self, after_seconds: float) -> None:
        """Tell of the refusals since the last line, where that line is so old."""
        now = self._clock.steady()
        for why, (said_at, left_out) in tuple(self._said.items()):
            if now - said_at < after_seconds:
                continue
            if not left_out:
                del self._said[why]
                continue
            self._said[why] = now, 0
            says = "%d more submits were refused since the last such line, the store was %s"
            log.critical(says, left_out, why)

    def _accepted(self, submission: Submission, answer: Insertion) -> str:
        if isinstance(answer, Conflict):
            task = submission.task
            raise KeyConflict(task.tenant, task.key or "", answer.task_id)
        if isinstance(answer, Full):
            raise QueueFull(answer.queue, self._queue_limit)
        if isinstance(answer, Shut):
            raise IntakePaused(answer.queue)
        return answer.task_id

    def _record(self, declared: TaskType, **terms: Unpack[Terms]) -> Task:
        return new_task.record(declared, now=self._clock.now(), **terms)

    def _made(
        self,
        declared: TaskType,
        record: Task,
        bodies: Sequence[bytes],
        keys: Sequence[str] | None,
    ) -> list[Submission]:
        ids, effects = new_ids(self._clock, self._chance, len(bodies)), declared.effects_namespace
        return new_task.submissions(
            self._store, record, bodies, keys, ids, effects_namespace=effects
        )


class _Bulk:
    """What has become of the tasks of one call, by number."""

    def __init__(self) -> None:
        self.accepted: dict[int, str] = {}
        self.errors: dict[int, Exception] = {}

    def ids(self, total: int) -> list[str]:
        if not self.errors:
            return list(self.accepted.values())
        if self.accepted:
            raise SubmittedInPart(total, self.accepted, self.errors)
        raise next(iter(self.errors.values()))


async def _encoded(declared: TaskType, payloads: Iterable[Any]) -> list[bytes]:
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


async def _turns() -> None:
    """Of the loop, until what was begun is on its way to the store."""
    for _ in range(2):
        await asyncio.sleep(0)
