"""One task, from the claim to its rest."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import decide, outage
from holdfast.domain.task.checkpoint import RESTART, Checkpoint, Verdict
from holdfast.domain.task.decide import Done, Failed, Snoozed
from holdfast.domain.task.placement import Next
from holdfast.domain.task.stages import misnamed
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, Kind, Progress, Task
from holdfast.domain.task.transition import Applied, MovedOn, Outcome, Transition
from holdfast.ports import Claimed, Clock
from holdfast.registry import Registry, StageDef, TaskType
from holdfast.runtime.worker import failures
from holdfast.runtime.worker.attempt import Attempts, LeaseGone
from holdfast.runtime.worker.interrupts import is_from_signal
from holdfast.runtime.worker.running_task import RunningTask
from holdfast.runtime.worker.tenant_holds import HeldTenants

log = logging.getLogger("holdfast.executor")

UNDO_GONE, UNDO_UNKNOWN = "undo-gone", "undo-unknown"  # what a failure of a rollback is called
REDECIDE_LIMIT = 50  # requests that may come between a stage's end and its commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    checkpoint_ttl_seconds: float = 7 * 86_400
    crash_limit: int = 3
    stage_grace_seconds: float = 10.0  # past a stage's timeout its lease is no longer renewed
    unknown_type_seconds: float = 600.0
    outage_seconds: float = outage.LIMIT_SECONDS
    hand_back_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    registry: Registry
    clock: Clock
    rules: Rules
    attempts: Attempts
    write: Callable[[Transition], Awaitable[Outcome]]
    type_is_served: Callable[[str], Awaitable[bool]]  # by any live worker
    draining: Callable[[], bool]
    holds: HeldTenants
    publish: Callable[[RunningTask], None]  # what it last said

    async def run(self, claimed: Claimed, held: RunningTask) -> None:
        self.holds.note_claim(claimed.task.tenant)
        holding = self.holding(claimed, held)
        if self.clock.steady() >= held.safe_until:
            return await holding.give_back("the claim was answered too late", interrupted=False)
        if holding.asked and await holding.rested_as_asked():
            return None
        if isinstance(holding, UnknownTypeTask):
            return await holding.hand_back()
        if (failure := holding.refusal()) is not None:
            return await holding.suspend(failure)
        if holding.task.status is Status.ROLLING_BACK:
            return await holding.backward()
        return await holding.forward()

    def holding(self, claimed: Claimed, held: RunningTask) -> TaskRun | UnknownTypeTask:
        declared = self.registry.find(claimed.task.type)
        if declared is None:
            return UnknownTypeTask(self, claimed, held)
        return TaskRun(self, claimed, held, declared)

    async def put_off(self, claimed: Claimed, held: RunningTask, seconds: float) -> None:
        """Give a suspect back for a while, uncounted."""
        await ClaimedTask(self, claimed, held).commit(
            partial(
                decide.give_back,
                reason="it was in several crashes and waits for a process of its own",
                now=self.clock.now(),
                interrupted=False,
                delay_seconds=seconds,
            )
        )


class ClaimedTask:
    """The record that a holder moves, and the one door through which it is moved."""

    __slots__ = ("claimed", "executor", "held", "stages_read", "task")

    def __init__(self, executor: Executor, claimed: Claimed, held: RunningTask) -> None:
        self.executor = executor
        self.claimed = claimed
        self.held = held
        self.task = claimed.task
        self.stages_read = claimed.task.stages  # what the stored record names

    @property
    def now(self) -> float:
        return self.executor.clock.now()

    async def commit(self, decision: Callable[[Task], Transition]) -> Transition:
        """Decide, compare and swap. A request that came meanwhile is met by deciding again."""
        for _ in range(REDECIDE_LIMIT):
            transition = decision(self.task)
            if await self.committed(transition):
                return transition
        raise HoldfastError(f"task {self.task.id} got {REDECIDE_LIMIT} requests during one commit")

    async def committed(self, transition: Transition) -> bool:
        """False: the record has changed under our lease; the one in hand is the new one."""
        is_last = self.held.ending = transition.next is not Next.STAY
        outcome = await self.executor.write(self.over_the_read(transition))
        if isinstance(outcome, Applied) and is_last:
            self.task = outcome.task
            return True
        self.task = self.aligned(self.ours(outcome))
        self.held.ending = False
        return isinstance(outcome, Applied)

    def ours(self, outcome: Outcome) -> Task:
        """The record, if our lease is still on it."""
        task = None if isinstance(outcome, MovedOn) else outcome.task
        if task is None or task.lease is None or task.lease.id != self.held.lease_id:
            raise LeaseGone(self.task.id)
        self.stages_read = task.stages
        return task

    def over_the_read(self, transition: Transition) -> Transition:
        """Return the transition over the record as the store has it: the one in hand may already
        name the code's stages, and a store writes what differs."""
        before, stages = transition.before, self.stages_read
        if before.stages is stages or before.stages == stages:
            return transition
        return msgspec.structs.replace(
            transition, before=msgspec.structs.replace(before, stages=stages)
        )

    def aligned(self, task: Task) -> Task:
        return task

    @property
    def asked(self) -> bool:
        return self.task.pause_requested or self.task.cancel_requested

    async def rested_as_asked(self) -> bool:
        """A cancel or pause is applied at every boundary, the one before the first stage too.

        A pause may be withdrawn before our write arrives; then there is nothing to apply.
        """
        while self.asked:
            if await self.committed(decide.boundary(self.task, now=self.now)):
                return True
        return False

    async def give_back(self, reason: str, *, interrupted: bool) -> None:
        await self.commit(
            partial(decide.give_back, reason=reason, now=self.now, interrupted=interrupted)
        )

    def stated(self, kind: Kind, message: str) -> Failure:
        return failures.stated(kind, message, self.task, now=self.now)

    async def suspend(self, failure: Failure) -> None:
        log.warning("task %s is suspended: %s", self.task.id, failure.summary)
        await self.commit(partial(decide.suspend, failure=failure, now=self.now))


