"""An attempt is one call of the user's function: its context, its deadline, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from math import inf
from types import coroutine
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from holdfast.domain.errors import Snooze, StageTimeout
from holdfast.domain.task.decide import Done, Failed, Snoozed
from holdfast.ports import Clock, Timer, scope
from holdfast.ports.tracing import Span
from holdfast.registry import StageDef, UndoDef
from holdfast.runtime.context import Context
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker import meter
from holdfast.runtime.worker.forks import Forks, end_child
from holdfast.runtime.worker.running_tasks import LeaseGone, RunningStages, RunningTask, Stop
from holdfast.runtime.worker.stage_errors import CalledTask, StageErrors, check_data
from holdfast.runtime.worker.threads import Raised, Threads

EARLY_SECONDS = 0.001  # a loop's timer may ring so much before its time


class StageCaller(CalledTask, Protocol):
    """A run at the moment when it calls a function."""

    payload: Any
    data: Mapping[str, Any]
    results: dict[str, bytes]

    def stop_reason(self) -> str | None: ...


class Attempts:
    """The calls of users' functions, for all runs of a worker."""

    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        threads: Threads,
        deadlines: Deadlines,
        count: Callable[[str, str, str, float], None],
        renew_now: Callable[[RunningTask], Awaitable[None]],
        stages: RunningStages,
        errors: StageErrors,
    ) -> None:
        """Call functions; ``count`` gets type, stage, outcome and seconds of each call, and
        ``renew_now`` tells the store at once what a task reports."""
        self._clock, self._tracer = env.clock, env.tracer
        self._grace_seconds = env.options.rules.stage_grace_seconds
        self._threads, self._deadlines, self._stages = threads, deadlines, stages
        self._count, self._renew_now, self._errors = count, renew_now, errors

    def run(
        self, stage: StageDef, at: StageCaller
    ) -> Coroutine[Any, Any, Done | Failed | Snoozed | None]:
        """Call the stage's function. None: it was stopped because the worker stops."""
        return self._call_traced(stage, stage, at, key=_key(stage, at))

    async def undo(self, stage: StageDef, at: StageCaller) -> Done | Failed | None:
        """Call the stage's undo; a stage without one has nothing to undo."""
        key = f"{_key(stage, at)}/undo"
        outcome = await self._call_traced(stage, stage.undo, at, key=key)
        assert not isinstance(outcome, Snoozed)
        return outcome

    async def _call_traced(
        self, stage: StageDef, function: StageDef | UndoDef | None, at: StageCaller, *, key: str
    ) -> Done | Failed | Snoozed | None:
        """Name the stage in what is logged meanwhile; a span lasts as long as the call."""
        outside = scope.current.set(scope.Scope(at.task, stage.name))
        try:
            if function is None or not self._tracer.on:
                return await self._outcome(stage, function, at, key=key)
            with self._tracer.stage(at.task, stage.name, undo=function is not stage) as span:
                span.set_attributes(outcome="stopped")  # unless it ends in a better way
                outcome = await self._outcome(stage, function, at, key=key)
                _record(span, outcome)
                return outcome
        finally:
            scope.current.reset(outside)

    async def _outcome(
        self, stage: StageDef, function: StageDef | UndoDef | None, at: StageCaller, *, key: str
    ) -> Done | Failed | Snoozed | None:
        running, clock, stages = at.running, self._clock, self._stages
        if stages.suspect is not None and not await self._wait_for_suspect(at):
            return None
        started_at, started = clock.now(), clock.steady()
        if running.stop is Stop.LEASE_LOST:
            raise LeaseGone(running.task_id)
        if started >= running.safe_until:
            return None  # a process that was stopped for a while wakes up here
        ends = started + stage.timeout_seconds
        if (
            function is not None
            and not self._begin(stage, at, started_at, ends)
            and not await self._may_begin_again(at)
        ):
            return None
        context = self._context(stage, at, key)
        ended: Failed | Snoozed | None
        try:
            value = (
                await self._call_function(stage, function, context, at, ends) if function else None
            )
            result = stage.encode_result(value) if function is stage else b"null"
            data = dict(context.data)
            if data:
                check_data(data)
        except Snooze as error:
            is_undo = function is not stage
            ended = self._errors.judge_snooze(
                error, stage, context.data, at, started_at, undo=is_undo
            )
        except Raised as carried:
            ended = self._errors.failure_of(carried.error, stage, at.task, started_at)
        except BaseException as error:
            ended = self._errors.judge(error, stage, at, started_at)
        else:
            took = clock.steady() - started
            if function is not None:
                name = meter.DONE if function is stage else meter.UNDONE
                self._count(at.task.type, stage.name, name, took)
            return Done(
                result=result,
                data=data,
                started_at=started_at,
                duration_seconds=took,
                undo=stage.undo is not None,
            )
        finally:
            stages.end(running)
        if ended is not None:
            name = _outcome_name(ended, undo=function is not stage)
            self._count(at.task.type, stage.name, name, clock.steady() - started)
        return ended

    async def _wait_for_suspect(self, at: StageCaller) -> bool:
        is_let_in = await self._stages.let_in(at.running, self._clock)
        return is_let_in and at.stop_reason() is None  # a hold may have come meanwhile

    def _begin(self, stage: StageDef, at: StageCaller, started_at: float, ends: float) -> bool:
        """Note that the stage begins, and return whether it may without asking again."""
        running = at.running
        running.begin(stage.name, at=started_at, ends=ends, renew_until=ends + self._grace_seconds)
        self._stages.begin(running, at.task)
        return not at.task.lapses

    async def _may_begin_again(self, at: StageCaller) -> bool:
        """Tell the store at once of a stage that has lost a lease: it may kill this process before
        the next beat."""
        may_begin = False
        try:
            await self._renew_now(at.running)
            may_begin = at.stop_reason() is None  # a drain or a hold may have come meanwhile
        finally:
            if not may_begin:
                self._stages.end(at.running)
        return may_begin

    def _call_function(
        self,
        stage: StageDef,
        function: StageDef | UndoDef,
        context: Context,
        at: StageCaller,
        ends: float,
    ) -> Coroutine[Any, Any, Any]:
        arguments = (context, at.payload) if function.takes_payload else (context,)
        if function.is_async:
            return self._await_stage(stage, _guard(function.call(*arguments)), at.running, ends)
        return self._in_thread(stage, partial(function.call, *arguments), at.running, ends)

    async def _await_stage(
        self, stage: StageDef, call: Awaitable[Any], running: RunningTask, ends: float
    ) -> Any:
        """Await a coroutine function; while `in_stage` stands, it may be stopped from outside."""
        running.in_stage = True
        self._deadlines.begin(running, ends)
        try:
            value = await call
            if running.out_of_time:
                raise TimeoutError  # it has swallowed the cancel
            return value
        except asyncio.CancelledError:
            if running.out_of_time and running.take_back():
                raise StageTimeout(stage.name, stage.timeout_seconds) from None
            raise
        except TimeoutError as error:
            if running.out_of_time or self._clock.steady() >= ends:
                raise StageTimeout(stage.name, stage.timeout_seconds) from error
            raise  # the user's own
        finally:
            running.in_stage, running.ends = False, inf
            if running.out_of_time:
                running.take_back()

    async def _in_thread(
        self, stage: StageDef, call: Callable[[], Any], running: RunningTask, ends: float
    ) -> Any:
        running.in_stage = running.in_thread = True
        try:
            value = await self._threads.run(call)
        finally:
            running.in_stage = running.in_thread = False
        if self._clock.steady() > ends:
            raise StageTimeout(stage.name, stage.timeout_seconds)
        return value

    def _context(self, stage: StageDef, at: StageCaller, key: str) -> Context:
        """Hand the stage a copy of the data: a failed stage leaves none of what it wrote there."""
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
            report=at.running.report,
            now=self._clock.now,
        )


