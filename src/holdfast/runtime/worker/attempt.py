"""One call of the user's function: its context, its deadline, and what came of it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from math import inf
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from holdfast.domain.error_text import leaves_of
from holdfast.domain.errors import (
    CheckpointTooLarge,
    HoldfastError,
    InvalidPayload,
    RetryAfter,
    SerialisationError,
    Snooze,
    StageTimeout,
)
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import outage
from holdfast.domain.task.decide import Done, Failed, Snoozed
from holdfast.domain.task.task import Failure, Task
from holdfast.encoding.codec import check_json
from holdfast.ports import Clock, scope
from holdfast.ports.tracing import NO_TRACER, Span, Tracer
from holdfast.registry import StageDef, UndoDef
from holdfast.runtime.context import Context
from holdfast.runtime.deadlines import Deadlines
from holdfast.runtime.worker import failures
from holdfast.runtime.worker.forks import Guarded
from holdfast.runtime.worker.interrupts import is_from_signal, pass_on
from holdfast.runtime.worker.meter import (
    DONE,
    FAILED,
    OUTAGE,
    SNOOZED,
    UNDO_FAILED,
    UNDO_OUTAGE,
    UNDONE,
)
from holdfast.runtime.worker.running_stages import RunningStages
from holdfast.runtime.worker.running_task import RunningTask, Stop
from holdfast.runtime.worker.threads import Raised, Threads

log = logging.getLogger("holdfast.executor")

# A result or data that is no JSON will be none the next time either.
UNCHANGING = (InvalidPayload, SerialisationError, CheckpointTooLarge)


class LeaseGone(Exception):
    """The task is another's now. Nothing more may be written."""


class StageCaller(Protocol):
    """Where a run stands when it calls a function."""

    held: RunningTask
    task: Task
    payload: Any
    data: Mapping[str, Any]
    results: dict[str, bytes]