class TaskRun(ClaimedTask):
    __slots__ = ("checkpoint", "data", "declared", "fits", "payload", "results")

    def __init__(
        self, executor: Executor, claimed: Claimed, held: RunningTask, declared: TaskType
    ) -> None:
        super().__init__(executor, claimed, held)
        self.declared = declared
        self.payload: Any = None
        self.checkpoint: Checkpoint | None = None
        self.data: Mapping[str, Any] = {}
        self.results: dict[str, bytes] = {}
        self.fits = False  # the code's stages with what has run
        for stage in claimed.stages:
            self.results[stage.name] = stage.result

    async def forward(self) -> None:
        if self.task.last_completed < 0:
            self.align()
        elif not await self.restored():
            return None
        for stage in self.declared.stages[self.task.last_completed + 1 :]:
            if self.asked and await self.rested_as_asked():
                return None
            if (reason := self.stops()) is not None:
                return await self.give_back(reason, interrupted=False)
            outcome = await self.executor.attempts.run(stage, self)
            if outcome is None:
                return await self.give_back("the worker stops", interrupted=True)
            if not isinstance(outcome, Done):
                return await self.commit_unfinished(stage, outcome)
            if stage is self.declared.stages[-1]:
                await self.commit(partial(decide.complete, done=outcome, now=self.now))
                return None
            await self.commit_stage(stage, outcome)
        raise HoldfastError(f"task {self.task.id} was handed out with no stage left to run")

    async def backward(self) -> None:
        """The record goes on naming the stages that ran: those that are undone may have gone."""
        asked_again = self.task.failure is not None and self.task.failure.error == UNDO_UNKNOWN
        while self.task.next_undo >= 0:
            stage = self.declared.stages[self.task.next_undo]
            if stage.undo is None and (missing := self.missing_undo(stage, known=asked_again)):
                return await self.suspend(missing)
            if (reason := self.stops()) is not None:
                return await self.give_back(reason, interrupted=False)
            outcome = await self.executor.attempts.undo(stage, self)
            if outcome is None:
                return await self.give_back("the worker stops", interrupted=True)
            if isinstance(outcome, Failed):
                return await self.commit_undo_failure(stage, outcome)
            await self.commit_undo(stage, outcome)
        await self.commit(partial(decide.rolled_back, now=self.now))
        return None

    def stops(self) -> str | None:
        """Why no further stage is begun here and now."""
        if self.executor.draining():
            return "the worker stops"
        return "its tenant is held" if self.executor.holds.is_held(self.task.tenant) else None

    # -- before the first stage

    def refusal(self) -> Failure | None:
        """Why it must not run and goes to a person instead."""
        task = self.task
        if task.crashes >= self.executor.rules.crash_limit:
            said = f"{task.crashes} workers in a row died or hung in this stage"
            alone = ", the last one while nothing else ran in it" if task.crashes > 1 else ""
            return self.stated(Kind.POISON, said + alone)
        if self.would_overrun():
            said = f"newer work has run for tenant {task.tenant} while this waited half done"
            return self.stated(Kind.TENANT_MOVED_ON, said)
        if error := self.unreadable():
            stage = task.at_stage or task.stages[-1]
            return failures.describe(error, task, stage, now=self.now)
        if self.task.status is Status.ROLLING_BACK and (
            wrong := misnamed(task, self.claimed.stages)
        ):
            said = f"its record {wrong}; `holdfast doctor --fix` puts it right"
            return self.stated(Kind.DEFINITION_CHANGED, said)
        if not self.can_undo():
            said = "the stages to undo are no longer the first ones in the code"
            return self.stated(Kind.DEFINITION_CHANGED, said)
        return None

    def would_overrun(self) -> bool:
        """Newer work has run for the tenant, this is half done, and nobody forced it."""
        task = self.task
        if not self.claimed.moved_on or not task.workflow or task.forced:
            return False
        return task.last_completed >= 0 or task.begun

    def unreadable(self) -> BaseException | None:
        try:
            self.payload = self.declared.payload.decode(self.claimed.payload)
            if self.claimed.checkpoint is not None:
                self.checkpoint = self.versioned(ckpt.decode(self.claimed.checkpoint))
                self.data = self.checkpoint.custom_data
            if self.claimed.data is not None and self.data_is_beside():
                kept = msgspec.json.decode(self.claimed.data, type=dict[str, Any] | None)
                self.data = self.data if kept is None else kept
        except BaseException as error:  # the user's type reads its own payload
            if is_from_signal(error):
                raise
            return error
        return None

    def versioned(self, found: Checkpoint) -> Checkpoint:
        """One that was put back by hand may have no version: the next one must be above the
        version that the store compares with."""
        if found.version >= self.claimed.checkpoint_version:
            return found
        return msgspec.structs.replace(found, version=self.claimed.checkpoint_version)

    def data_is_beside(self) -> bool:
        """Beside the record, not in the checkpoint: in a rollback, and before the first one."""
        return self.task.status is Status.ROLLING_BACK or self.task.last_completed < 0

    def can_undo(self) -> bool:
        if self.task.status is not Status.ROLLING_BACK:
            return True
        names = self.task.stages[: self.task.next_undo + 1]
        return self.declared.stage_names[: len(names)] == names

    def missing_undo(self, stage: StageDef, *, known: bool) -> Failure | None:
        """Return why a stage without an undo in the code is not passed over, or None.

        A stage that has no record has not come to its end, and the code alone tells of it. Of a
        record that does not say whether there was an undo, a person decides: asked for the
        rollback again, it goes on without one.
        """
        kept = {one.index: one for one in self.claimed.stages}
        last = kept.get(self.task.next_undo)
        if last is None or last.undo is False or (last.undo is None and known):
            return None
        if last.undo:
            said = (
                f"stage {stage.name!r} had an undo when it ran, and the code has none: deploy it "
                "and ask for the rollback again"
            )
            return self.stated_of(stage, UNDO_GONE, said)
        silent = [
            one.name
            for one in self.declared.stages[: self.task.next_undo + 1]
            if one.undo is None
            and (of := kept.get(self.declared.stage_names.index(one.name)))
            and of.undo is None
        ]
        said = (
            f"the code has no undo for {', '.join(reversed(silent))}, and the record is too old to "
            "say whether there was one: deploy it, or ask for the rollback again to go on without"
        )
        return self.stated_of(stage, UNDO_UNKNOWN, said)

    def stated_of(self, stage: StageDef, error: str, message: str) -> Failure:
        failure = self.stated(Kind.DEFINITION_CHANGED, message)
        return msgspec.structs.replace(failure, stage=stage.name, error=error)

    def aligned(self, task: Task) -> Task:
        """Once it is known that they fit, the record follows the code's stages."""
        if not self.fits or task.stages is self.declared.stage_names or task.settled:
            return task
        return msgspec.structs.replace(task, stages=self.declared.stage_names)

    def align(self) -> None:
        self.fits = True
        self.task = self.aligned(self.task)

    async def restored(self) -> bool:
        """Go on after the checkpoint, or from stage 0 when it is no good; False: suspended."""
        verdict, why = self.judge()
        if verdict is Verdict.GOOD:
            self.align()
            said, stage = "restored from its checkpoint", self.task.at_stage or ""
            self.held.report(Progress(fraction=0.0, message=said, stage=stage, at=self.now))
            self.executor.publish(self.held)
        elif verdict is Verdict.CHANGED:
            await self.suspend(self.stated(Kind.DEFINITION_CHANGED, why))
            return False
        elif self.declared.checkpoints.on_invalid != RESTART:
            await self.suspend(self.stated(Kind.INVALID_CHECKPOINT, why))
            return False
        else:
            log.warning("task %s starts over, its checkpoint is no good: %s", self.task.id, why)
            await self.commit(partial(decide.start_over, reason=why, now=self.now))
            self.checkpoint, self.data, self.results = None, {}, {}
            self.align()
        return True

    def judge(self) -> tuple[Verdict, str]:
        if self.checkpoint is None:
            return Verdict.INVALID, "the checkpoint is gone"
        verdict, why = ckpt.judge(
            self.checkpoint,
            self.declared.stage_names,
            now=self.now,
            max_age_seconds=self.declared.checkpoints.max_age_seconds,
        )
        index, last = self.checkpoint.last_completed_stage_index, self.task.last_completed
        if verdict is Verdict.GOOD and index != last:
            return Verdict.INVALID, f"it is of stage {index}, the record is at stage {last}"
        left = len(self.declared.stages) - self.checkpoint.last_completed_stage_index - 1
        if verdict is Verdict.GOOD and left == 0:
            return Verdict.CHANGED, "the code has no stage left to run behind the completed ones"
        return verdict, why

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
        """It has not completed, and may come back."""
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
                decide.undone,
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
            said = f"no live worker has known type {self.task.type!r} for {self.now - since:.0f} s"
            return await self.suspend(self.stated(Kind.UNKNOWN_TYPE, said))
        await self.commit(
            partial(
                decide.give_back,
                reason="this worker does not know its type",
                now=self.now,
                interrupted=False,
                delay_seconds=self.executor.rules.hand_back_seconds,
                unknown_since=since,
            )
        )
        return None
