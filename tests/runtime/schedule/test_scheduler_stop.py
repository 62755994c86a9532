"""The end of a scheduler: what it has in hand is not left behind."""

import asyncio
from typing import Any

from holdfast import Holdfast, TriggerStatus
from holdfast.runtime.schedule.scheduler import STOP_SECONDS
from tests.support.runtime.schedules import Say, World, every_minute

S = TriggerStatus


class Gate:
    """Holds up the writes of a process until it is opened."""

    def __init__(self, triggers: Any) -> None:
        self._apply = triggers.apply
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        triggers.__dict__["apply"] = self.apply

    async def apply(self, *arguments: Any, **options: Any) -> Any:
        self.reached.set()
        await self.open.wait()
        return await self._apply(*arguments, **options)


async def test_a_scheduler_that_is_stopped_ends_what_it_has_in_hand(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app, start=False)
    gate = Gate(process.triggers)
    process.start()
    await world.clock.elapse("1m")
    assert gate.reached.is_set()
    stopping = asyncio.create_task(process.scheduler.stop())
    await world.clock.elapse("1s")
    assert not stopping.done()
    gate.open.set()
    await world.clock.elapse(0)
    assert stopping.done()
    process.calls.clear()
    await world.clock.elapse("10m")
    assert process.calls == [], "it looks no more"
    trigger = await world.trigger()
    assert (trigger.status, trigger.retry_count) == (S.PENDING, 0)
    assert await world.minutes() == [1.0]


async def test_a_scheduler_that_cannot_end_is_not_waited_for(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app, start=False)
    Gate(process.triggers)
    process.start()
    await world.clock.elapse("1m")
    stopping = asyncio.create_task(process.scheduler.stop())
    await world.clock.elapse(STOP_SECONDS)
    await stopping


async def test_a_drain_lets_the_scheduler_end_what_it_has_in_hand(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    gate = Gate(world.memory.triggers)
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        worker = app.worker(heartbeat_thread=False, queues=("elsewhere",))
        await worker.start()
        await world.clock.elapse("1m")
        assert gate.reached.is_set()
        draining = asyncio.create_task(worker.drain())
        await world.clock.elapse("1s")
        gate.open.set()
        await world.clock.elapse("5s")
        await draining
    trigger = await world.trigger()
    assert (trigger.status, trigger.owner) == (S.PENDING, None)
    assert await world.minutes() == [1.0]