class Attempts:
    """Calls the users' functions, for all runs of a worker."""

    def __init__(
        self,
        *,
        clock: Clock,
        chance: random.Random,
        threads: Threads,
        deadlines: Deadlines,
        grace_seconds: float,
        took: Callable[[str, str, str, float], None],
        note: Callable[[RunningTask], Awaitable[None]],
        company: RunningStages,
        closing: Callable[[], bool] = lambda: True,
        tracer: Tracer = NO_TRACER,
        outage_seconds: float = outage.LIMIT_SECONDS,
        on_outage: Callable[[Failure, float], None] = lambda _failure, _since: None,
    ) -> None:
        """``note``: the store is told at once what a stage says of itself. ``closing``: the loop
        ends, so a cancel that nobody here asked for comes from there. ``on_outage``: told of each
        outage, and since when its task has met nothing else."""
        self._clock = clock
        self._chance = chance
        self._threads = threads
        self._deadlines = deadlines
        self._grace_seconds = grace_seconds
        self._took = took
        self._note = note
        self._company = company
        self._closing = closing
        self._tracer = tracer
        self._outage_seconds = outage_seconds
        self._on_outage = on_outage

    def run(
        self, stage: StageDef, at: StageCaller
    ) -> Coroutine[Any, Any, Done | Failed | Snoozed | None]:
        """Call the stage's function. None: it was stopped because the worker stops."""
        return self._watched(stage, stage, at, key=_key(stage, at))

    async def undo(self, stage: StageDef, at: StageCaller) -> Done | Failed | None:
        """Call the stage's undo; a stage without one has nothing to undo."""
        key = f"{_key(stage, at)}/undo"
        outcome = await self._watched(stage, stage.undo, at, key=key)
        assert not isinstance(outcome, Snoozed)
        return outcome

    async def _watched(
        self, stage: StageDef, function: StageDef | UndoDef | None, at: StageCaller, *, key: str
    ) -> Done | Failed | Snoozed | None:
        """What is logged meanwhile names the stage; a span lasts as long as the call."""
        outside = scope.current.set(scope.Scope(at.task, stage.name))
        try:
            if function is None or not self._tracer.on:
                return await self._outcome(stage, function, at, key=key)
            with self._tracer.stage(at.task, stage.name, undo=function is not stage) as span:
                span.tell(outcome="stopped")  # unless it ends in a better way
                outcome = await self._outcome(stage, function, at, key=key)
                _tell(span, outcome)
                return outcome
        finally:
            scope.current.reset(outside)

    async def _outcome(
        self, stage: StageDef, function: StageDef | UndoDef | None, at: StageCaller, *, key: str
    ) -> Done | Failed | Snoozed | None:
        held, clock, company = at.held, self._clock, self._company
        if company.suspect is not None and not await company.let_in(held, clock):
            return None
        started_at, started = clock.now(), clock.steady()
        if held.stop is Stop.LEASE_LOST:
            raise LeaseGone(held.task_id)
        if started >= held.safe_until:
            return None  # a process that was stopped for a while wakes up here
        ends = started + stage.timeout_seconds
        if function is not None:
            await self._begin(stage, at, started_at, ends)
        context = self._context(stage, at, key)
        ended: Failed | Snoozed | None
        try:
            value = await self._returned(stage, function, context, at, ends) if function else None
            result = stage.encode_result(value) if function is stage else b"null"
            data = dict(context.data)
            if data:
                _check_data(data)
        except Snooze as error:
            ended = self._snoozed(error, stage, context, at, started_at, undo=function is not stage)
        except Raised as carried:
            ended = self._failed(carried.error, stage, at.task, started_at)
        except BaseException as error:
            ended = self._raised(error, stage, at, started_at)
        else:
            took = clock.steady() - started
            if function is not None:
                self._took(at.task.type, stage.name, DONE if function is stage else UNDONE, took)
            return Done(
                result=result,
                data=data,
                started_at=started_at,
                duration_seconds=took,
                undo=stage.undo is not None,
            )
        finally:
            company.end(held)
        if ended is not None:
            name = _outcome_of(ended, undo=function is not stage)
            self._took(at.task.type, stage.name, name, clock.steady() - started)
        return ended

    async def _begin(
        self, stage: StageDef, at: StageCaller, started_at: float, ends: float
    ) -> None:
        held = at.held
        held.begin(stage.name, at=started_at, ends=ends, renew_until=ends + self._grace_seconds)
        self._company.begin(held, at.task)
        if at.task.lapses:  # it may kill this process before the next beat
            await self._note(held)

    def _returned(
        self,
        stage: StageDef,
        function: StageDef | UndoDef,
        context: Context,
        at: StageCaller,
        ends: float,
    ) -> Coroutine[Any, Any, Any]:
        arguments = (context, at.payload) if function.takes_payload else (context,)
        if function.is_async:
            return self._awaited(stage, Guarded(function.call(*arguments)), at.held, ends)
        return self._in_thread(stage, partial(function.call, *arguments), at.held, ends)

    async def _awaited(
        self, stage: StageDef, call: Awaitable[Any], held: RunningTask, ends: float
    ) -> Any:
        """While the mark stands, the run may be stopped from outside."""
        held.in_stage = True
        self._deadlines.begin(held, ends)
        try:
            value = await call
            if held.out_of_time:
                raise TimeoutError  # it has swallowed the cancel
            return value
        except asyncio.CancelledError:
            if held.out_of_time and held.take_back():
                raise StageTimeout(stage.name, stage.timeout_seconds) from None
            raise
        except TimeoutError as error:
            if held.out_of_time or self._clock.steady() >= ends:
                raise StageTimeout(stage.name, stage.timeout_seconds) from error
            raise  # the user's own
        finally:
            held.in_stage, held.ends = False, inf
            if held.out_of_time:
                held.take_back()

    async def _in_thread(
        self, stage: StageDef, call: Callable[[], Any], held: RunningTask, ends: float
    ) -> Any:
        held.in_stage = held.in_thread = True
        try:
            value = await self._threads.run(call)
        finally:
            held.in_stage = held.in_thread = False
        if self._clock.steady() > ends:
            raise StageTimeout(stage.name, stage.timeout_seconds)
        return value

    def _context(self, stage: StageDef, at: StageCaller, key: str) -> Context:
        """The data is a copy: a failed stage leaves none of what it wrote there."""
        task, data = at.task, at.data
        return Context(
            task_id=task.id,
            tenant=task.tenant,
            stage=stage.name,
            attempt=task.attempt,
            key=key,
            fence=task.fence,
            data=msgspec.json.decode(msgspec.json.encode(data)) if data else {},
            results=at.results,
            report=at.held.report,
            now=self._clock.now,
        )

    def _raised(
        self, error: BaseException, stage: StageDef, at: StageCaller, started_at: float
    ) -> Failed | None:
        """What a stage raises is its own failure, unless it comes from outside of the stage."""
        if isinstance(error, GeneratorExit) and not _runs_in(at.held.run):
            raise error  # the run itself is being closed
        if is_from_signal(error):
            pass_on(error)
            return None
        # It may be what became of our own cancel.
        if at.held.stop is not None or isinstance(error, asyncio.CancelledError):
            return self._stopped(error, stage, at, started_at)
        return self._failed(error, stage, at.task, started_at)

    def _stopped(
        self, error: BaseException, stage: StageDef, at: StageCaller, started_at: float
    ) -> Failed | None:
        current = asyncio.current_task()
        assert current is not None
        if at.held.stop is Stop.LEASE_LOST:
            raise LeaseGone(at.task.id)
        if at.held.stop is Stop.DRAIN:
            if current.cancelling():
                current.uncancel()
            return None
        if current.cancelling():
            if self._closing():
                raise error  # the loop itself is closing
            current.uncancel()  # the stage has cancelled its own run
        return self._failed(error, stage, at.task, started_at)

    def _snoozed(
        self,
        asked: Snooze,
        stage: StageDef,
        context: Context,
        at: StageCaller,
        started_at: float,
        *,
        undo: bool,
    ) -> Snoozed | Failed:
        """Also when the worker stops: what it has put into its data is worth keeping."""
        current = asyncio.current_task()
        if at.held.stop is Stop.LEASE_LOST:
            raise LeaseGone(at.task.id)
        if at.held.stop is Stop.DRAIN and current is not None and current.cancelling():
            current.uncancel()
        try:
            if undo:
                raise HoldfastError("Snooze is for stages: an undo that waits raises RetryAfter")
            data = dict(context.data)
            if data:
                _check_data(data)
            delay_seconds = float(asked.delay_seconds)
        except AttributeError:  # of a subclass that does not call its base: no delay is known
            return self._failed(asked, stage, at.task, started_at)
        except BaseException as error:
            return self._failed(error, stage, at.task, started_at)
        return Snoozed(data=data, started_at=started_at, delay_seconds=delay_seconds)

    def _failed(
        self, error: BaseException, stage: StageDef, task: Task, started_at: float
    ) -> Failed:
        failure = failures.describe(error, task, stage.name, now=self._clock.now())
        log.info("task %s: stage %s failed: %s", task.id, stage.name, failure.summary)
        leaves = leaves_of(error)
        if outage.are_outages(leaves) and not any(map(stage.retry.decides_on, leaves)):
            return self._unavailable(failure, task, started_at)
        return Failed(
            failure=failure,
            started_at=started_at,
            retry_seconds=self._retry_seconds(failures.deciding(error), stage, task),
        )

    def _unavailable(self, failure: Failure, task: Task, started_at: float) -> Failed:
        row = outage.row_with(task, failure, now=self._clock.now())
        self._on_outage(failure, row.since)
        return Failed(
            failure=failure,
            started_at=started_at,
            retry_seconds=outage.delay_seconds(row.count, self._chance.random()),
            outage_seconds=self._outage_seconds,
        )

    def _retry_seconds(self, error: BaseException, stage: StageDef, task: Task) -> float | None:
        if isinstance(error, RetryAfter) and hasattr(error, "delay_seconds"):
            return error.delay_seconds
        if stage.retry.gives_up(error) or isinstance(error, UNCHANGING):
            return None
        return stage.retry.delay_seconds(task.failures + 1, self._chance.random())


