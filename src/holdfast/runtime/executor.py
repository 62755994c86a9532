"""One task, from the claim to its rest."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.domain import checkpoint as ckpt
from holdfast.domain import decide
from holdfast.domain.checkpoint import Checkpoint, Verdict
from holdfast.domain.decide import Done, Failed
from holdfast.domain.errors import HoldfastError
from holdfast.domain.state import Status
from holdfast.domain.task import Failure, Kind, Progress, Task
from holdfast.domain.transition import Applied, Next, Outcome, Stale, Transition
from holdfast.ports import Claimed, Clock
from holdfast.registry import Registry, StageDef, TaskType
from holdfast.runtime import failures
from holdfast.runtime.attempt import Attempt, LeaseGone
from holdfast.runtime.held import Held
from holdfast.runtime.threads import Threads

log = logging.getLogger("holdfast.executor")

REDECIDE_LIMIT = 50  # requests that may come between a stage's end and its commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    checkpoint_ttl_seconds: float = 7 * 86_400
    crash_limit: int = 3
    stage_grace_seconds: float = 10.0  # past a stage's timeout its lease is no longer renewed
    unknown_type_seconds: float = 600.0
    hand_back_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    registry: Registry
    clock: Clock
    chance: random.Random
    rules: Rules
    threads: Threads
    write: Callable[[Transition], Awaitable[Outcome]]
    type_is_served: Callable[[str], Awaitable[bool]]  # by any live worker
    draining: Callable[[], bool]
    publish: Callable[[Held], None]  # what it last said

    async def run(self, claimed: Claimed, held: Held) -> None:
        holding = Holding(self, claimed, held)
        if self.clock.steady() >= held.safe_until:
            return await holding.give_back("the claim was answered too late", interrupted=False)
        if await holding.rested_as_asked():
            return None
        declared = self.registry.find(claimed.task.type)
        if declared is None:
            return await Unknown(self, claimed, held).hand_back()
        run = Run(self, claimed, held, declared)
        if await run.refused():
            return None
        if run.task.status is Status.ROLLING_BACK:
            return await run.backward()
        return await run.forward()

    async def put_off(self, claimed: Claimed, held: Held) -> None:
        """Not now: back for a moment, uncounted."""
        await Holding(self, claimed, held).commit(
            partial(
                decide.give_back,
                reason="another task on its last chance runs here",
                now=self.clock.now(),
                interrupted=False,
                delay_seconds=self.rules.hand_back_seconds,
            )
        )


class Holding:
    """The record that a holder moves, and the one door through which it is moved."""

    def __init__(self, executor: Executor, claimed: Claimed, held: Held) -> None:
        self.executor = executor
        self.claimed = claimed
        self.held = held
        self.task = claimed.task

    @property
    def now(self) -> float:
        return self.executor.clock.now()

    async def commit(self, decision: Callable[[Task], Transition]) -> None:
        """Decide, compare and swap. A request that came meanwhile is met by deciding again."""
        for _ in range(REDECIDE_LIMIT):
            if await self.committed(decision(self.task)):
                return
        raise HoldfastError(f"task {self.task.id} got {REDECIDE_LIMIT} requests during one commit")

    async def committed(self, transition: Transition) -> bool:
        """False: the record has changed under our lease; the one in hand is the new one."""
        self.held.ending = transition.next is not Next.STAY
        outcome = await self.executor.write(transition)
        self.task = self.aligned(self.ours(outcome, transition))
        self.held.ending = self.held.ending and isinstance(outcome, Applied)
        return isinstance(outcome, Applied)

    def ours(self, outcome: Outcome, transition: Transition) -> Task:
        """The record, if our lease is still on it or this write was our last with it."""
        if isinstance(outcome, Applied) and transition.next is not Next.STAY:
            return outcome.task
        if not isinstance(outcome, Applied | Stale) or outcome.task is None:
            raise LeaseGone(self.task.id)
        if outcome.task.lease is None or outcome.task.lease.id != self.held.lease_id:
            raise LeaseGone(self.task.id)
        return outcome.task

    def aligned(self, task: Task) -> Task:
        return task

    async def rested_as_asked(self) -> bool:
        """A cancel or pause is applied at every boundary, the one before the first stage too.

        A pause may be withdrawn before our write arrives; then there is nothing to apply.
        """
        while self.task.pause_requested or self.task.cancel_requested:
            if await self.committed(decide.boundary(self.task, now=self.now)):
                return True
        return False

    async def give_back(self, reason: str, *, interrupted: bool) -> None:
        await self.commit(
            partial(decide.give_back, reason=reason, now=self.now, interrupted=interrupted)
        )

    async def suspend(self, kind: Kind, message: str) -> None:
        await self.suspend_with(failures.stated(kind, message, self.task, now=self.now))

    async def suspend_with(self, failure: Failure) -> None:
        log.warning("task %s is suspended: %s", self.task.id, failure.summary)
        await self.commit(partial(decide.suspend, failure=failure, now=self.now))


class Run(Holding):
    def __init__(
        self, executor: Executor, claimed: Claimed, held: Held, declared: TaskType
    ) -> None:
        super().__init__(executor, claimed, held)
        self.declared = declared
        self.payload: Any = None
        self.checkpoint: Checkpoint | None = None
        self.data: dict[str, Any] = {}
        self.results = {stage.name: stage.result for stage in claimed.stages}
        self.fits = False  # the code's stages with what has run

    async def forward(self) -> None:
        if not await self.restored():
            return None
        for stage in self.declared.stages[self.task.last_completed + 1 :]:
            if await self.rested_as_asked():
                return None
            if self.executor.draining():
                return await self.give_back("the worker stops", interrupted=False)
            outcome = await self.attempt().run(stage)
            if outcome is None:
                return await self.give_back("the worker stops", interrupted=True)
            if isinstance(outcome, Failed):
                return await self.commit_failure(stage, outcome)
            if stage is self.declared.stages[-1]:
                return await self.commit(partial(decide.complete, done=outcome, now=self.now))
            await self.commit_stage(stage, outcome)
        raise HoldfastError(f"task {self.task.id} was handed out with no stage left to run")

    async def backward(self) -> None:
        self.align()
        while self.task.next_undo >= 0:
            stage = self.declared.stages[self.task.next_undo]
            if self.executor.draining():
                return await self.give_back("the worker stops", interrupted=False)
            outcome = await self.attempt().undo(stage)
            if outcome is None:
                return await self.give_back("the worker stops", interrupted=True)
            if isinstance(outcome, Failed):
                return await self.commit_undo_failure(stage, outcome)
            await self.commit_undo(stage, outcome)
        return await self.commit(partial(decide.rolled_back, now=self.now))

    # -- before the first stage

    async def refused(self) -> bool:
        """What must not run goes to a person instead."""
        task = self.task
        if task.crashes >= self.executor.rules.crash_limit:
            said = f"{task.crashes} workers in a row died or hung in this stage"
            await self.suspend(Kind.POISON, said)
        elif self.would_overrun():
            said = f"newer work has run for tenant {task.tenant} while this waited half done"
            await self.suspend(Kind.TENANT_MOVED_ON, said)
        elif error := self.unreadable():
            stage = task.at_stage or task.stages[-1]
            await self.suspend_with(failures.describe(error, task, stage, now=self.now))
        elif not self.can_undo():
            said = "the stages to undo are no longer the first ones in the code"
            await self.suspend(Kind.DEFINITION_CHANGED, said)
        else:
            return False
        return True

    def would_overrun(self) -> bool:
        """Newer work has run for the tenant, this is half done, and nobody forced it."""
        task = self.task
        half_done = task.last_completed >= 0 or task.begun
        return self.claimed.moved_on and task.workflow and half_done and not task.forced

    def unreadable(self) -> Exception | None:
        try:
            self.payload = self.declared.payload.decode(self.claimed.payload)
            if self.claimed.checkpoint is not None:
                self.checkpoint = ckpt.decode(self.claimed.checkpoint)
                self.data = dict(self.checkpoint.custom_data)
            if self.claimed.data is not None and self.task.status is Status.ROLLING_BACK:
                self.data = msgspec.json.decode(self.claimed.data, type=dict[str, Any])
        except Exception as error:  # the user's type reads its own payload
            return error
        return None

    def can_undo(self) -> bool:
        if self.task.status is not Status.ROLLING_BACK:
            return True
        names = self.task.stages[: self.task.next_undo + 1]
        return self.declared.stage_names[: len(names)] == names

    def aligned(self, task: Task) -> Task:
        """Once it is known that they fit, the record follows the code's stages."""
        if not self.fits or task.settled or task.stages == self.declared.stage_names:
            return task
        return msgspec.structs.replace(task, stages=self.declared.stage_names)

    def align(self) -> None:
        self.fits = True
        self.task = self.aligned(self.task)

    async def restored(self) -> bool:
        """Go on after the checkpoint, or from stage 0 when it is no good; False: suspended."""
        if self.task.last_completed < 0:
            self.align()
            return True
        verdict, why = self.judge()
        if verdict is Verdict.GOOD:
            self.align()
            said, stage = "restored from its checkpoint", self.task.at_stage or ""
            self.held.report(Progress(fraction=0.0, message=said, stage=stage, at=self.now))
            self.executor.publish(self.held)
        elif verdict is Verdict.CHANGED:
            await self.suspend(Kind.DEFINITION_CHANGED, why)
            return False
        elif self.declared.suspend_on_invalid:
            await self.suspend(Kind.INVALID_CHECKPOINT, why)
            return False
        else:
            log.warning("task %s starts over, its checkpoint is no good: %s", self.task.id, why)
            await self.commit(partial(decide.start_over, reason=why, now=self.now))
            self.checkpoint, self.data, self.results = None, {}, {}
            self.align()
        return True

    def judge(self) -> tuple[Verdict, str]:
        if self.checkpoint is None:
            return Verdict.INVALID, "there is none"
        verdict, why = ckpt.judge(
            self.checkpoint,
            self.declared.stage_names,
            now=self.now,
            ttl_seconds=self.executor.rules.checkpoint_ttl_seconds,
        )
        left = len(self.declared.stages) - self.checkpoint.last_completed_stage_index - 1
        if verdict is Verdict.GOOD and left == 0:
            return Verdict.CHANGED, "the code has no stage left to run behind the completed ones"
        return verdict, why

    # -- a stage and its end

    def attempt(self) -> Attempt:
        return Attempt(
            clock=self.executor.clock,
            chance=self.executor.chance,
            threads=self.executor.threads,
            grace_seconds=self.executor.rules.stage_grace_seconds,
            held=self.held,
            task=self.task,
            payload=self.payload,
            data=self.data,
            results=self.results,
        )

    async def commit_stage(self, stage: StageDef, done: Done) -> None:
        decision = partial(decide.stage_done, done=done, checkpoint=self.checkpoint, now=self.now)
        saved = decision(self.task).checkpoint
        await self.commit(decision)
        self.checkpoint, self.data = saved, dict(done.data)
        self.results[stage.name] = done.result

    async def commit_failure(self, stage: StageDef, failed: Failed) -> None:
        await self.commit(
            partial(
                decide.stage_failed,
                failed=failed,
                policy=stage.retry,
                checkpoint=self.checkpoint,
                now=self.now,
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
        self.data = dict(done.data)

    async def commit_undo_failure(self, stage: StageDef, failed: Failed) -> None:
        await self.commit(
            partial(decide.undo_failed, failed=failed, policy=stage.retry, now=self.now)
        )


class Unknown(Holding):
    """A task whose type this worker does not know, as during a rolling deploy."""

    async def hand_back(self) -> None:
        served = await self.executor.type_is_served(self.task.type)
        since = self.now if served else self.task.unknown_since or self.now
        if self.now - since >= self.executor.rules.unknown_type_seconds:
            said = f"no live worker has known type {self.task.type!r} for {self.now - since:.0f} s"
            return await self.suspend(Kind.UNKNOWN_TYPE, said)
        return await self.commit(
            partial(
                decide.give_back,
                reason="this worker does not know its type",
                now=self.now,
                interrupted=False,
                delay_seconds=self.executor.rules.hand_back_seconds,
                unknown_since=since,
            )
        )
