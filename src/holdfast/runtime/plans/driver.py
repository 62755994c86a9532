"""One plan in the hands of the instance that holds its lease.

A step looks at the tasks, writes down what they have become and who gets a slot, and then asks of
the tasks what the plan wants of them. Slots are written before a task is let go. Whatever a step
does not get to, or dies over, the next one finds again in the store.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from itertools import chain, islice

from holdfast.clock import new_id
from holdfast.domain.errors import StoreError
from holdfast.domain.plan import members as mem
from holdfast.domain.plan import rollout
from holdfast.domain.plan.members import Look
from holdfast.domain.plan.plan import (
    Conflict,
    Member,
    MemberState,
    Moves,
    Plan,
    PlanNext,
    PlanStale,
    PlanStatus,
)
from holdfast.domain.plan.rollout import Seen
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.ports import Clock, Store, Topic
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.plans.snapshot import PlanSnapshot
from holdfast.runtime.plans.task_gateway import PAGE, TaskGateway
from holdfast.runtime.store_outages import StoreOutages

log = logging.getLogger("holdfast.plans")

STEP_SECONDS = 0.02  # between two steps, so that one sees the end of many tasks
QUIET_STEPS = 4  # without anything new: up to so many doublings of that
LOOK_SECONDS = 1.0  # when nothing signals
AGAIN_SECONDS = 5.0  # between two looks at tasks that rest
BUSY_SECONDS = (1.0, 4.0)  # between two looks at a tenant that was busy; doubled
LOOKS = 500  # at tasks with slots, in one step
MARGIN = 0.5  # of a lease: who has not renewed it for so long sends nothing more

REFUSED = {
    Command.ROLLBACK: MemberState.ROLLBACK_FAILED,
    Command.RETRY: MemberState.FAILED,
    Command.RESUME: MemberState.PAUSED,
}


class PlanDriver:
    def __init__(
        self,
        plan: Plan,
        *,
        store: Store,
        clock: Clock,
        chance: random.Random,
        outages: StoreOutages,
        owner: str,
        lease_seconds: float,
    ) -> None:
        self._plan = plan
        self._lease_id = plan.lease.id if plan.lease else ""
        self._store, self._clock, self._chance = store, clock, chance
        self._outages = outages
        self._lease_seconds = lease_seconds
        self._reach = TaskGateway(store, clock, owner)
        self._book: PlanSnapshot | None = None
        self._renewed_at = clock.steady()
        self._looked_again_at = clock.steady()
        self._busy_until: dict[int, float] = {}
        self._busy_seconds: dict[int, float] = {}
        self._passed_over = False  # tenants that are busy: those behind them come next
        self._refused: dict[int, Member] = {}  # what a refused command has made of its task
        self._unlooked: list[int] = []  # at rest when the book was opened
        self._looks_on = False  # there are more of them
        self._turn = self._rest_turn = 0
        self._quiet_steps = 0
        self._still: set[int] = set()  # with a slot, and found at rest

    async def run(self) -> None:
        """Until the plan needs nobody, or belongs to somebody else."""
        while True:
            tickets = {topic: self._store.ticket(topic) for topic in (Topic.RESTED, Topic.DUE)}
            try:
                if not await self._keep():
                    return
                more = await self._step()
            except StoreError as error:
                self._outages.note(error)
                more = False
            if more is None:
                return
            # While others' tasks come to rest all the time, ours need not be read each time.
            self._quiet_steps = 0 if more else min(self._quiet_steps + 1, QUIET_STEPS)
            await sleep(self._clock, STEP_SECONDS * 2**self._quiet_steps)
            if not more:
                await self._until_something(tickets)

    async def give_back(self) -> None:
        """The process ends: another may go on at once."""
        await self._store.plans.renew(self._plan.id, self._lease_id, lease_seconds=0.0)

    # -- the lease

    async def _keep(self) -> bool:
        if self._clock.steady() - self._renewed_at < self._lease_seconds / 3:
            return True
        asked_at = self._clock.steady()
        kept = await self._store.plans.renew(
            self._plan.id, self._lease_id, lease_seconds=self._lease_seconds
        )
        if kept:
            self._renewed_at = asked_at
        return kept

    @property
    def _is_safe(self) -> bool:
        return self._clock.steady() - self._renewed_at < self._lease_seconds * MARGIN

    async def _until_something(self, tickets: Mapping[Topic, int]) -> None:
        waits = [
            asyncio.ensure_future(self._store.wait(topic, ticket, timeout=LOOK_SECONDS))
            for topic, ticket in tickets.items()
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # -- one step

    async def _step(self) -> bool | None:
        """Whether there may be more to do at once; None: the plan needs its driver no more."""
        book = self._book = self._book or await self._open()
        if book is None:
            return None
        looks = await self._look(book)
        found = await self._seen(book, looks)
        change = rollout.advance(
            book.plan,
            book.members,
            found,
            now=self._clock.now(),
            request=new_id(self._clock, self._chance),
        )
        if change is None:
            if (there := await self._changed(book)) is not book.plan:
                return self._again(there)
        else:
            asked_at = self._clock.steady()
            outcome = await self._store.plans.apply(change, lease_seconds=self._lease_seconds)
            if isinstance(outcome, PlanStale):
                return self._again(outcome.plan)
            self._renewed_at = asked_at
            book.write(change, outcome.plan)
            if change.next is not PlanNext.DRIVE:
                return None
        sent = await self._send(book, looks)
        return change is not None or sent > 0 or self._passed_over or self._looks_on

    async def _open(self) -> PlanSnapshot | None:
        [plan] = await self._store.plans.find([self._plan.id])
        tasks = await self._store.plans.tasks(self._plan.id)
        members = await self._store.plans.members(self._plan.id)
        if plan is None or tasks is None or not self._is_ours(plan):
            return None
        book = PlanSnapshot(plan, tasks, members)
        self._unlooked, self._looked_again_at = list(book.resting()), self._clock.steady()
        return book

    async def _changed(self, book: PlanSnapshot) -> Plan | None:
        """Without a write of its own, a driver would not hear of what a person asks for."""
        [plan] = await self._store.plans.find([book.plan.id])
        same = plan is not None and plan.version == book.plan.version and self._is_ours(plan)
        return book.plan if same else plan

    def _is_ours(self, plan: Plan) -> bool:
        return plan.lease is not None and plan.lease.id == self._lease_id

    def _again(self, plan: Plan | None) -> bool | None:
        """Somebody has written meanwhile: a person, or the one who has taken over."""
        self._book = None
        return True if plan is not None and self._is_ours(plan) else None

    # -- looking

    async def _look(self, book: PlanSnapshot) -> dict[int, Look]:
        indexes = dict.fromkeys((*self._slotted(book), *self._to_look_at(book)))
        ids = {book.tasks.ids[index]: index for index in indexes}
        looks = {ids[task]: look for task, look in (await self._reach.look([*ids])).items()}
        # What goes by hand while the plan is paused has no slot: it is looked at until it rests.
        is_paused = book.plan.status is PlanStatus.PAUSED
        found = {index for index, look in looks.items() if not (is_paused and look.moving)}
        left = [index for index in self._unlooked if index not in found]
        self._looks_on = 0 < len(left) < len(self._unlooked)
        self._unlooked = left
        return looks

    def _slotted(self, book: PlanSnapshot) -> Iterable[int]:
        """Of very many, some in turn."""
        slotted = sorted(book.slotted)
        if len(slotted) <= LOOKS:
            return slotted
        self._turn = (self._turn + LOOKS) % len(slotted)
        return islice(chain(slotted[self._turn :], slotted), LOOKS)

    def _to_look_at(self, book: PlanSnapshot) -> Iterable[int]:
        plan = book.plan
        if plan.cancel_requested:
            return islice(book.unended(), PAGE)
        if plan.status is PlanStatus.ROLLING_BACK:
            if mem.ready_to_undo(plan):
                most = min(plan.max_concurrency or PAGE, PAGE)
                return (*book.skipped(), *book.to_undo(most))
            return islice(book.waiting(plan.total), PAGE if mem.undoes_all(plan) else 0)
        if plan.rests:
            return self._resting(book)
        if plan.status is not PlanStatus.RUNNING:
            return ()
        return (*book.skipped(), *self._resting(book), *self._candidates(book))

    def _resting(self, book: PlanSnapshot) -> Iterable[int]:
        """Each once before the plan is put down, and then some in turn."""
        page = self._unlooked[:PAGE]
        self._unlooked = self._unlooked[PAGE:] + page
        now = self._clock.steady()
        if now - self._looked_again_at < AGAIN_SECONDS:
            return page
        self._looked_again_at = now
        resting = list(book.resting())
        self._rest_turn = (self._rest_turn + PAGE) % len(resting) if len(resting) > PAGE else 0
        in_turn = islice(chain(resting[self._rest_turn :], resting), min(PAGE, len(resting)))
        return chain(page, in_turn)

    def _candidates(self, book: PlanSnapshot) -> Iterable[int]:
        """Those that may be let go now; a tenant that was busy is not asked for again at once."""
        now = self._clock.steady()
        self._busy_until = {i: at for i, at in self._busy_until.items() if at > now}
        waiting = book.to_run(book.plan.waves[book.plan.wave])
        free = (index for index in waiting if index not in self._busy_until)
        # Where many tenants are busy, those behind them must not wait for them.
        few = PAGE if self._busy_until else 2 * (book.plan.max_concurrency or PAGE)
        return islice(free, min(PAGE, few))

    # -- deciding

    async def _seen(self, book: PlanSnapshot, looks: Mapping[int, Look]) -> Seen:
        moves, self._refused = self._refused, {}
        self._passed_over = False
        tenants = book.tasks.tenants
        refused = [i for i, m in moves.items() if m.state is MemberState.ROLLBACK_FAILED]
        for index, look in looks.items():
            member = book.member(index)
            after = mem.seen(book.plan, index, member, look)
            if after != member and index not in moves:
                moves[index] = after
        # One that comes into question for being undone only now may be the newest: the next step.
        rolls_back = book.plan.status is PlanStatus.ROLLING_BACK
        comes_later = rolls_back and any(mem.to_undo(book.plan, i, m) for i, m in moves.items())
        room = 0 if comes_later else book.room_after(moves)
        others = {index: look for index, look in looks.items() if index not in moves}
        chosen = await self._chosen(book, others, room) if room > 0 else {}
        skipped = [i for i, m in chosen.items() if m.state is MemberState.SKIPPED]
        return Seen(
            moves=moves,
            chosen=chosen,
            moving=self._is_moving(book, looks) or bool(self._unlooked),
            skipped=tuple(tenants[i] or "" for i in skipped),
            refused=tuple(tenants[i] or "" for i in refused),
        )

    def _is_moving(self, book: PlanSnapshot, looks: Mapping[int, Look]) -> bool:
        """Of a task with a slot that was not looked at, nobody knows that it rests. One without
        may have been set going by hand."""
        slotted = book.slotted
        for index in slotted & looks.keys():
            look = looks[index]
            if look.moving or mem.is_due(book.member(index), look):
                self._still.discard(index)
            else:
                self._still.add(index)
        self._still &= slotted
        by_hand = any(look.moving for index, look in looks.items() if index not in slotted)
        return by_hand or not slotted <= self._still

    async def _chosen(self, book: PlanSnapshot, looks: Mapping[int, Look], room: int) -> Moves:
        """Who gets a slot, to be let go or to be undone."""
        plan = book.plan
        if plan.cancel_requested:
            return {}
        if plan.status is PlanStatus.ROLLING_BACK and mem.ready_to_undo(plan):
            found = (index for index in looks if mem.to_undo(plan, index, book.member(index)))
            return {i: mem.undoing(book.member(i), looks[i]) for i in islice(found, room)}
        if plan.status is PlanStatus.RUNNING:
            return await self._admitted(book, looks, room)
        return {}

    async def _admitted(self, book: PlanSnapshot, looks: Mapping[int, Look], room: int) -> Moves:
        ids, tenants = book.tasks.ids, book.tasks.tenants
        waiting = [
            index for index, look in looks.items() if mem.may_be_admitted(book.member(index), look)
        ]
        asked = {ids[i]: tenant for i in waiting if (tenant := tenants[i]) is not None}
        busy = await self._reach.busy(asked) if asked else {}
        moves: dict[int, Member] = {}
        for index in waiting:
            version = looks[index].version or 0
            if ids[index] not in busy:
                if room > 0:
                    moves[index] = Member(MemberState.ADMITTED, version)
                room -= 1
            elif book.plan.conflict is Conflict.SKIP and _plan_of(busy[ids[index]]) != book.plan.id:
                moves[index] = Member(MemberState.SKIPPED, version)
            else:
                self._put_off(index)
                self._passed_over = True
        return moves

    def _put_off(self, index: int) -> None:
        least, most = BUSY_SECONDS
        seconds = self._busy_seconds.get(index, least)
        self._busy_until[index] = self._clock.steady() + seconds
        self._busy_seconds[index] = min(most, 2 * seconds)

    # -- asking

    async def _send(self, book: PlanSnapshot, looks: Mapping[int, Look]) -> int:
        orders = [
            (look.task, command)
            for index, look in looks.items()
            if look.task is not None
            and (command := mem.wanted(book.plan, index, book.member(index), look.task))
        ]
        if not orders or not self._is_safe:
            return 0
        reached = await self._reach.send(book.plan, orders)
        asked = {task.id: command for task, command in orders}
        for index in looks:
            task_id = book.tasks.ids[index]
            if task_id in reached.busy:
                self._put_off(index)
            elif task_id in reached.moved_on:
                log.warning("plan %s: newer work has run over task %s", book.plan.id, task_id)
                self._refused[index] = Member(REFUSED[asked[task_id]], looks[index].version or 0)
        busy = [(task, Command.HOLD_BACK) for task, _ in orders if task.id in reached.busy]
        if busy:  # they lose their slots when the next step sees it
            await self._reach.send(book.plan, busy)
        return reached.sent


def _plan_of(task: Task | None) -> str | None:
    return None if task is None else task.plan