def _outcome_of(ended: Failed | Snoozed, *, undo: bool) -> str:
    if isinstance(ended, Snoozed):
        return SNOOZED
    if ended.outage_seconds is not None:
        return UNDO_OUTAGE if undo else OUTAGE
    return UNDO_FAILED if undo else FAILED


def _tell(span: Span, outcome: Done | Failed | Snoozed | None) -> None:
    if isinstance(outcome, Failed):
        failure = outcome.failure
        span.tell(outcome=FAILED)
        span.fail(failure.error, failure.message, failure.traceback)
    elif outcome is not None:
        span.tell(outcome=DONE if isinstance(outcome, Done) else SNOOZED)


def _runs_in(run: asyncio.Task[None] | None) -> bool:
    """Whether this is called in a step of the run, not while its coroutine is being closed."""
    try:
        current = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return current is not None and run in (None, current)


def _key(stage: StageDef, at: StageCaller) -> str:
    name = stage.name if stage.name.isascii() else quote(stage.name)  # a header can carry it
    return f"{at.task.effects or at.task.id}/{at.task.epoch}/{name}"


def _check_data(data: dict[str, Any]) -> None:
    check_json(data, "ctx.data")
    size = len(msgspec.json.encode(data))
    if size > ckpt.DATA_LIMIT_BYTES:
        raise CheckpointTooLarge(size, ckpt.DATA_LIMIT_BYTES)
