"""A round of triggers: many that fire often, under every policy, by clocks that jump.

The workers of this round do not bring triggers back that wait for a time of a clock that was ahead
(`runtime/services/patrol.py`). Each process has a clock of its own here, up to 90 s off, which
never comes right, and the patrol takes a trigger for ahead from 5 s on: at each of its looks it
would set every trigger back to times that it has answered for. Such a time makes no second task,
as its key is known, but the record counts it again, as fired or as missed. The judge compares
these counts with the tasks and with the schedule, to the last fire time, and that is what finds a
time that was lost; beside the patrol it could only say that there are at least as many. So the
patrol has tests of its own with clocks that do come right
(`tests/runtime/services/test_patrol.py`, on each store), and the worlds of the simulation with
triggers run it under clocks that are set.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import floor
from typing import Any, Literal

from holdfast import Context, Holdfast
from holdfast.clock import SystemClock
from holdfast.domain.task.state import SETTLED
from holdfast.domain.trigger.firing import LOOK_MAX
from holdfast.domain.trigger.schedule import Cron, Every, Once, Schedule
from holdfast.domain.trigger.trigger import PENDING, UNFINISHED, Misfire, Overlap, Trigger
from holdfast.engine.declare import AsyncTask
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.errors import Refused
from holdfast.ports import Clock, Store
from holdfast.runtime.services.patrol import Patrol
from verify.chaos.clocks import JumpingClock
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.roles import Orders, look_until_settled, submit_each, work_on
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import QUICKLY
from verify.chaos.witness import witnessed


async def _leave_alone(_: Patrol) -> None:
    """Bring no trigger back."""


LEAST_TRIGGERS = 72
# More of those of which each fire time makes a task: there the judge can tell the most.
POLICIES = [*product(Misfire, Overlap), *[(Misfire.CATCH_UP, Overlap.ALLOW)] * 3]
RARE_OF = 9  # one in nine is a cron, one in nine fires once
ONCE_WITHIN_SECONDS = 60.0
GRACE_SECONDS = 5.0
TICK_SECONDS = (0.0, 0.02)
LONG_SECONDS = 1.0  # those of an overlap policy last so long at times
CRASH_LIMIT = 100  # many ticks die with one worker: a last chance one by one would take long
BURST = 6
SENT_AGAIN = 12
AHEAD_SHARE = 0.7
PAUSE_SHARE = 0.3  # of the operator's looks
FIRE_SHARE = 0.3
PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrigger:
    """A trigger to make."""

    name: str
    schedule: Schedule
    terms: TriggerTerms


def wanted(plan: RoundPlan) -> list[PlannedTrigger]:
    """The same for each who asks. Every pair of policies is there for each kind and interval."""
    start = floor(plan.began) + 1.0
    chance = random.Random(f"{plan.seed} triggers")
    made = []
    for number in range(plan.tasks):
        name = f"tick-{number:03d}"
        misfire, overlap = POLICIES[number // 2 % len(POLICIES)]
        schedule: Schedule = Every(seconds=1.0 + number % 2, start=start + number % 4)
        if number % RARE_OF == RARE_OF - 1:
            schedule = Cron(expression="* * * * *")
        elif number % RARE_OF == RARE_OF - 2:
            schedule = Once(at=start + chance.randrange(int(ONCE_WITHIN_SECONDS)))
            misfire = Misfire.ONCE if misfire is Misfire.SKIP else misfire  # it may be past
        terms = TriggerTerms(
            name=name,
            misfire=misfire,
            overlap=overlap,
            grace=GRACE_SECONDS,
            catch_up_max=LOOK_MAX,
            tenant=name if chance.random() < 0.2 else None,
            jitter=0.5 if chance.random() < 0.2 else 0.0,
        )
        made.append(PlannedTrigger(name=name, schedule=schedule, terms=terms))
    return made


@dataclass(frozen=True, slots=True)
class TriggerWork:
    app: Holdfast
    tick: AsyncTask[bool, None]

    async def make(self, one: PlannedTrigger) -> str:
        can_last = one.terms.get("overlap") is not Overlap.ALLOW
        handle = await self._put(one.schedule, can_last, one.terms)
        return handle.id

    def _put(
        self, schedule: Schedule, can_last: bool, terms: TriggerTerms
    ) -> Awaitable[TriggerHandle[None]]:
        put = self.app.schedule
        match schedule:
            case Once(at=at):
                return put.at(at, self.tick, can_last, **terms)
            case Every(seconds=seconds, start=start):
                begin = None if terms.get("misfire") is Misfire.SKIP else start  # it may be past
                return put.every(seconds, self.tick, can_last, start=begin, **terms)
            case Cron(expression=expression):
                return put.cron(expression, self.tick, can_last, **terms)


async def opened(plan: RoundPlan, name: str) -> tuple[TriggerWork, Ledger]:
    clock = JumpingClock(name, began=plan.began, seed=plan.seed)
    store, book = await witnessed(plan, name, clock)
    clock.told = lambda offset: book.write(LineKind.JUMP, asked=offset)
    return declare(store, clock, lease_seconds=plan.lease_seconds), book


def declare(store: Store, clock: Clock, *, lease_seconds: float) -> TriggerWork:
    app = Holdfast(store, clock=clock, lease=lease_seconds, crash_limit=CRASH_LIMIT, drain=5.0)

    @app.task("chaos.tick", retry=QUICKLY)
    async def tick(ctx: Context, can_last: bool) -> None:
        del ctx
        least, most = TICK_SECONDS
        lasts = LONG_SECONDS if can_last and random.random() < 0.3 else most
        await asyncio.sleep(random.uniform(least, lasts))

    return TriggerWork(app, tick)


async def work(plan: RoundPlan, name: str) -> None:
    setattr(Patrol, "step", _leave_alone)  # noqa: B010  (in this process of its own)
    declared, _ = await opened(plan, name)
    await work_on(declared.app, plan, name)


async def submit(plan: RoundPlan, name: str) -> None:
    """Make the triggers by the true time: a first fire time minutes ahead would be a round of
    nothing."""
    clock = SystemClock()
    store, book = await witnessed(plan, name, clock)
    declared = declare(store, clock, lease_seconds=plan.lease_seconds)
    orders = Orders(
        todo=[(one.name, one) for one in wanted(plan)],
        send=declared.make,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )
    async with declared.app as app:
        await submit_each(plan, book, orders)
        await app.store.close()


async def operate(plan: RoundPlan, name: str) -> None:
    """Pause, resume and fire by hand; in the calm, tell when all has caught up and ended."""
    declared, _ = await opened(plan, name)
    async with declared.app as app:
        operator = TriggerOperator(app, plan, random.Random(f"{plan.seed} {name}"))
        await look_until_settled(plan, operator.look)
        await app.store.close()


class TriggerOperator:
    def __init__(self, app: Holdfast, plan: RoundPlan, chance: random.Random) -> None:
        self._app, self._plan, self._chance = app, plan, chance

    async def look(self) -> bool:
        plan = self._plan
        there = await all_triggers(self._app.store)
        if plan.caught_up.is_set():
            return await self._came_to_rest(there)
        await self._resume(there)
        if not plan.calm.is_set():
            await self._meddle([one for one in there if one.status in PENDING])
        elif plan.submitted.is_set() and all(_is_caught_up(one, plan) for one in there):
            plan.caught_up.set()
        return False

    async def _resume(self, there: Sequence[Trigger]) -> None:
        for trigger in there:
            if trigger.status in UNFINISHED - PENDING:
                await self._ask(trigger, "resume")

    async def _meddle(self, waiting: Sequence[Trigger]) -> None:
        if waiting and self._chance.random() < PAUSE_SHARE:
            await self._ask(self._chance.choice(waiting), "pause")
        often = [one for one in waiting if isinstance(one.schedule, Every)]
        if often and self._chance.random() < FIRE_SHARE:
            await self._ask(self._chance.choice(often), "fire")

    async def _came_to_rest(self, there: Sequence[Trigger]) -> bool:
        """Paused until all tasks have ended; then set going, for the doctor to see them at work.
        One that so many deaths have suspended is at rest, too, and cannot be paused."""
        going = [one for one in there if one.status in PENDING]
        for trigger in going:
            await self._ask(trigger, "pause")
        by_status = (await self._app.store.views.stats()).by_status
        if going or any(n for status, n in by_status.items() if status not in SETTLED):
            return False
        await self._resume(there)
        return True

    async def _ask(self, trigger: Trigger, command: Literal["pause", "resume", "fire"]) -> None:
        handle: TriggerHandle[Any] = await self._app.schedule.get(trigger.id)
        with suppress(Refused):  # it has moved meanwhile: seen again at the next look, if need be
            await getattr(handle, command)("chaos")


def _is_caught_up(trigger: Trigger, plan: RoundPlan) -> bool:
    """Return whether the trigger is caught up; nobody can tell while it waits for its last task."""
    if not isinstance(trigger.schedule, Every) or trigger.overlap is not Overlap.ALLOW:
        return True
    return trigger.fire_time is not None and trigger.fire_time > plan.calm.set_at


async def all_triggers(store: Store) -> list[Trigger]:
    found: list[Trigger] = []
    cursor: str | None = None
    while True:
        page = await store.triggers.find_all(limit=PAGE, cursor=cursor)
        found += page.triggers
        cursor = page.cursor
        if cursor is None:
            return found
