"""The documents' numbers, where nobody gives others: 30 s, 100 at once (T3), 7 days (T6)."""

from typing import Any

from holdfast import Holdfast, TriggerStatus
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.worker_options import Rules, WorkerOptions
from tests.support.runtime.environment import environment
from tests.support.runtime.schedules import START, Process, Say, World


class Batches:
    """What each look of a process was handed; with ``dies`` it is killed with the first in hand."""

    def __init__(self, process: Process, *, dies: bool = False) -> None:
        self.sizes: list[int] = []
        self._process, self._dies, self._real = process, dies, process.call
        process.call = self._call  # type: ignore[method-assign]

    async def _call(self, verb: str, ask: Any) -> Any:
        answer = await self._real(verb, ask)
        if verb == "claim" and answer.triggers:
            self.sizes.append(len(answer.triggers))
            if self._dies:
                await self._process._die()
        return answer


async def due_at_once(world: World, app: Holdfast, say: Say, number: int) -> None:
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for n in range(number):
            await app.schedule.at(START + 60, say, "x", name=f"one-{n}")


async def test_a_scheduler_takes_a_hundred_at_once(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    await due_at_once(world, *apped, 250)
    batches = Batches(world.process(apped[0]))
    await world.clock.elapse("61s")
    assert batches.sizes == [100, 100, 50]


async def test_a_dead_schedulers_trigger_is_taken_over_after_thirty_seconds(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    await due_at_once(world, *apped, 1)
    batches = Batches(world.process(apped[0]), dies=True)
    await world.clock.elapse("60s")
    assert batches.sizes == [1]
    held = await world.trigger("one-0")
    assert held.status is TriggerStatus.PROCESSING
    world.process(apped[0])
    await world.clock.elapse("29s")
    assert await world.keys() == []
    await world.clock.elapse("5s")  # a lapse counts as a failed try: it is put off a little
    assert len(await world.keys()) == 1


async def test_a_trigger_is_kept_for_seven_days_after_its_end(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.at(START + 60, say, "x", name="once")
        await app.schedule.at(START + 365 * 86_400, say, "x", name="next-year")
    world.process(app)
    await world.clock.elapse("61s")
    world.close()
    rules = Rules(checkpoint_ttl_seconds=1)
    options = WorkerOptions(audit_seconds=1, reconcile_seconds=0, rules=rules)
    pruner = Pruner(environment(world.memory, world.clock, options=options))
    for by, left in (("167h", ["next-year", "once"]), ("2h", ["next-year"])):
        world.clock.advance(by)
        await pruner.tick()
        page = await world.memory.triggers.find_all()
        assert [trigger.id for trigger in page.triggers] == left
