"""The claimer decides what to ask the store for and when, and starts what it is handed.

A worker asks for work as far as it has slots, and for deliveries, which have room of their own: a
receiver that hangs takes no slot from the work, and long work keeps no delivery waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.clock import new_id
from holdfast.domain import notification
from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.domain.task import decide
from holdfast.domain.task.crashes import is_suspect
from holdfast.ports import Claimed, Clock, Topic
from holdfast.runtime.deadlines import back_off, sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker.running_tasks import RunningStages, RunningTask, RunningTasks

CLAIM_LIMIT = 64  # a larger batch is hardly quicker
DELIVERIES = 32  # at a time; one claim may go beyond it
ASIDE_SECONDS = 1.0  # between two claims for deliveries alone
IDLE_SECONDS = 5.0  # until the next claim without a signal: only a lost wake-up needs it
UNKNOWN_SECONDS = 0.5  # after a claim that gave only tasks of unknown types

Execute = Callable[[Claimed, RunningTask], Awaitable[None]]


class Claimer:
    """One loop claims for all slots of a worker, until the worker drains."""

    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        running: RunningTasks,
        stages: RunningStages,
        drain_asked: asyncio.Event,
        execute: Execute,
        execute_suspect: Execute,
    ) -> None:
        options = env.options
        self._worker, self._store, self._registry = env.worker, env.store, env.registry
        self._clock, self._chance, self._outages = env.clock, env.chance, env.outages
        self._lease_seconds = options.lease_seconds
        self._resend_seconds = options.lease_seconds / 2  # then a lease would be too short to use
        self._crash_limit = options.rules.crash_limit
        self._running, self._stages = running, stages
        self._execute, self._execute_suspect = execute, execute_suspect
        self._lanes = Lanes(options.queues, options.slots, env.clock)
        self._slot_freed, self._drain_asked = asyncio.Event(), drain_asked
        self._is_idle = False  # it waits for the bell
        self._is_full = False  # it waits for a slot
        self.task: asyncio.Task[None] | None = None  # in which `run` is kept up

    @property
    def is_cancelled(self) -> bool:
        """Return whether the loop ends: then all of its tasks are cancelled, not only a run."""
        task = self.task
        return task is not None and (task.done() or task.cancelling() > 0)

    def stop(self) -> None:
        self._drain_asked.set()
        self._slot_freed.set()
        if self._is_idle:
            self.cancel()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Claim until the worker drains; a claim that was sent is repeated until it is answered."""
        request = new_id(self._clock, self._chance)
        asked_at: float | None = None  # when this request was first sent: its leases run from then
        while asked_at is not None or not self._drain_asked.is_set():
            if asked_at is not None and self._clock.steady() - asked_at > self._resend_seconds:
                request, asked_at = new_id(self._clock, self._chance), None
                continue
            wanted = self._lanes.next_request()
            if self._stages.suspect is not None and asked_at is None:
                await self._stages.wait(self._clock)
                continue
            if wanted is None:
                await self._until_freed()
                continue
            ticket = self._store.ticket(Topic.READY)
            asked_at = self._clock.steady() if asked_at is None else asked_at
            try:
                claimed = await self._store.tasks.claim(
                    self._worker,
                    request=request,
                    queues=wanted.queues,
                    limit=wanted.limit,
                    lease_seconds=self._lease_seconds,
                )
            except PartlyUnavailable as error:
                self._outages.note(error)
                claimed = error.answers
            except StoreError as error:
                self._outages.note(error)
                await back_off(self._clock, self._chance, 1)
                continue
            self._start_all(claimed, asked_at)
            self._lanes.note_answer(wanted, len(claimed))
            request, asked_at = new_id(self._clock, self._chance), None
            if not claimed:
                if self._drain_asked.is_set() or not wanted.for_work:
                    continue
                seconds = IDLE_SECONDS if wanted.for_all else ASIDE_SECONDS
                await self._until_ready(ticket, seconds)
            elif not self._knows_any(claimed):
                await sleep(self._clock, UNKNOWN_SECONDS)

    def _start_all(self, claimed: Sequence[Claimed], asked_at: float) -> None:
        safe_until = self._running.safe_until(asked_at)
        is_late = self._clock.steady() >= safe_until  # there is nothing to renew: given back
        for handed_out in claimed:
            task, lease = handed_out.task, decide.lease_of(handed_out.task)
            running = RunningTask(
                task.id,
                lease.id,
                safe_until=safe_until,
                version=task.version,
                is_renewed=not is_late,
            )
            self.start(handed_out, running)

    def start(self, claimed: Claimed, running: RunningTask) -> asyncio.Task[None]:
        """Run a claimed task in a slot; one that may have crashed its workers runs apart."""
        task = claimed.task
        self._lanes.begin(task.queue)
        suspected = task.crashes and is_suspect(task, self._crash_limit)
        execute = self._execute_suspect if suspected else self._execute
        return self._running.start(claimed, running, execute, self._free)

    def _free(self, queue: str) -> None:
        self._lanes.end(queue)
        if self._is_full:
            self._slot_freed.set()

    def _knows_any(self, claimed: Sequence[Claimed]) -> bool:
        types = Counter([handed_out.task.type for handed_out in claimed])
        known = sum([types[name] for name in types if self._registry.find(name) is not None])
        self._lanes.note_known(known, len(claimed))
        return known > 0

    async def _until_freed(self) -> None:
        """Wait for a free slot, or until it is time to claim deliveries again."""
        self._slot_freed.clear()
        timer, self._is_full = None, True
        if self._lanes.has_room_aside:
            timer = self._clock.call_later(ASIDE_SECONDS, self._slot_freed.set)
        await self._slot_freed.wait()
        self._is_full = False
        if timer is not None:
            timer.cancel()

    async def _until_ready(self, ticket: int, seconds: float) -> None:
        self._is_idle = True
        try:
            await self._store.wait(Topic.READY, ticket, timeout=seconds)
        except asyncio.CancelledError:
            if not self._drain_asked.is_set():
                raise
        finally:
            self._is_idle = False


