"""The executor runs one task, from the claim until it settles, is parked or is given back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import decide
from holdfast.domain.task.checkpoint import RESTART, Checkpoint, CheckpointVerdict
from holdfast.domain.task.decide import Done, Failed, Snoozed
from holdfast.domain.task.placement import Next
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, FailureKind, Progress, Task
from holdfast.domain.task.transition import Applied, MovedOn, Outcome, Transition
from holdfast.ports import Claimed, Clock
from holdfast.registry import Registry, StageDef, TaskType
from holdfast.runtime.worker import failure_records, restore
from holdfast.runtime.worker.attempt import Attempts
from holdfast.runtime.worker.interrupts import is_from_signal
from holdfast.runtime.worker.running_tasks import LeaseGone, RunningTask
from holdfast.runtime.worker_options import Rules

log = logging.getLogger("holdfast.executor")

REDECIDE_LIMIT = 50  # requests that may come between a stage's end and its commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    registry: Registry
    clock: Clock
    rules: Rules
    attempts: Attempts
    write: Callable[[Transition], Awaitable[Outcome]]
    type_is_served: Callable[[str], Awaitable[bool]]  # whether any live worker knows the type
    draining: Callable[[], bool]
    held_tenants: HeldTenants
    publish: Callable[[RunningTask], None]  # publishes the last progress of a task

    async def run(self, claimed: Claimed, running: RunningTask) -> None:
        """Run a claimed task until it rests, is given back or belongs to another worker."""
        if claimed.task.tenant is not None:
            self.held_tenants.note_claim(claimed.task.tenant)
        run = self.open(claimed, running)
        if self.clock.steady() >= running.safe_until:
            return await run.give_back("the claim was answered too late")
        if run.is_requested and await run.stop_as_requested():
            return None
        if isinstance(run, UnknownTypeTask):
            return await run.hand_back()
        if (failure := run.refusal()) is not None:
            return await run.suspend(failure)
        if run.task.status is Status.ROLLING_BACK:
            return await run.backward()
        return await run.forward()

    def open(self, claimed: Claimed, running: RunningTask) -> TaskExecution | UnknownTypeTask:
        declared = self.registry.find(claimed.task.type)
        if declared is None:
            return UnknownTypeTask(self, claimed, running)
        return TaskExecution(self, claimed, running, declared)

    async def put_off(self, claimed: Claimed, running: RunningTask, seconds: float) -> None:
        """Give a suspect back for a while, uncounted."""
        reason = "it was in several crashes and waits for a process of its own"
        await ClaimedTask(self, claimed, running).give_back(reason, delay_seconds=seconds)


class ClaimedTask:
    """A task under our lease, and the only way to write its record."""

    __slots__ = ("claimed", "executor", "running", "stored_stages", "task")

    def __init__(self, executor: Executor, claimed: Claimed, running: RunningTask) -> None:
        self.executor = executor
        self.claimed = claimed
        self.running = running
        self.task = claimed.task
        self.stored_stages = claimed.task.stages  # what the stored record names

    @property
    def now(self) -> float:
        return self.executor.clock.now()

    async def commit(self, decision: Callable[[Task], Transition]) -> Transition:
        """Decide, compare and swap; decide again if a request came meanwhile."""
        for _ in range(REDECIDE_LIMIT):
            transition = decision(self.task)
            if await self.try_commit(transition):
                return transition
        raise HoldfastError(f"task {self.task.id} got {REDECIDE_LIMIT} requests during one commit")

    async def try_commit(self, transition: Transition) -> bool:
        """Write once; False: the record has changed under our lease, and the new one is in hand."""
        is_last = self.running.ending = transition.next is not Next.STAY
        if transition.before.stages is not self.stored_stages:
            transition = self.from_stored(transition)
        outcome = await self.executor.write(transition)
        if isinstance(outcome, Applied) and is_last:
            self.task = outcome.task
            return True
        self.task = self.with_code_stages(self.record_in(outcome))
        self.running.ending = False
        return isinstance(outcome, Applied)

    def record_in(self, outcome: Outcome) -> Task:
        """Return the record, if our lease is still on it."""
        task = None if isinstance(outcome, MovedOn) else outcome.task
        if task is None or task.lease is None or task.lease.id != self.running.lease_id:
            raise LeaseGone(self.task.id)
        self.stored_stages = task.stages
        return task

    def from_stored(self, transition: Transition) -> Transition:
        """Return the transition over the record as the store has it: the one in hand may already
        name the code's stages, and a store writes what differs."""
        before, stages = transition.before, self.stored_stages
        if before.stages == stages:
            return transition
        return msgspec.structs.replace(
            transition, before=msgspec.structs.replace(before, stages=stages)
        )

    def with_code_stages(self, task: Task) -> Task:
        return task

    @property
    def is_requested(self) -> bool:
        return self.task.pause_requested or self.task.cancel_requested

    async def stop_as_requested(self) -> bool:
        """Apply a cancel or pause, at every boundary and also before the first stage.

        A pause may be withdrawn before our write arrives; then there is nothing to apply.
        """
        while self.is_requested:
            if await self.try_commit(decide.boundary(self.task, now=self.now)):
                return True
        return False

    async def give_back(
        self,
        reason: str,
        *,
        interrupted: bool = False,
        delay_seconds: float = 0.0,
        unknown_since: float | None = None,
    ) -> None:
        await self.commit(
            partial(
                decide.give_back,
                reason=reason,
                now=self.now,
                interrupted=interrupted,
                delay_seconds=delay_seconds,
                unknown_since=unknown_since,
            )
        )

    def failure(self, kind: FailureKind, message: str) -> Failure:
        return failure_records.stated_failure(kind, message, self.task, now=self.now)

    async def suspend(self, failure: Failure) -> None:
        log.warning("task %s is suspended: %s", self.task.id, failure.summary)
        await self.commit(partial(decide.suspend, failure=failure, now=self.now))


