"""The scheduler fires triggers: it takes what is due, makes its tasks and moves it on, in one step.

All that is due later is in the store, so there is nothing to rebuild at the start: the first claim
finds what fell due while nobody was there, and the misfire policies say what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence

from holdfast.clock import new_id, new_ids
from holdfast.domain.errors import (
    HoldfastError,
    InvalidInput,
    PartlyUnavailable,
    SerialisationError,
    StoreError,
)
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger import firing
from holdfast.domain.trigger.trigger import (
    Changed,
    NoRoom,
    Overlap,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStatus,
)
from holdfast.ports import Topic, WorkerInfo
from holdfast.registry import TaskType
from holdfast.runtime import new_task
from holdfast.runtime.deadlines import back_off, deadline, sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.schedule.declared_sync import DeclaredTriggers
from holdfast.runtime.schedule.patrol import Patrol
from holdfast.runtime.worker.failure_records import summary

log = logging.getLogger("holdfast.scheduler")

BATCH = 100
LEASE_SECONDS = 30.0
WRITE_SECONDS = 20.0  # a write that is tried for longer may find its lease lapsed
PART_SECONDS = 2.0  # for a part of the store that is away
IDLE_SECONDS = 30.0  # fire times are wall times: a clock that was set is noticed by then
LEAST_SECONDS = 0.02  # between two looks that find nothing
LEAVE_SECONDS = (1.5, 5.0)  # longer than a trigger that is left to others is put off
STOP_SECONDS = 2.0  # for what is in hand

UNWRITABLE = (SerialisationError, InvalidInput)
Answer = TriggerOutcome | HoldfastError


class Scheduler:
    """Every worker runs one; a trigger is handed to one of them at a time."""

    def __init__(self, env: WorkerEnvironment, declared: DeclaredTriggers) -> None:
        self._store, self._registry, self._outages = env.store, env.registry, env.outages
        self._clock, self._chance, self._tracer = env.clock, env.chance, env.tracer
        self._owner, self._declared = env.worker, declared
        self._queue_limit = env.options.queue_limit
        self._unknown_type_seconds = env.options.rules.unknown_type_seconds
        self._patrol = Patrol(env)
        self._leaves_some = False  # to others: they look first next time
        self._left = 0  # of the batch in hand, to others
        self._is_synced = self._is_stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        tries = 0
        while not self._is_stopping:
            try:
                if not self._is_synced:
                    await self._declared.sync()
                    self._is_synced = True
                await self._patrol.step()
                ticket, wait_seconds = await self.tick()
                tries = 0
            except StoreError as error:
                self._outages.note(error)
                tries += 1
                await back_off(self._clock, self._chance, tries)
                continue
            if self._leaves_some:
                await self._let_others_claim()
            else:
                wait_seconds = min(wait_seconds, self._patrol.wait_seconds)
                await self._store.wait(Topic.DUE, ticket, timeout=wait_seconds)

    async def stop(self) -> None:
        """Claim no more, and finish the leased triggers. A trigger that is left waits until its
        lease lapses, and that counts as a failed attempt."""
        self._is_stopping = True
        try:
            async with deadline(self._clock, STOP_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            log.warning(
                "scheduler %s stopped with leased triggers; their leases will lapse", self._owner
            )

    async def tick(self) -> tuple[int, float]:
        """Fire until nothing is due, or nothing of it is ours to fire; return a ticket of before
        the last claim, and how long to rest."""
        self._idle.clear()
        try:
            while True:
                ticket = self._store.ticket(Topic.DUE)
                due = await self._store.triggers.claim(
                    self._owner, limit=BATCH, lease_seconds=LEASE_SECONDS
                )
                self._left = 0
                for some in self._portions(due.triggers):
                    await self._answer(some)
                # With more of others than can be put off in a second this would never end.
                if self._is_stopping or self._left == len(due.triggers):
                    return ticket, _wait_seconds(due.next_seconds)
        finally:
            self._idle.set()

    def _portions(self, triggers: Sequence[Trigger]) -> Iterator[Sequence[Trigger]]:
        """Split triggers so that those which have failed before go one by one, in any order: if one
        of them has ended the process that had it, the others must not share the blame."""
        if fresh := [trigger for trigger in triggers if not trigger.retry_count]:
            yield fresh
        failed = [trigger for trigger in triggers if trigger.retry_count]
        self._chance.shuffle(failed)
        for trigger in failed:
            yield [trigger]

    async def _let_others_claim(self) -> None:
        """Pause for a random while: else we might always be the first to take what is not ours."""
        self._leaves_some = False
        least, most = LEAVE_SECONDS
        await sleep(self._clock, least + (most - least) * self._chance.random())

    # -- what becomes of those that we hold

    async def _answer(self, triggers: Sequence[Trigger]) -> None:
        give_up_at = self._clock.steady() + WRITE_SECONDS
        live = await self._live_if_needed(triggers)
        changes = [self._decide(trigger, live) for trigger in triggers]
        outcomes = await self._write(changes, give_up_at)
        second = [
            change
            for pair in zip(changes, outcomes, strict=True)
            if (change := self._once_more(*pair)) is not None
        ]
        if second:
            for change, outcome in zip(second, await self._write(second, give_up_at), strict=True):
                _log_refusal(change, outcome)

    async def _live_if_needed(self, triggers: Iterable[Trigger]) -> Sequence[WorkerInfo] | None:
        """Load the live workers, only if some triggers are not ours to fire; None: not known."""
        ours = self._declared.ids()
        if all(self._registry.find(t.target) and _is_ours(t, ours) for t in triggers):
            return ()
        try:
            return await self._declared.live()
        except StoreError as error:
            self._outages.note(error)
            return None

    def _decide(self, trigger: Trigger, live: Sequence[WorkerInfo] | None) -> TriggerChange:
        now = trigger.updated_at  # when it was handed out, by the clock that found it due
        try:
            if (suspended := firing.suspend_after_lapses(trigger, now=now)) is not None:
                return suspended
            declared = self._registry.find(trigger.target)
            if declared is None:
                return self._judge_unknown(trigger, live, now)
            if not _is_ours(trigger, self._declared.ids()):
                return self._drop_or_leave(trigger, live, now)
            return self._fire(trigger, declared, now)
        except Exception as error:  # of the user's code, or a payload that is no good any more
            log.warning("trigger %s could not be fired: %s", trigger.id, summary(error))
            return firing.retry_or_suspend(trigger, summary(error), now=now)

    def _judge_unknown(
        self, trigger: Trigger, live: Sequence[WorkerInfo] | None, now: float
    ) -> TriggerChange:
        served = live is None or any(
            trigger.target in worker.beat.types or trigger.id in worker.beat.triggers
            for worker in live
        )
        if served:
            self._leave()
        limit = self._unknown_type_seconds
        return firing.put_off_unknown(trigger, served=served, limit_seconds=limit, now=now)

    def _leave(self) -> None:
        self._leaves_some = True
        self._left += 1

    def _drop_or_leave(
        self, trigger: Trigger, live: Sequence[WorkerInfo] | None, now: float
    ) -> TriggerChange:
        """Drop a trigger that no live worker declares (the rule: `declared_sync.py`)."""
        if live is None or any(trigger.id in worker.beat.triggers for worker in live):
            self._leave()
            reason, seconds = "left to a worker that declares it", firing.OTHERS_SECONDS
            return firing.put_off(trigger, seconds, reason, now=now)
        return firing.drop(trigger, now=now, request=new_id(self._clock, self._chance))

    def _fire(self, trigger: Trigger, declared: TaskType, now: float) -> TriggerChange:
        due = firing.due(trigger, now=now)
        made = self._new_submissions(trigger, declared, due.times) if due.times else []
        return firing.fire(trigger, due, made, now=now, chance=self._chance.random())

    def _new_submissions(
        self, trigger: Trigger, declared: TaskType, times: Sequence[float]
    ) -> list[Submission]:
        bodies = [self._declared.body(trigger, declared, at) for at in times]
        with self._tracer.fire(declared.name, trigger.tenant, trigger.id) as span:
            record = new_task.record(
                declared,
                now=self._clock.now(),
                tenant=trigger.tenant,
                queue=trigger.queue,
                trace_id=span.traceparent,
                user=trigger.user,
            )
        keys = [firing.key(trigger, at) for at in times]
        ids = new_ids(self._clock, self._chance, len(times))
        return new_task.submissions(
            self._store, record, bodies, keys, ids, effects_namespace=declared.effects_namespace
        )

    def _once_more(self, change: TriggerChange, outcome: Answer | None) -> TriggerChange | None:
        """Return what to write instead of a change that was refused."""
        trigger, now = change.before, change.before.updated_at
        match outcome:
            case Overlapping() if trigger.overlap is Overlap.QUEUE:
                return firing.queue_overlap(trigger, now=now)
            case Overlapping():
                due = firing.due(trigger, now=now)
                chance = self._chance.random()
                return firing.skip_overlap(trigger, due, now=now, chance=chance)
            case NoRoom(queue=queue):
                reason = f"queue {queue!r} is full, or its intake is paused"
                seconds = firing.NO_ROOM_SECONDS
                return firing.put_off(trigger, seconds, reason, now=now)
            case SerialisationError() | InvalidInput() if change.submissions:
                return firing.retry_or_suspend(trigger, summary(outcome), now=now)
        _log_refusal(change, outcome)
        return None

    # -- the store

    async def _write(
        self, changes: Sequence[TriggerChange], give_up_at: float
    ) -> Sequence[Answer | None]:
        """Repeat a write through an outage; None: nobody knows, and the lease will lapse."""
        tries = 0
        while True:
            try:
                return await self._store.triggers.apply(changes, depth_limit=self._queue_limit)
            except UNWRITABLE as error:
                if len(changes) == 1:
                    return [error]
                # A batch may fail for one of its elements: only alone it is known for which.
                alone = [await self._write([change], give_up_at) for change in changes]
                return [answer for answers in alone for answer in answers]
            except PartlyUnavailable as error:
                self._outages.note(error)
                give_up_at = min(give_up_at, self._clock.steady() + PART_SECONDS)
                return await self._write_rest(changes, error.answers, give_up_at)
            except StoreError as error:
                self._outages.note(error)
            tries += 1
            await back_off(self._clock, self._chance, tries)
            if self._clock.steady() >= give_up_at:
                return [None] * len(changes)

    async def _write_rest(
        self, changes: Sequence[TriggerChange], answers: Sequence[Answer], give_up_at: float
    ) -> Sequence[Answer | None]:
        """Write again what a part of the store has not answered for, apart from the others."""
        missing = [n for n, answer in enumerate(answers) if isinstance(answer, StoreError)]
        await back_off(self._clock, self._chance, 1)
        again = await self._write([changes[n] for n in missing], give_up_at)
        merged: dict[int, Answer | None] = dict(enumerate(answers))
        merged |= dict(zip(missing, again, strict=True))
        return list(merged.values())


def _is_ours(trigger: Trigger, ours: Iterable[str]) -> bool:
    return not trigger.declared or trigger.id in ours


def _wait_seconds(next_seconds: float | None) -> float:
    if next_seconds is None:
        return IDLE_SECONDS
    return min(IDLE_SECONDS, max(LEAST_SECONDS, next_seconds))


def _log_refusal(change: TriggerChange, outcome: Answer | None) -> None:
    if isinstance(outcome, HoldfastError):
        log.error("trigger %s cannot be written: %s", change.after.id, outcome)
    elif isinstance(outcome, Changed) and change.after.status is TriggerStatus.SUSPENDED:
        log.error("trigger %s is suspended: %s", change.after.id, change.after.reason)
    elif isinstance(outcome, Changed) and change.after.status is TriggerStatus.CANCELLED:
        log.warning("trigger %s is %s: cancelled", change.after.id, change.after.reason)