class SlotRequest(NamedTuple):
    queues: tuple[str, ...]
    limit: int
    for_work: bool  # False: deliveries alone
    for_all: bool  # an empty answer means that no queue has anything


class Lanes:
    def __init__(self, queues: tuple[str, ...], slots: int, clock: Clock) -> None:
        self._work = tuple(queue for queue in queues if queue != notification.QUEUE)
        self._delivers = notification.QUEUE in queues
        self._queues = self._work
        self._slots, self._clock = slots, clock
        self._working = self._delivering = 0
        # Claims of half the slots: while one half runs and commits, the next is on its way.
        self._portion = self._appetite = min(CLAIM_LIMIT, (slots + 1) // 2)
        self._unseen_since: float | None = None  # since when no claim has got to the deliveries
        self._was_aside = False  # the last claim was for deliveries alone
        self._more_aside = False  # the last such claim was filled

    def begin(self, queue: str) -> None:
        if queue == notification.QUEUE:
            self._delivering += 1
        else:
            self._working += 1

    def end(self, queue: str) -> None:
        if queue == notification.QUEUE:
            self._delivering -= 1
        else:
            self._working -= 1

    @property
    def has_room_aside(self) -> bool:
        return self._delivers and self._delivering < DELIVERIES

    def next_request(self) -> SlotRequest | None:
        """Return what to claim next; None: there is no room for anything that it is time for."""
        free, aside = self._slots - self._working, self.has_room_aside
        if aside and (self._unseen_for() >= ASIDE_SECONDS or self._is_in_turn(free)):
            limit = min(DELIVERIES - self._delivering, CLAIM_LIMIT)
            return SlotRequest((notification.QUEUE,), limit, for_work=False, for_all=False)
        if free == 0:
            return None
        queues = (*self._queues, notification.QUEUE) if aside else self._queues
        limit = min(free, self._appetite)
        return SlotRequest(queues, limit, for_work=True, for_all=aside or not self._delivers)

    def note_answer(self, sent: SlotRequest, claimed: int) -> None:
        """Note how much a claim gave; one that was filled has not got to the deliveries behind."""
        self._was_aside = not sent.for_work
        if self._was_aside or claimed < sent.limit:
            self._more_aside = self._was_aside and claimed >= sent.limit
        if sent.for_work and claimed < sent.limit:
            self._unseen_since = None
        elif not sent.for_work or self._unseen_since is None:
            self._unseen_since = self._clock.steady()

    def _is_in_turn(self, free: int) -> bool:
        """Return whether it is the turn of deliveries, which alternate with work while many wait:
        those that are put off at once would keep others waiting behind them."""
        return self._more_aside and (free == 0 or not self._was_aside)

    def _unseen_for(self) -> float:
        return 0.0 if self._unseen_since is None else self._clock.steady() - self._unseen_since

    def note_known(self, known: int, claimed: int) -> None:
        """Claim little among unknown types: this worker would take others' work away."""
        self._appetite = self._portion if known == claimed else max(1, 2 * known)
        # What nobody here knows in the first queue must not hide what waits in the next.
        first, *others = self._queues
        self._queues = self._work if known else (*others, first)
