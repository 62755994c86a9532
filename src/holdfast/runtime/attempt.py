"""One call of the user's function: its context, its deadline, and what came of it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.codec import check_json
from holdfast.domain import checkpoint as ckpt
from holdfast.domain.decide import Done, Failed
from holdfast.domain.errors import (
    CheckpointTooLarge,
    InvalidPayload,
    RetryAfter,
    SerialisationError,
    StageTimeout,
)
from holdfast.domain.task import Progress, Task
from holdfast.ports import Clock
from holdfast.registry import StageDef, UndoDef
from holdfast.runtime import failures
from holdfast.runtime.context import Context
from holdfast.runtime.held import Held, Stop
from holdfast.runtime.threads import Threads
from holdfast.runtime.timing import deadline

log = logging.getLogger("holdfast.executor")

# A result or data that is no JSON will be none the next time either.
UNCHANGING = (InvalidPayload, SerialisationError, CheckpointTooLarge)


class LeaseGone(Exception):
    """The task is another's now. Nothing more may be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    clock: Clock
    chance: random.Random
    threads: Threads
    grace_seconds: float
    held: Held
    task: Task
    payload: Any
    data: Mapping[str, Any]
    results: Mapping[str, bytes]

    async def run(self, stage: StageDef) -> Done | Failed | None:
        """Call the stage's function. None: it was stopped because the worker stops."""
        return await self._outcome(stage, stage, key=self._key(stage))

    async def undo(self, stage: StageDef) -> Done | Failed | None:
        """Call the stage's undo; a stage without one has nothing to undo."""
        return await self._outcome(stage, stage.undo, key=f"{self._key(stage)}/undo")

    async def _outcome(
        self, stage: StageDef, function: StageDef | UndoDef | None, *, key: str
    ) -> Done | Failed | None:
        started_at, started = self.clock.now(), self.clock.steady()
        if self.held.stop is Stop.LEASE_LOST:
            raise LeaseGone(self.task.id)
        if started >= self.held.safe_until:
            return None  # a process that was stopped for a while wakes up here
        context = self._context(stage, key)
        try:
            value = await self._marked(stage, function, context) if function else None
            codec = stage.result if function is stage else None
            result = codec.encode(value, what=f"result of {stage.name}") if codec else b"null"
            data = dict(context.data)
            _check_data(data)
        except asyncio.CancelledError as error:
            return self._stopped(error, stage, started_at)
        except (Exception, SystemExit) as error:
            if self.held.stop is not None:  # it may be what became of our own cancel
                return self._stopped(error, stage, started_at)
            return self._failed(error, stage, started_at)
        return Done(
            result=result,
            data=data,
            started_at=started_at,
            duration_seconds=self.clock.steady() - started,
        )

    async def _marked(self, stage: StageDef, function: StageDef | UndoDef, context: Context) -> Any:
        """While the mark stands, the run may be stopped from outside."""
        self.held.in_stage, self.held.in_thread = True, not function.is_async
        try:
            return await self._call(stage, function, context)
        finally:
            self.held.in_stage = self.held.in_thread = False

    async def _call(self, stage: StageDef, function: StageDef | UndoDef, context: Context) -> Any:
        arguments = (context, self.payload) if function.takes_payload else (context,)
        ends = self.clock.steady() + stage.timeout_seconds
        self.held.renew_until = ends + self.grace_seconds
        self._report_start(stage)
        if not function.is_async:
            value = await self.threads.run(partial(function.call, *arguments))
            if self.clock.steady() > ends:
                raise StageTimeout(stage.name, stage.timeout_seconds)
            return value
        try:
            async with deadline(self.clock, stage.timeout_seconds):
                return await function.call(*arguments)
        except TimeoutError as error:
            if self.clock.steady() < ends:
                raise  # the user's own
            raise StageTimeout(stage.name, stage.timeout_seconds) from error

    def _context(self, stage: StageDef, key: str) -> Context:
        """The data is a copy: a failed stage leaves none of what it wrote there."""
        copy = msgspec.json.decode(msgspec.json.encode(self.data)) if self.data else {}
        return Context(
            task_id=self.task.id,
            tenant=self.task.tenant,
            stage=stage.name,
            attempt=self.task.attempt,
            key=key,
            fence=self.task.fence,
            data=copy,
            results=self.results,
            report=self.held.report,
            now=self.clock.now,
        )

    def _key(self, stage: StageDef) -> str:
        return f"{self.task.id}/{self.task.epoch}/{stage.name}"

    def _report_start(self, stage: StageDef) -> None:
        self.held.report(Progress(fraction=0.0, stage=stage.name, at=self.clock.now()))

    def _stopped(self, error: BaseException, stage: StageDef, started_at: float) -> Failed | None:
        current = asyncio.current_task()
        assert current is not None
        if self.held.stop is Stop.LEASE_LOST:
            raise LeaseGone(self.task.id)
        if self.held.stop is Stop.DRAIN:
            if current.cancelling():
                current.uncancel()
            return None
        if current.cancelling():
            raise error  # the loop itself is closing
        return self._failed(error, stage, started_at)

    def _failed(self, error: BaseException, stage: StageDef, started_at: float) -> Failed:
        failure = failures.describe(error, self.task, stage.name, now=self.clock.now())
        log.info("task %s: stage %s failed: %s", self.task.id, stage.name, failure.summary)
        return Failed(
            failure=failure,
            started_at=started_at,
            retry_seconds=self._retry_seconds(error, stage),
        )

    def _retry_seconds(self, error: BaseException, stage: StageDef) -> float | None:
        if isinstance(error, RetryAfter):
            return error.delay_seconds
        if stage.retry.gives_up(error) or isinstance(error, UNCHANGING):
            return None
        return stage.retry.delay_seconds(self.task.failures + 1, self.chance.random())


def _check_data(data: dict[str, Any]) -> None:
    if not data:
        return
    check_json(data, "ctx.data")
    size = len(msgspec.json.encode(data))
    if size > ckpt.DATA_LIMIT_BYTES:
        raise CheckpointTooLarge(size, ckpt.DATA_LIMIT_BYTES)
