"""A round of plans: several at once over the same tenants, in waves; some have to roll back."""

from __future__ import annotations

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
from verify.chaos.ledger import Ledger
from verify.chaos.records import all_plans
from verify.chaos.roles import Cast, Orders, opener
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import QUICKLY, Fate, FatedWork, take_effect

LEAST_PLANS = 8
SIZE = (8, 14)  # tasks in a plan
SHARED_TENANTS = 24
WAVES = (("1", "25%", "100%"), ("50%", "100%"), ("100%",))
SOAK_SECONDS = (0.1, 0.6)
MOST_AT_ONCE = 4
DOOMED_OF = 4  # one plan in four halts and rolls back
EFFECT_SECONDS = (0.01, 0.12)
FLAKY_SHARE = 0.15
BURST = 1
SENT_AGAIN = 2
AHEAD_SHARE = 0.4
PAUSE_SHARE = 0.15  # of the operator's polls

HALTED = frozenset({PlanStatus.HALTED, PlanStatus.FAILED, PlanStatus.PARTIAL_FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A plan to make, and how it has to end."""

    name: str
    works: Sequence[tuple[str, FatedWork]]  # each with its tenant
    terms: PlanTerms
    ends: PlanStatus


def rollouts(plan: RoundPlan) -> list[Rollout]:
    """Return the plans to make; every process of a round gets the same ones."""
    return [_rollout(plan, number) for number in range(plan.tasks)]


def _rollout(plan: RoundPlan, number: int) -> Rollout:
    chance = random.Random(f"{plan.seed} plan {number}")
    name, is_doomed = f"plan-{number:03d}", number % DOOMED_OF == DOOMED_OF - 1
    size = chance.randint(*SIZE)
    # A plan that rolls back has tenants of its own: newer work of other plans would forbid it.
    pool = [f"{name}-{n}" for n in range(size)] if is_doomed else _shared_tenants()
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


def _shared_tenants() -> list[str]:
    return [f"t-{number}" for number in range(SHARED_TENANTS)]


@dataclass(frozen=True, slots=True)
class PlanWork:
    app: Holdfast
    upgrade: Workflow[FatedWork, Any]

    async def make(self, rollout: Rollout) -> str:
        tasks = [self.upgrade.on(work, tenant=tenant) for tenant, work in rollout.works]
        return (await self.app.plan(rollout.name, tasks, **rollout.terms)).id


def declare(plan: RoundPlan, ledger: Ledger, store: Store) -> PlanWork:
    app = Holdfast(store, lease=plan.lease_seconds, drain=5.0)
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
        await take_effect(ledger, ctx, EFFECT_SECONDS)
        return value

    return PlanWork(app, upgrade)


def new_orders(plan: RoundPlan, declared: PlanWork) -> Orders[Rollout]:
    return Orders(
        todo=[(rollout.name, rollout) for rollout in rollouts(plan)],
        send=declared.make,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )


class PlanOperator:
    def __init__(self, plan: RoundPlan, declared: PlanWork, chance: random.Random) -> None:
        self._app, self._plan, self._chance = declared.app, plan, chance
        self._control = declared.app.plan.control.acting_as("operator", "chaos")

    async def poll(self) -> bool:
        records = await all_plans(self._app.store)
        for record in records:
            await self._set_going(record)
        running = [record for record in records if record.status is PlanStatus.RUNNING]
        if running and not self._plan.calm.is_set() and self._chance.random() < PAUSE_SHARE:
            await self._pause(self._chance.choice(running))
        return self._plan.submitted.is_set() and all(record.settled for record in records)

    async def _set_going(self, record: PlanRecord) -> None:
        """Continue a plan that is paused, or that a doomed or too often killed task has halted."""
        if not record.is_stopped or record.settled:
            return
        try:
            if record.status is PlanStatus.PAUSED:
                await self._control.resume(record.id, reason="chaos")
            elif record.status in HALTED:
                await self._control.retry(record.id, reason="innocent")
            else:
                await self._control.rollback(record.id, force=True, reason="once more")
        except Refused:
            pass  # the plan has moved meanwhile; the next poll sees it again

    async def _pause(self, record: PlanRecord) -> None:
        with suppress(Refused):  # the plan has ended meanwhile
            await self._control.pause(record.id, reason="chaos")


CAST = Cast(open=opener(declare), new_orders=new_orders, new_operator=PlanOperator)
