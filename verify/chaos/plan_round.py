"""A round of plans: several at once over the same tenants, in waves, some of which must go back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast import Context, Holdfast, Permanent
from holdfast.domain.plan.plan import FailureCount, OnHalt, PlanStatus
from holdfast.domain.plan.plan import Plan as PlanRecord
from holdfast.engine.declare import Workflow
from holdfast.engine.plans.create import PlanTerms
from holdfast.errors import Refused
from holdfast.ports import Store
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.roles import Orders, look_until_settled, submit_each, work_on
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import QUICKLY, Fate, FatedWork
from verify.chaos.witness import witnessed

LEAST_PLANS = 8
SIZE = (8, 14)  # tasks in a plan
SHARED_TENANTS = 24
WAVES = (("1", "25%", "100%"), ("50%", "100%"), ("100%",))
SOAK_SECONDS = (0.1, 0.6)
MOST_AT_ONCE = 4
DOOMED_OF = 4  # one plan in four halts and goes back
EFFECT_SECONDS = (0.01, 0.12)
FLAKY_SHARE = 0.15
BURST = 1
SENT_AGAIN = 2
AHEAD_SHARE = 0.4
PAUSE_SHARE = 0.15  # of the operator's looks
PAGE = 200

HALTED = frozenset({PlanStatus.HALTED, PlanStatus.FAILED, PlanStatus.PARTIAL_FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A plan to make, and how it has to end."""

    name: str
    works: Sequence[tuple[str, FatedWork]]  # each with its tenant
    terms: PlanTerms
    ends: PlanStatus


def rollouts(plan: RoundPlan) -> list[Rollout]:
    """The same for each who asks."""
    return [_rollout(plan, number) for number in range(plan.tasks)]


def _rollout(plan: RoundPlan, number: int) -> Rollout:
    chance = random.Random(f"{plan.seed} plan {number}")
    name, is_doomed = f"plan-{number:03d}", number % DOOMED_OF == DOOMED_OF - 1
    size = chance.randint(*SIZE)
    # One that goes back has tenants of its own: newer work of others would forbid it.
    pool = [f"{name}-{n}" for n in range(size)] if is_doomed else _shared()
    tenants = chance.sample(pool, size)
    fates = [Fate.FLAKY if chance.random() < FLAKY_SHARE else Fate.FINE for _ in tenants]
    if is_doomed:
        fates[chance.randrange(size // 2, size)] = Fate.DOOMED
    terms = PlanTerms(
        max_concurrency=chance.randint(1, MOST_AT_ONCE),
        waves=chance.choice(WAVES),
        soak=chance.uniform(*SOAK_SECONDS),
        halt_on=FailureCount(0),
        on_halt=OnHalt.ROLLBACK_PLAN if is_doomed else OnHalt.PAUSE,
    )
    return Rollout(
        name=name,
        works=[
            (t, FatedWork(n, fate)) for n, (t, fate) in enumerate(zip(tenants, fates, strict=True))
        ],
        terms=terms,
        ends=PlanStatus.ROLLED_BACK if is_doomed else PlanStatus.COMPLETED,
    )


def _shared() -> list[str]:
    return [f"t-{number}" for number in range(SHARED_TENANTS)]


@dataclass(frozen=True, slots=True)
class PlanWork:
    app: Holdfast
    upgrade: Workflow[FatedWork, Any]

    async def make(self, one: Rollout) -> str:
        tasks = [self.upgrade.on(work, tenant=tenant) for tenant, work in one.works]
        return (await self.app.plan(one.name, tasks, **one.terms)).id


def declare(store: Store, ledger: Ledger, *, lease_seconds: float) -> PlanWork:
    app = Holdfast(store, lease=lease_seconds, drain=5.0)
    upgrade = app.workflow("chaos.rollout", payload=FatedWork, retry=QUICKLY)

    @upgrade.stage
    async def migrate(ctx: Context, work: FatedWork) -> int:
        if work.fate is Fate.FLAKY and ctx.attempt <= 2:
            raise ConnectionError("the database is away")
        return await effect(ctx, work.number)

    @migrate.undo
    async def migrate_back(ctx: Context) -> None:
        await effect(ctx, 0)

    @upgrade.stage
    async def switch(ctx: Context, work: FatedWork) -> int:
        if work.fate is Fate.DOOMED:
            raise Permanent("this can only be rolled back")
        return await effect(ctx, work.number)

    @switch.undo
    async def switch_back(ctx: Context) -> None:
        await effect(ctx, 0)

    async def effect(ctx: Context, value: int) -> int:
        ledger.note(LineKind.BEGIN, ctx)
        try:
            await asyncio.sleep(random.uniform(*EFFECT_SECONDS))
        except asyncio.CancelledError:
            ledger.note(LineKind.STOPPED, ctx)
            raise
        ledger.note(LineKind.END, ctx)
        return value

    return PlanWork(app, upgrade)


async def opened(plan: RoundPlan, name: str) -> tuple[PlanWork, Ledger]:
    store, book = await witnessed(plan, name)
    return declare(store, book, lease_seconds=plan.lease_seconds), book


async def work(plan: RoundPlan, name: str) -> None:
    declared, _ = await opened(plan, name)
    await work_on(declared.app, plan, name)


async def submit(plan: RoundPlan, name: str) -> None:
    declared, book = await opened(plan, name)
    orders = Orders(
        todo=[(one.name, one) for one in rollouts(plan)],
        send=declared.make,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )
    async with declared.app as app:
        await submit_each(plan, book, orders)
        await app.store.close()


async def operate(plan: RoundPlan, name: str) -> None:
    """Set going what has halted, pause what runs, and tell when all has ended."""
    declared, _ = await opened(plan, name)
    async with declared.app as app:
        operator = PlanOperator(app, plan, random.Random(f"{plan.seed} {name}"))
        await look_until_settled(plan, operator.look)
        await app.store.close()


class PlanOperator:
    def __init__(self, app: Holdfast, plan: RoundPlan, chance: random.Random) -> None:
        self._app, self._plan, self._chance = app, plan, chance
        self._control = app.plan.control.acting_as("operator", "chaos")

    async def look(self) -> bool:
        there = await all_plans(self._app.store)
        for one in there:
            await self._set_going(one)
        running = [one for one in there if one.status is PlanStatus.RUNNING]
        if running and not self._plan.calm.is_set() and self._chance.random() < PAUSE_SHARE:
            await self._pause(self._chance.choice(running))
        return self._plan.submitted.is_set() and all(one.settled for one in there)

    async def _set_going(self, one: PlanRecord) -> None:
        """A task whose workers were killed too often has halted it, or it met its doom."""
        if not one.rests or one.settled:
            return
        try:
            if one.status is PlanStatus.PAUSED:
                await self._control.resume(one.id, reason="chaos")
            elif one.status in HALTED:
                await self._control.retry(one.id, reason="innocent")
            else:
                await self._control.rollback(one.id, force=True, reason="once more")
        except Refused:
            pass  # it has moved meanwhile: seen again at the next look, if need be

    async def _pause(self, one: PlanRecord) -> None:
        with suppress(Refused):  # it has come to its end meanwhile
            await self._control.pause(one.id, reason="a look")


async def all_plans(store: Store) -> list[PlanRecord]:
    found: list[PlanRecord] = []
    cursor: str | None = None
    while True:
        page = await store.plans.find(limit=PAGE, cursor=cursor)
        found += page.plans
        cursor = page.cursor
        if cursor is None:
            return found
