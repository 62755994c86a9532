"""Actors of triggers: the code that declares some, and a person who makes and asks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import HoldfastError, StoreError, TriggerNotFound
from holdfast.domain.trigger.trigger import Misfire, Overlap, TriggerCommand
from holdfast.engine.declare import Submittable
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.runtime.deadlines import sleep
from verify.simulation.workload import Effect, WorkNumber

if TYPE_CHECKING:
    from verify.simulation.actors.actors import Actor
    from verify.simulation.world import SimulatedWorld

SAVE_TRIES = 4
COMMANDS = (
    TriggerCommand.FIRE,
    TriggerCommand.PAUSE,
    TriggerCommand.RESUME,
    TriggerCommand.RESUME,
    TriggerCommand.CANCEL,
)


def declare_triggers(
    types: Sequence[Submittable[WorkNumber, Effect]], world: SimulatedWorld
) -> None:
    """Declare the triggers of a worker's code: some have the code of yesterday, some the new
    one."""
    chance = world.chance
    is_new = world.is_calm or chance.random() < 0.6
    types[0].every(5 if is_new else 4, payload=WorkNumber(1), name="in-code.both", overlap="skip")
    name = "in-code.new" if is_new else "in-code.old"
    types[2].every(7, payload=WorkNumber(2), name=name, misfire=Misfire.SKIP, grace=2)


def terms(chance: random.Random, tenant: str | None) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "misfire": chance.choice(list(Misfire)),
        "overlap": chance.choice((Overlap.ALLOW, *Overlap)),
        "jitter": chance.choice((0, 0, 2)),
        "grace": chance.choice((0.5, 3, 60)),
        "catch_up_max": chance.choice((1, 3, 5)),
        "keep": chance.choice((5, 3600)),
    }


class TriggerHand:
    """A person who handles triggers by way of an actor's app."""

    def __init__(self, actor: Actor) -> None:
        self._actor, self._world = actor, actor.world
        self._app, self._chance = actor.app, actor.chance

    async def main(self) -> None:
        world, pace = self._world, self._world.profile.person_every_seconds
        async with self._app:
            while True:
                busy = world.to_schedule > 0
                await sleep(self._actor.clock, self._chance.expovariate(2 if busy else 1 / pace))
                try:
                    await (self._schedule() if busy else self._meddle())
                except StoreError:
                    continue
                except HoldfastError as refused:
                    world.count(f"refused {refused.code}")

    async def _schedule(self) -> None:
        self._world.to_schedule -= 1
        name = f"tr{self._world.next_number()}"
        self._world.trigger_names.append(name)
        await self._put(name, replaces=False)

    async def _put(self, name: str, *, replaces: bool) -> None:
        chance, schedule = self._chance, self._app.schedule
        send = self._actor.types[chance.choice(self._world.favoured)]
        order = WorkNumber(chance.randrange(1_000_000))
        named = terms(chance, chance.choice((None, "t0", "t1")))
        named |= {"name": name, "replace": replaces}
        kind, now = chance.random(), self._actor.clock.now()
        when, length = now + chance.uniform(-5, 30), chance.choice((2, 3, 5, 9.5))
        for _ in range(SAVE_TRIES):
            try:
                if kind < 0.25:
                    await schedule.at(when, send, order, **named)
                elif kind < 0.9:
                    await schedule.every(length, send, order, **named)
                else:
                    await schedule.cron("* * * * *", send, order, **named)
            except StoreError:
                await sleep(self._actor.clock, chance.random())
            else:
                return

    async def _meddle(self) -> None:
        names = (*self._world.trigger_names, "in-code.both", "in-code.new")
        name = self._chance.choice(names)
        if self._chance.random() < 0.1 and name in self._world.trigger_names:
            await self._put(name, replaces=True)
            return
        try:
            handle = await self._app.schedule.get(name)
        except TriggerNotFound:
            return
        if (await handle.info()).legal or self._chance.random() < 0.1:
            await self.ask(handle, self._chance.choice(COMMANDS))

    async def ask(self, handle: TriggerHandle[Any], command: TriggerCommand) -> None:
        match command:
            case TriggerCommand.FIRE:
                await handle.fire()
            case TriggerCommand.PAUSE:
                await handle.pause("wait a moment")
            case TriggerCommand.RESUME:
                await handle.resume()
            case _:
                await handle.cancel("not needed")
