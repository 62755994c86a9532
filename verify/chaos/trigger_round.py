"""A round of triggers: many that fire often, under every policy, by clocks that jump.

The patrol (`runtime/schedule/patrol.py`) brings a trigger back that waits for a time which a clock
that was ahead has chosen. The workers of this round run without it. Each process has a clock of
its own here, which is up to 90 s off and never comes right, and the patrol acts from 5 s on: at
each step it would set every trigger back to times that the trigger has answered for. Such a time
makes no second task, because its key is known, but the record counts it again, as fired or as
missed. The judge compares these counts with the tasks and with the schedule, to the last fire
time, and so finds a time that was lost. With the patrol it could only say that there are at least
as many. So the patrol has tests of its own with clocks that do come right
(`tests/runtime/schedule/test_patrol.py`, on each store), and the simulated worlds with triggers
run it under clocks that are set.
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
from holdfast.domain.trigger.firing import FIRE_TIMES_MAX
from holdfast.domain.trigger.schedule import Cron, Every, Once, Schedule
from holdfast.domain.trigger.trigger import PENDING, UNFINISHED, Misfire, Overlap, Trigger
from holdfast.engine.declare import AsyncTask
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.errors import Refused
from holdfast.ports import Clock, Store
from holdfast.runtime.schedule.patrol import Patrol
from verify.chaos.clocks import JumpingClock
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.records import all_triggers
from verify.chaos.roles import Cast, Orders
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import QUICKLY
from verify.chaos.witness import open_witnessed

LEAST_TRIGGERS = 72
# The pair in which each fire time makes a task is there more often: it tells the judge the most.
POLICIES = [*product(Misfire, Overlap), *[(Misfire.CATCH_UP, Overlap.ALLOW)] * 3]
RARE_OF = 9  # one in nine is a cron, one in nine fires once
ONCE_WITHIN_SECONDS = 60.0
GRACE_SECONDS = 5.0
TICK_SECONDS = (0.0, 0.02)
LONG_SECONDS = 1.0  # the ticks of a trigger with an overlap policy last so long at times
CRASH_LIMIT = 100  # many ticks die with one worker: a last chance one by one would take long
BURST = 6
SENT_AGAIN = 12
AHEAD_SHARE = 0.7
PAUSE_SHARE = 0.3  # of the operator's polls
FIRE_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrigger:
    """A trigger to make."""

    name: str
    schedule: Schedule
    terms: TriggerTerms


def planned_triggers(plan: RoundPlan) -> list[PlannedTrigger]:
    """Return the triggers to make; every process of a round gets the same ones. Each kind and
    interval occurs with every pair of policies."""
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
            catch_up_max=FIRE_TIMES_MAX,
            tenant=name if chance.random() < 0.2 else None,
            jitter=0.5 if chance.random() < 0.2 else 0.0,
        )
        made.append(PlannedTrigger(name=name, schedule=schedule, terms=terms))
    return made


@dataclass(frozen=True, slots=True)
class TriggerWork:
    app: Holdfast
    tick: AsyncTask[bool, None]

    async def make(self, planned: PlannedTrigger) -> str:
        can_last = planned.terms.get("overlap") is not Overlap.ALLOW
        handle = await self._put(planned.schedule, can_last, planned.terms)
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


async def open_with_jumps(plan: RoundPlan, name: str) -> tuple[TriggerWork, Ledger]:
    clock = JumpingClock(name, began=plan.began, seed=plan.seed)
    store, ledger = await open_witnessed(plan, name, clock)
    clock.on_jump = lambda offset: ledger.write(LineKind.JUMP, asked=offset)
    return declare(store, clock, lease_seconds=plan.lease_seconds), ledger


async def open_on_time(plan: RoundPlan, name: str) -> tuple[TriggerWork, Ledger]:
    """Open the store with the true time, to make the triggers: in a round with a first fire time
    that is minutes ahead, nothing would fire."""
    clock = SystemClock()
    store, ledger = await open_witnessed(plan, name, clock)
    return declare(store, clock, lease_seconds=plan.lease_seconds), ledger


def declare(store: Store, clock: Clock, *, lease_seconds: float) -> TriggerWork:
    app = Holdfast(store, clock=clock, lease=lease_seconds, crash_limit=CRASH_LIMIT, drain=5.0)

    @app.task("chaos.tick", retry=QUICKLY)
    async def tick(ctx: Context, can_last: bool) -> None:
        del ctx
        least, most = TICK_SECONDS
        lasts = LONG_SECONDS if can_last and random.random() < 0.3 else most
        await asyncio.sleep(random.uniform(least, lasts))

    return TriggerWork(app, tick)


def stop_the_patrol() -> None:
    """Bring no trigger back in this process; see the top of this module."""

    async def leave_alone(_: Patrol) -> None: ...

    setattr(Patrol, "step", leave_alone)  # noqa: B010


def new_orders(plan: RoundPlan, declared: TriggerWork) -> Orders[PlannedTrigger]:
    return Orders(
        todo=[(planned.name, planned) for planned in planned_triggers(plan)],
        send=declared.make,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )


class TriggerOperator:
    """Pauses, resumes and fires by hand; in the calm, waits until all has caught up and ended."""

    def __init__(self, plan: RoundPlan, declared: TriggerWork, chance: random.Random) -> None:
        self._app, self._plan, self._chance = declared.app, plan, chance

    async def poll(self) -> bool:
        plan = self._plan
        triggers = await all_triggers(self._app.store)
        if plan.caught_up.is_set():
            return await self._all_is_settled(triggers)
        await self._resume(triggers)
        if not plan.calm.is_set():
            await self._meddle([trigger for trigger in triggers if trigger.status in PENDING])
        elif plan.submitted.is_set() and all(_is_caught_up(each, plan) for each in triggers):
            plan.caught_up.set()
        return False

    async def _resume(self, triggers: Sequence[Trigger]) -> None:
        for trigger in triggers:
            if trigger.status in UNFINISHED - PENDING:
                await self._ask(trigger, "resume")

    async def _meddle(self, waiting: Sequence[Trigger]) -> None:
        if waiting and self._chance.random() < PAUSE_SHARE:
            await self._ask(self._chance.choice(waiting), "pause")
        often = [trigger for trigger in waiting if isinstance(trigger.schedule, Every)]
        if often and self._chance.random() < FIRE_SHARE:
            await self._ask(self._chance.choice(often), "fire")

    async def _all_is_settled(self, triggers: Sequence[Trigger]) -> bool:
        """Pause the triggers until all tasks have ended; then resume them, so that the doctor sees
        them at work. A trigger that many deaths have suspended cannot be paused."""
        going = [trigger for trigger in triggers if trigger.status in PENDING]
        for trigger in going:
            await self._ask(trigger, "pause")
        by_status = (await self._app.store.views.stats()).by_status
        if going or any(n for status, n in by_status.items() if status not in SETTLED):
            return False
        await self._resume(triggers)
        return True

    async def _ask(self, trigger: Trigger, command: Literal["pause", "resume", "fire"]) -> None:
        handle: TriggerHandle[Any] = await self._app.schedule.get(trigger.id)
        with suppress(Refused):  # the trigger has moved meanwhile; the next poll sees it again
            await getattr(handle, command)("chaos")


def _is_caught_up(trigger: Trigger, plan: RoundPlan) -> bool:
    """Return whether the trigger is caught up; nobody can tell while it waits for its last task."""
    if not isinstance(trigger.schedule, Every) or trigger.overlap is not Overlap.ALLOW:
        return True
    return trigger.fire_time is not None and trigger.fire_time > plan.calm.set_at


CAST = Cast(
    open=open_with_jumps,
    open_to_submit=open_on_time,
    new_orders=new_orders,
    new_operator=TriggerOperator,
    prepare_worker=stop_the_patrol,
)
