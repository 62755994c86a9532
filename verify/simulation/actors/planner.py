"""A person who makes plans and asks things of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.domain.errors import HoldfastError, StoreError
from holdfast.domain.plan.plan import (
    ASKED,
    FailureCount,
    FailureRate,
    OnHalt,
    Plan,
    PlanCommand,
    PlanStatus,
    TenantConflict,
)
from holdfast.engine.plans.create import PlanTerms
from holdfast.engine.plans.handle import PlanHandle
from holdfast.runtime.deadlines import sleep
from verify.simulation.workload import SHAPES, WorkNumber

if TYPE_CHECKING:
    from verify.simulation.actors.actors import Actor
    from verify.simulation.world import SimulatedWorld

ALL_COMMANDS = sorted(ASKED)
RULES = (None, FailureRate(0.0), FailureRate(0.0), FailureRate(0.3), FailureCount(1))
WAVES = (("100%",), ("1", "100%"), ("1", "25%", "100%"), ("2", "50%", "100%"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A plan to be: whoever begins anew after a crash asks for the same."""

    id: str
    orders: tuple[tuple[int, int, str], ...]  # type, number, tenant
    terms: PlanTerms


def draft(world: SimulatedWorld, chance: random.Random, number: int) -> Draft:
    size = min(world.profile.tenants, chance.choice((1, 5, 8, 12, 20, 40)))
    tenants = chance.sample(range(world.profile.tenants), size)
    kinds = [n for n in world.favoured if not SHAPES[n].rare or chance.random() < 0.2]
    if chance.random() < 0.5:
        kinds = [chance.choice(kinds)]
    return Draft(
        id=f"plan-{number}",
        orders=tuple(
            (chance.choice(kinds), chance.randrange(1_000_000), f"t{tenant}") for tenant in tenants
        ),
        terms={
            "max_concurrency": chance.choice((None, 1, 2, 3, 5)),
            "waves": chance.choice(WAVES),
            "soak": chance.choice((0, 0, 2, 5)),
            # A plan of one task has failed when that has: it does not halt before.
            "halt_on": None if (rule := chance.choice(RULES)) and size == 1 else rule,
            "on_halt": chance.choice(tuple(OnHalt)),
            "conflict": chance.choice((TenantConflict.WAIT, *TenantConflict)),
        },
    )


class PlanHand:
    """A person who handles plans by way of an actor's app."""

    def __init__(self, actor: Actor) -> None:
        self._actor, self._world = actor, actor.world
        self._app, self._chance = actor.app, actor.chance

    async def main(self) -> None:
        world, pace = self._world, self._world.profile.person_every_seconds
        async with self._app:
            while True:
                busy = bool(world.drafts)
                await sleep(self._actor.clock, self._chance.expovariate(1 if busy else 1 / pace))
                try:
                    await (self._make(world.drafts[0]) if busy else self._meddle())
                except StoreError:
                    continue
                except HoldfastError as refused:
                    world.count(f"refused {refused.code}")

    async def _make(self, one: Draft) -> None:
        tasks = [
            self._actor.types[kind].on(WorkNumber(number), tenant=tenant)
            for kind, number, tenant in one.orders
        ]
        try:
            await self._app.plan(one.id, tasks, **one.terms)
        except StoreError:
            if self._chance.random() < 0.6:
                raise  # and once more, with the same
        except HoldfastError:
            self._done(one)
            raise
        self._done(one)

    def _done(self, one: Draft) -> None:
        if one in self._world.drafts:
            self._world.drafts.remove(one)

    async def _meddle(self) -> None:
        page = await self._app.store.plans.find(limit=10)
        if not page.plans:
            return
        plan = self._chance.choice(page.plans)
        commands = plan.legal if self._chance.random() < 0.9 else ALL_COMMANDS
        if PlanCommand.PAUSE in commands and self._chance.random() < 0.5:
            commands = [PlanCommand.PAUSE]
        elif PlanCommand.CANCEL in commands and self._chance.random() < 0.7:
            commands = [one for one in commands if one is not PlanCommand.CANCEL]
        if commands:
            await self.ask(self._app.plan.get(plan.id), self._chance.choice(commands))

    async def ask(self, handle: PlanHandle, command: PlanCommand) -> None:
        match command:
            case PlanCommand.PAUSE:
                await handle.pause("wait a moment")
            case PlanCommand.RESUME:
                await handle.resume()
            case PlanCommand.CANCEL:
                await handle.cancel("not needed")
            case PlanCommand.RETRY:
                await handle.retry()
            case _:
                wave = self._chance.choice((None, None, 1))
                await handle.rollback("undo it", wave=wave, force=self._chance.random() < 0.5)

    async def decide(self, plan: Plan, *, at_last: bool) -> None:
        """Decide on a plan that waits for a person, in a calm world."""
        commands = [*plan.legal]
        if plan.status is PlanStatus.CREATED or (at_last and PlanCommand.CANCEL in commands):
            commands = [PlanCommand.CANCEL]
        await self.ask(self._app.plan.get(plan.id), self._chance.choice(commands))
