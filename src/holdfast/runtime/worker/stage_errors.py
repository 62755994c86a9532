"""The meaning of a stage's error for its task: retry after a delay, outage, snooze or stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from holdfast.domain.error_text import leaves_of
from holdfast.domain.errors import (
    CheckpointTooLarge,
    HoldfastError,
    InvalidPayload,
    RetryAfter,
    SerialisationError,
    Snooze,
)
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import outage
from holdfast.domain.task.decide import Failed, Snoozed
from holdfast.domain.task.task import Failure, Task
from holdfast.encoding.codec import check_json
from holdfast.registry import StageDef
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker import failure_records
from holdfast.runtime.worker.interrupts import is_from_signal, pass_on
from holdfast.runtime.worker.running_tasks import LeaseGone, RunningTask, Stop

log = logging.getLogger("holdfast.executor")

# A result or data that is no JSON will be none the next time either.
UNCHANGING = (InvalidPayload, SerialisationError, CheckpointTooLarge)


class CalledTask(Protocol):
    """The task whose stage was called, as its errors are judged by it."""

    running: RunningTask
    task: Task


class StageErrors:
    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        closing: Callable[[], bool],
        on_outage: Callable[[Failure, float], None],
    ) -> None:
        """Judge errors; ``closing`` says whether the loop ends: then a cancel that nobody here
        asked for comes from there. ``on_outage`` gets each outage, and since when its task has met
        nothing else."""
        self._clock, self._chance = env.clock, env.chance
        self._outage_seconds = env.options.rules.outage_seconds
        self._closing, self._on_outage = closing, on_outage

    def judge(
        self, error: BaseException, stage: StageDef, at: CalledTask, started_at: float
    ) -> Failed | None:
        """Judge an error as the stage's own failure, unless it comes from outside of the stage."""
        if isinstance(error, GeneratorExit) and not _runs_in(at.running.run):
            raise error  # the run itself is being closed
        if is_from_signal(error):
            pass_on(error)
            return None
        # It may be what became of our own cancel.
        if at.running.stop is not None or isinstance(error, asyncio.CancelledError):
            return self._judge_stopped(error, stage, at, started_at)
        return self.failure_of(error, stage, at.task, started_at)

    def _judge_stopped(
        self, error: BaseException, stage: StageDef, at: CalledTask, started_at: float
    ) -> Failed | None:
        current = asyncio.current_task()
        assert current is not None
        if at.running.stop is Stop.LEASE_LOST:
            raise LeaseGone(at.task.id)
        if at.running.stop is Stop.DRAIN:
            if current.cancelling():
                current.uncancel()
            return None
        if current.cancelling():
            if self._closing():
                raise error  # the loop itself is closing
            current.uncancel()  # the stage has cancelled its own run
        return self.failure_of(error, stage, at.task, started_at)

    def judge_snooze(
        self,
        snooze: Snooze,
        stage: StageDef,
        data: MutableMapping[str, Any],
        at: CalledTask,
        started_at: float,
        *,
        undo: bool,
    ) -> Snoozed | Failed:
        """Snooze also when the worker stops: what the stage has put into its data is kept."""
        current = asyncio.current_task()
        if at.running.stop is Stop.LEASE_LOST:
            raise LeaseGone(at.task.id)
        if at.running.stop is Stop.DRAIN and current is not None and current.cancelling():
            current.uncancel()
        try:
            if undo:
                raise HoldfastError("Snooze is for stages: an undo that waits raises RetryAfter")
            kept = dict(data)
            if kept:
                check_data(kept)
            delay_seconds = float(snooze.delay_seconds)
        except AttributeError:  # of a subclass that does not call its base: no delay is known
            return self.failure_of(snooze, stage, at.task, started_at)
        except BaseException as error:
            return self.failure_of(error, stage, at.task, started_at)
        return Snoozed(data=kept, started_at=started_at, delay_seconds=delay_seconds)

    def failure_of(
        self, error: BaseException, stage: StageDef, task: Task, started_at: float
    ) -> Failed:
        failure = failure_records.describe(error, task, stage.name, now=self._clock.now())
        log.info("task %s: stage %s failed: %s", task.id, stage.name, failure.summary)
        leaves = leaves_of(error)
        if outage.are_outages(leaves) and not any(map(stage.retry.decides_on, leaves)):
            return self._unavailable(failure, task, started_at)
        return Failed(
            failure=failure,
            started_at=started_at,
            retry_seconds=self._retry_seconds(failure_records.deciding(error), stage, task),
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


def _runs_in(run: asyncio.Task[None] | None) -> bool:
    """Return whether this is called in a step of the run, not while it is being closed."""
    try:
        current = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return current is not None and run in (None, current)


def check_data(data: dict[str, Any], what: str = "ctx.data") -> None:
    """Raise if data is no JSON, or too large for a checkpoint."""
    check_json(data, what)
    size = len(msgspec.json.encode(data))
    if size > ckpt.DATA_LIMIT_BYTES:
        raise CheckpointTooLarge(size, ckpt.DATA_LIMIT_BYTES)