class Deadlines:
    """The ends of a worker's stages, under one timer: it is set for the first that may be due.

    A stage that ends in time costs nothing more; the timer rings all the same, once, and is set
    for the first of those that run then.
    """

    def __init__(self, clock: Clock, running: Callable[[], Iterable[RunningTask]]) -> None:
        self._clock = clock
        self._running = running
        self._rings_at = inf
        self._timer: Timer | None = None

    def begin(self, running: RunningTask, ends: float) -> None:
        running.ends = ends
        if ends < self._rings_at:
            self._set(ends)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, rings_at: float) -> None:
        self.close()
        seconds = max(0.0, rings_at - self._clock.steady())
        self._rings_at, self._timer = rings_at, self._clock.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._rings_at, due = inf, self._clock.steady() + EARLY_SECONDS
        for running in self._running():
            if running.ends <= due:
                running.time_is_up()
        first = min((running.ends for running in self._running()), default=inf)
        if first < inf:
            self._set(first)


@coroutine
def _guard(call: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await a stage's coroutine, and end a forked child where it would return to the loop."""
    began_in, send = Forks.generation, call.send
    try:
        waits_for = send(None)
        while Forks.generation == began_in:
            try:
                sent = yield waits_for
            except GeneratorExit:
                call.close()
                raise
            except BaseException as error:
                waits_for = call.throw(error)
            else:
                waits_for = send(sent)
    except StopIteration as returned:
        if Forks.generation == began_in:
            return returned.value
    except BaseException as error:
        if Forks.generation == began_in:
            raise
        end_child(error)
    end_child()


def _outcome_name(ended: Failed | Snoozed, *, undo: bool) -> str:
    if isinstance(ended, Snoozed):
        return meter.SNOOZED
    if ended.outage_seconds is not None:
        return meter.UNDO_OUTAGE if undo else meter.OUTAGE
    return meter.UNDO_FAILED if undo else meter.FAILED


def _record(span: Span, outcome: Done | Failed | Snoozed | None) -> None:
    if isinstance(outcome, Failed):
        failure = outcome.failure
        span.set_attributes(outcome=meter.FAILED)
        span.fail(failure.error, failure.message, failure.traceback)
    elif outcome is not None:
        span.set_attributes(outcome=meter.DONE if isinstance(outcome, Done) else meter.SNOOZED)


def _key(stage: StageDef, at: StageCaller) -> str:
    name = stage.name if stage.name.isascii() else quote(stage.name)  # a header can carry it
    return f"{at.task.effects or at.task.id}/{at.task.epoch}/{name}"
