"""Firing: each fire time makes one task, whoever dies, whatever the clocks do (T3, T5, I12)."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, TriggerStatus
from holdfast.domain.trigger.firing import RETRY_LIMIT
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import TriggerChange
from holdfast.errors import PartlyUnavailable, SerialisationError, StoreUnavailable
from holdfast.ports import Filter
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.runtime.schedule.scheduler import BATCH, IDLE_SECONDS
from tests.support.runtime.schedules import (
    START,
    Process,
    Say,
    World,
    an_app,
    every_minute,
    no_faults,
)

S = TriggerStatus


# -- one task for each fire time


async def test_three_schedulers_make_one_task_of_each_fire_time(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    for _ in range(3):
        world.process(app)
    await world.clock.elapse("10m")
    assert await world.minutes() == list(range(1, 11))
    trigger = await world.trigger()
    assert (trigger.fired, trigger.missed, trigger.retry_count) == (10, 0, 0)


async def test_a_task_carries_what_the_trigger_says(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say, tenant="t-1", queue="slow", user={"id": 7})
    world.process(app)
    await world.clock.elapse("1m")
    [task] = (await world.memory.views.find(Filter(), limit=9)).tasks
    assert (task.type, task.tenant, task.queue, task.user) == ("say", "t-1", "slow", {"id": 7})
    detail = await world.memory.views.detail(task.id)
    assert detail is not None
    assert detail.payload == b'"hello"'
    assert (await world.trigger()).last_task == task.id


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_a_scheduler_killed_at_any_step_loses_and_doubles_nothing(
    world: World, apped: tuple[Holdfast, Say], nth: int, after: bool
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    doomed = world.process(app, start=False)
    doomed.dies_at = (nth, after)
    doomed.start()
    await world.clock.elapse("10m")
    assert all(service.done() for service in doomed.services), "it is dead"
    world.process(app)
    world.process(app)
    await world.clock.elapse("2m")
    done = await world.minutes()
    assert len(done) == len(set(done)), "none twice"
    assert (await world.trigger()).fired == len(done)
    assert done[-1] == 12.0
    assert (await world.trigger()).missed + len(done) == 12, "none lost but by its policy"


@pytest.mark.parametrize("seed", range(20))
async def test_kills_lost_answers_and_clock_jumps_together(seed: int) -> None:
    world = World(seed)
    app, say = an_app(world)
    chance = random.Random(seed)
    await every_minute(world, app, say, misfire="catch-up", catch_up_max=1_000)

    def fault(verb: str) -> str | None:
        return chance.choice(("lost request", "lost reply")) if chance.random() < 0.2 else None

    def born() -> Process:
        process = world.process(app, start=False)
        process.faults = fault
        process.dies_at = (chance.randrange(3, 60), chance.random() < 0.5)
        process.start()
        return process

    crew = [born() for _ in range(3)]
    for _ in range(40):
        await world.clock.elapse(chance.uniform(1, 60))
        crew = [born() if one.services[0].done() else one for one in crew]
        if chance.random() < 0.2:
            world.clock.jump(chance.choice((-600, -7, 7, 600)))
    for one in crew:
        one.faults = no_faults
        one.dies_at = None
    await world.clock.elapse(max(720.0, START + 1_200 - world.clock.now()))
    trigger = await world.trigger()
    if trigger.status is S.SUSPENDED:  # five lapses in a row: a person looks, and it goes on
        with app.on(world.memory, clock=world.clock, chance=world.chance):
            await (await app.schedule.get("tick")).resume()
        await world.clock.elapse("12m")
        trigger = await world.trigger()
    world.close()
    done = await world.minutes()
    assert trigger.last_fire_time is not None
    last = round((trigger.last_fire_time - START) / 60)
    assert done == list(range(1, len(done) + 1)), "each once, in order"
    assert len(done) >= last
    assert world.clock.now() - trigger.last_fire_time <= 61
    assert trigger.fired >= last, "some came again with the clock, and made no second task"
    assert trigger.missed == 0


async def test_a_lapsed_lease_is_taken_over_and_counted(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    world.clock.advance("1m")
    await world.memory.triggers.claim("dead", lease_seconds=30)
    world.process(app)
    await world.clock.elapse("29s")
    assert await world.minutes() == []
    await world.clock.elapse("2s")
    assert await world.minutes() == [1.0]
    assert (await world.trigger()).retry_count == 0, "it came to an end"


async def test_a_trigger_that_kills_its_schedulers_is_suspended_not_lost(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    world.clock.advance("1m")
    for _ in range(RETRY_LIMIT + 1):
        await world.memory.triggers.claim("dead", lease_seconds=30)
        world.clock.advance("31s")
    world.process(app)
    await world.clock.elapse("1s")
    trigger = await world.trigger()
    assert (trigger.status, await world.minutes()) == (S.SUSPENDED, [])
    assert trigger.fire_time == START + 60, "the time that it owes is kept"
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await (await app.schedule.get("tick")).resume()
    await world.clock.elapse("1s")
    assert await world.minutes() == [4.0], "once, for all that were missed"


async def test_a_pause_under_the_holder_makes_its_write_void(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app, start=False)
    reached, go_on = asyncio.Event(), asyncio.Event()
    apply = world.memory.triggers.apply

    async def slow(*arguments: object, **options: object) -> object:
        if not go_on.is_set():
            reached.set()
            await go_on.wait()
        return await apply(*arguments, **options)  # type: ignore[arg-type]

    process.triggers.__dict__["apply"] = slow
    process.start()
    await world.clock.elapse("1m")
    assert reached.is_set()
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        handle = await app.schedule.get("tick")
        assert (await handle.info()).status is S.PROCESSING
        await handle.pause("lunch")
        go_on.set()
        await world.clock.elapse("5m")
        assert await world.minutes() == []
        assert (await handle.info()).status is S.PAUSED
        await handle.resume()
        await world.clock.elapse("1s")
    assert await world.minutes() == [6.0]


# -- waiting


async def test_an_idle_scheduler_asks_a_few_times_a_minute(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.at(START + 86_400, say, "later")
    process = world.process(app)
    await world.clock.elapse("1m")
    process.calls.clear()
    await world.clock.elapse("1h")
    assert set(process.calls) == {"claim", "find_all_pending"}
    assert len(process.calls) <= 2 * (60 / (IDLE_SECONDS / 60) + 1)


async def test_no_look_comes_before_the_next_due_time(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app)
    await world.clock.elapse("30s")
    process.calls.clear()
    await world.clock.elapse("29s")
    assert process.calls == []
    await world.clock.elapse("1s")
    looks = ["claim", "apply", "claim"]
    assert process.calls == ["find_all_pending", *looks]


async def test_an_earlier_trigger_wakes_the_sleeper(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.at(START + 86_400, say, "later")
        world.process(app)
        await world.clock.elapse("10s")
        await app.schedule.at(START + 11, say, "soon", name="soon")
        await world.clock.elapse("1s")
    assert await world.minutes("soon") == [pytest.approx(11 / 60)]


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0])
async def test_a_wall_clock_that_is_set_is_noticed_within_half_a_minute(
    world: World, apped: tuple[Holdfast, Say], jump: float
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.at(START + 5_400, say, "then", name="then")
    world.process(app)
    await world.clock.elapse("1m")
    world.clock.jump(jump)
    left = 5_400 - 60 - jump
    await world.clock.elapse(left - 1)
    assert await world.minutes("then") == []
    await world.clock.elapse(IDLE_SECONDS)
    assert await world.minutes("then") == [90.0]


async def test_a_hundred_thousand_seconds_of_nobody_cost_one_task_by_default(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    world.clock.advance(100_000)
    world.process(app)
    await world.clock.elapse("1s")
    assert await world.minutes() == [1_666.0]
    assert (await world.trigger()).missed >= 900


async def test_more_than_a_batch_is_fired_at_once(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for n in range(250):
            await app.schedule.at(START + 60, say, "x", name=f"one-{n}")
    process = world.process(app)
    await world.clock.elapse("61s")
    assert len(await world.keys()) == 250
    assert process.calls.count("apply") == 3, "in batches"
    statuses = {t.status for t in (await world.memory.triggers.find_all(limit=999)).triggers}
    assert statuses == {S.COMPLETED}


async def test_a_batch_of_others_is_left_before_the_next_look(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for n in range(3 * BATCH):
            await app.schedule.at(START + 60, say, "x", name=f"one-{n}")
    owner = world.process(app)
    await world.clock.elapse("1s")
    owner.kill()
    stranger = world.process(Holdfast("memory://", clock=world.clock), start=False)
    stranger.start()
    await world.clock.elapse("50s")
    await owner.beat()
    stranger.calls.clear()
    await world.clock.elapse("9.5s")
    assert stranger.calls.count("claim") == 1
    page = await world.memory.triggers.find_all(limit=999)
    assert len([one for one in page.triggers if one.reason]) == BATCH
    await world.clock.elapse("60s")
    statuses = {one.status for one in (await world.memory.triggers.find_all(limit=999)).triggers}
    assert statuses == {S.PENDING}


async def test_those_that_failed_before_go_one_by_one_in_any_order(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    names = [f"one-{n}" for n in range(8)]
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for name in names:
            await app.schedule.at(START + 60, say, "x", name=name)
    world.clock.advance("60s")
    await world.memory.triggers.claim("dead", limit=6, lease_seconds=30)
    world.clock.advance("31s")
    process = world.process(app, start=False)
    batches: list[list[str]] = []
    apply = process.triggers.apply

    async def noted(batch: Sequence[TriggerChange], **options: Any) -> Any:
        batches.append([change.after.id for change in batch])
        return await apply(batch, **options)

    process.triggers.__dict__["apply"] = noted
    process.start()
    await world.clock.elapse("1s")
    assert batches[0] == names[6:], "together, and before the others"
    assert [len(batch) for batch in batches[1:]] == [1] * 6
    order = [name for [name] in batches[1:]]
    assert sorted(order) == names[:6]
    assert order != names[:6]


# -- when the store fails


async def test_an_outage_is_waited_out(world: World, apped: tuple[Holdfast, Say]) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app, start=False)
    process.faults = {"claim": "lost request"}.get
    process.start()
    await world.clock.elapse("150s")
    assert await world.minutes() == []
    assert len(process.calls) < 400, "not in a hurry"
    process.faults = no_faults
    await world.clock.elapse("2s")
    assert await world.minutes() == [2.0]


async def test_a_write_of_which_nobody_heard_is_sent_again_and_counts_once(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app)
    lost = iter(("lost reply", "lost request", "lost reply"))
    process.faults = lambda verb: next(lost, None) if verb == "apply" else None
    await world.clock.elapse("62s")
    assert process.calls.count("apply") == 4
    assert await world.minutes() == [1.0]
    trigger = await world.trigger()
    assert (trigger.status, trigger.fired, trigger.retry_count) == (S.PENDING, 1, 0)


async def test_what_is_saved_behind_a_look_is_not_slept_over(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    early = replace(await world.trigger(), id="early", schedule=Once(at=START + 5))
    process = world.process(app, start=False)
    look = process.triggers.claim

    async def look_and_then(*arguments: Any, **options: Any) -> Any:
        found = await look(*arguments, **options)
        if await world.memory.triggers.find("early") is None:
            await TriggerShortcuts(world.memory).save(
                replace(early, fire_time=START + 5, trigger_at=START + 5)
            )
        return found

    process.triggers.__dict__["claim"] = look_and_then
    process.start()
    await world.clock.elapse("6s")
    assert len(await world.minutes("early")) == 1


async def test_a_lost_wake_up_costs_half_a_minute_at_most(
    world: World, apped: tuple[Holdfast, Say], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, say = apped
    world.process(app)
    await world.clock.elapse("1s")
    with app.on(world.memory, clock=world.clock, chance=world.chance), monkeypatch.context() as m:
        m.setattr(world.memory.state.signals, "notify", no_faults)
        await app.schedule.at(START + 2, say, "x", name="soon")
    await world.clock.elapse(IDLE_SECONDS)
    assert len(await world.minutes("soon")) == 1


async def test_what_cannot_be_written_does_not_stop_its_neighbours(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for name in ("bad", "good"):
            await app.schedule.every("1m", say, "x", name=name)
    process = world.process(app, start=False)
    apply = process.triggers.apply

    async def picky(batch: Sequence[TriggerChange], **options: Any) -> Any:
        if any(one.after.id == "bad" and one.submissions for one in batch):
            raise SerialisationError("it cannot be written")
        return await apply(batch, **options)

    process.triggers.__dict__["apply"] = picky
    process.start()
    await world.clock.elapse("90s")
    assert await world.minutes("good") == [1.0]
    bad = await world.trigger("bad")
    assert (bad.status, await world.minutes("bad")) == (S.SUSPENDED, [])
    assert bad.reason is not None
    assert "it cannot be written" in bad.reason


async def test_a_part_of_the_store_that_is_away_holds_up_no_other(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for name in ("away", "here"):
            await app.schedule.every("1m", say, "x", name=name)
        await app.schedule.at(START + 63, say, "x", name="soon")
    process = world.process(app, start=False)
    apply = process.triggers.apply

    async def parted(batch: Sequence[TriggerChange], **options: Any) -> Any:
        error = StoreUnavailable("a part is away")
        here = [one for one in batch if one.after.id != "away" or world.clock.now() > START + 80]
        if not here:
            raise error
        found = dict(zip((one.after.id for one in here), await apply(here, **options), strict=True))
        answers = [found.get(one.after.id, error) for one in batch]
        if error in answers:
            raise PartlyUnavailable(error, answers)
        return answers

    process.triggers.__dict__["apply"] = parted
    process.start()
    await world.clock.elapse("64s")
    assert await world.minutes("here") == [1.0]
    assert len(await world.minutes("soon")) == 1, "it did not wait for what is away"
    assert await world.minutes("away") == []
    await world.clock.elapse("30s")
    assert await world.minutes("away") == [1.0]
    assert (await world.trigger("away")).retry_count == 0