class TaskExecution(ClaimedTask):
    """A task whose type is known here, run forward or undone stage by stage."""

    __slots__ = ("checkpoint", "data", "declared", "fits", "payload", "results")

    def __init__(
        self, executor: Executor, claimed: Claimed, running: RunningTask, declared: TaskType
    ) -> None:
        super().__init__(executor, claimed, running)
        self.declared = declared
        self.payload: Any = None
        self.checkpoint: Checkpoint | None = None
        self.data: Mapping[str, Any] = {}
        self.results: dict[str, bytes] = {}
        self.fits = False  # whether the code's stages fit those that have run
        for stage in claimed.stages:
            self.results[stage.name] = stage.result

    async def forward(self) -> None:
        if self.task.last_completed < 0:
            self.align()
        elif not await self.restore():
            return None
        for stage in self.declared.stages[self.task.last_completed + 1 :]:
            if self.is_requested and await self.stop_as_requested():
                return None
            if (reason := self.stop_reason()) is not None:
                return await self.give_back(reason)
            outcome = await self.executor.attempts.run(stage, self)
            if outcome is None:
                reason = self.stop_reason() or "the worker stops"
                return await self.give_back(reason, interrupted=True)
            if not isinstance(outcome, Done):
                return await self.commit_unfinished(stage, outcome)
            if stage is self.declared.stages[-1]:
                await self.commit(partial(decide.complete, done=outcome, now=self.now))
                return None
            await self.commit_stage(stage, outcome)
        raise HoldfastError(f"task {self.task.id} was handed out with no stage left to run")

    async def backward(self) -> None:
        """Undo the completed stages; the record goes on naming them, though the code may not."""
        failure = self.task.failure
        is_repeated = failure is not None and failure.error == restore.UNDO_UNKNOWN
        while self.task.next_undo >= 0:
            stage = self.declared.stages[self.task.next_undo]
            if stage.undo is None and (missing := self.missing_undo(stage, known=is_repeated)):
                return await self.suspend(missing)
            if (reason := self.stop_reason()) is not None:
                return await self.give_back(reason)
            outcome = await self.executor.attempts.undo(stage, self)
            if outcome is None:
                reason = self.stop_reason() or "the worker stops"
                return await self.give_back(reason, interrupted=True)
            if isinstance(outcome, Failed):
                return await self.commit_undo_failure(stage, outcome)
            await self.commit_undo(stage, outcome)
        await self.commit(partial(decide.rolled_back, now=self.now))
        return None

    def stop_reason(self) -> str | None:
        """Return why no further stage is begun here and now."""
        if self.executor.draining():
            return "the worker stops"
        tenant = self.task.tenant
        is_held = tenant is not None and self.executor.held_tenants.is_held(tenant)
        return "its tenant is held" if is_held else None

    # -- before the first stage

    def refusal(self) -> Failure | None:
        """Return why the task must not run and goes to a person instead."""
        task = self.task
        if task.crashes >= self.executor.rules.crash_limit:
            message = f"{task.crashes} workers in a row died or hung in this stage"
            alone = ", the last one while nothing else ran in it" if task.crashes > 1 else ""
            return self.failure(FailureKind.POISON, message + alone)
        if self.claimed.moved_on and self.would_overrun():
            message = f"newer work has run for tenant {task.tenant} while this waited half done"
            return self.failure(FailureKind.TENANT_MOVED_ON, message)
        if error := self.read_bodies():
            stage = task.at_stage or task.stages[-1]
            return failure_records.describe(error, task, stage, now=self.now)
        return self.refusal_to_undo() if task.status is Status.ROLLING_BACK else None

    def refusal_to_undo(self) -> Failure | None:
        """Return why the stages of the record cannot be undone by this code."""
        if wrong := describe_mismatch(self.task, self.claimed.stages):
            message = f"its record {wrong}; `holdfast doctor --fix` puts it right"
            return self.failure(FailureKind.DEFINITION_CHANGED, message)
        names = self.task.stages[: self.task.next_undo + 1]
        if self.declared.stage_names[: len(names)] != names:
            message = "the stages to undo are no longer the first ones in the code"
            return self.failure(FailureKind.DEFINITION_CHANGED, message)
        return None

    def would_overrun(self) -> bool:
        """Return whether this, unforced, was half done when newer work ran for its tenant."""
        task = self.task
        if not task.workflow or task.forced:
            return False
        return task.last_completed >= 0 or task.begun

    def read_bodies(self) -> BaseException | None:
        """Decode payload, checkpoint and data; return the error if one cannot be read."""
        try:
            self.payload = self.declared.payload.decode(self.claimed.payload)
            if self.claimed.checkpoint is not None:
                stored = ckpt.decode(self.claimed.checkpoint)
                self.checkpoint = restore.at_least(stored, self.claimed.checkpoint_version)
                self.data = self.checkpoint.custom_data
            if self.claimed.data is not None and self.data_is_outside_checkpoint():
                kept = msgspec.json.decode(self.claimed.data, type=dict[str, Any] | None)
                self.data = self.data if kept is None else kept
        except BaseException as error:  # the user's type reads its own payload
            if is_from_signal(error):
                raise
            return error
        return None

    def data_is_outside_checkpoint(self) -> bool:
        """Return whether the data is outside a checkpoint, as before the first one."""
        return self.task.status is Status.ROLLING_BACK or self.task.last_completed < 0

    def missing_undo(self, stage: StageDef, *, known: bool) -> Failure | None:
        """Return why a stage without an undo in the code is not passed over, or None."""
        missing = restore.missing_undo(self.task, self.claimed.stages, self.declared, known=known)
        if missing is None:
            return None
        failure = self.failure(FailureKind.DEFINITION_CHANGED, missing.message)
        return msgspec.structs.replace(failure, stage=stage.name, error=missing.error)

    def with_code_stages(self, task: Task) -> Task:
        """Name the code's stages in the record, once it is known that they fit."""
        if not self.fits or task.stages == self.declared.stage_names or task.settled:
            return task
        return msgspec.structs.replace(task, stages=self.declared.stage_names)

    def align(self) -> None:
        self.fits = True
        self.task = self.with_code_stages(self.task)

    async def restore(self) -> bool:
        """Go on after the checkpoint, or from stage 0 when it is invalid; False: suspended."""
        verdict, why = restore.judge(self.checkpoint, self.declared, self.task, now=self.now)
        if verdict is CheckpointVerdict.GOOD:
            self.align()
            message, stage = "restored from its checkpoint", self.task.at_stage or ""
            self.running.report(Progress(fraction=0.0, message=message, stage=stage, at=self.now))
            self.executor.publish(self.running)
        elif verdict is CheckpointVerdict.CHANGED:
            await self.suspend(self.failure(FailureKind.DEFINITION_CHANGED, why))
            return False
        elif self.declared.checkpoints.on_invalid != RESTART:
            await self.suspend(self.failure(FailureKind.INVALID_CHECKPOINT, why))
            return False
        else:
            template = "task %s starts over, because its checkpoint is invalid: %s"
            log.warning(template, self.task.id, why)
            await self.commit(partial(decide.start_over, reason=why, now=self.now))
            self.checkpoint, self.data, self.results = None, {}, {}
            self.align()
        return True

    # -- a stage and its end

    async def commit_stage(self, stage: StageDef, done: Done) -> None:
        before, now = self.checkpoint, self.now
        written = await self.commit(
            lambda task: decide.stage_done(
                task, done, checkpoint=before, now=now, policy=self.declared.checkpoints
            )
        )
        self.checkpoint, self.data = written.checkpoint, done.data
        self.results[stage.name] = done.result

    async def commit_unfinished(self, stage: StageDef, ended: Failed | Snoozed) -> None:
        """Commit the end of a stage that has not completed and may come back."""
        before, now = self.checkpoint, self.now
        if isinstance(ended, Snoozed):
            await self.commit(partial(decide.snooze, snoozed=ended, checkpoint=before, now=now))
            return
        await self.commit(
            partial(
                decide.stage_failed, failed=ended, policy=stage.retry, checkpoint=before, now=now
            )
        )

    async def commit_undo(self, stage: StageDef, done: Done) -> None:
        await self.commit(
            partial(
                decide.stage_undone,
                had_undo=stage.undo is not None,
                data=done.data,
                duration_seconds=done.duration_seconds,
                now=self.now,
            )
        )
        self.data = done.data

    async def commit_undo_failure(self, stage: StageDef, failed: Failed) -> None:
        await self.commit(
            partial(decide.undo_failed, failed=failed, policy=stage.retry, now=self.now)
        )


class UnknownTypeTask(ClaimedTask):
    """A task whose type this worker does not know, as during a rolling deploy."""

    __slots__ = ()

    async def hand_back(self) -> None:
        served = await self.executor.type_is_served(self.task.type)
        since = self.now if served else self.task.unknown_since or self.now
        if self.now - since >= self.executor.rules.unknown_type_seconds:
            message = (
                f"no live worker has known type {self.task.type!r} for {self.now - since:.0f} s"
            )
            return await self.suspend(self.failure(FailureKind.UNKNOWN_TYPE, message))
        reason = "this worker does not know its type"
        seconds = self.executor.rules.hand_back_seconds
        return await self.give_back(reason, delay_seconds=seconds, unknown_since=since)


class HeldTenants:
    """The tenants that were held when the store was last asked.

    The store hands out nothing of a held tenant: a task that was handed out tells of a release
    that was not seen yet, and must not be given back for it."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def replace(self, tenants: Iterable[str]) -> None:
        self._names = set(tenants)

    def note_claim(self, tenant: str) -> None:
        self._names.discard(tenant)

    def is_held(self, tenant: str) -> bool:
        return tenant in self._names
