"""What is made of fire times that are late, overlap or cannot be fired."""

import pytest

from holdfast import Context, Holdfast, Misfire, Overlap, TriggerStatus
from holdfast.domain.task.state import Status
from holdfast.domain.trigger.firing import NO_ROOM_SECONDS
from holdfast.ports import Filter
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.worker_options import Rules, WorkerOptions
from tests.support.runtime.environment import environment
from tests.support.runtime.schedules import START, Say, World, every_minute

S = TriggerStatus


# -- policies


@pytest.mark.parametrize(
    ("misfire", "made", "missed"),
    [(Misfire.ONCE, [10.0], 9), (Misfire.SKIP, [9.0, 10.0], 8), (Misfire.CATCH_UP, [8, 9, 10], 7)],
)
async def test_what_nobody_was_there_for(
    world: World,
    apped: tuple[Holdfast, Say],
    misfire: Misfire,
    made: list[float],
    missed: int,
) -> None:
    app, say = apped
    await every_minute(world, app, say, misfire=misfire, catch_up_max=3)
    world.clock.advance("10m")
    world.process(app)
    await world.clock.elapse("1s")
    assert await world.minutes() == made
    trigger = await world.trigger()
    assert (trigger.missed, trigger.fired) == (missed, len(made))


async def settle(world: World) -> None:
    """All tasks end."""
    with_app = Holdfast("memory://")

    @with_app.task("say")
    async def say(ctx: Context, word: str) -> None: ...

    with with_app.on(world.memory, clock=world.clock, chance=world.chance):
        page = await world.memory.views.find(Filter(statuses=(Status.PENDING,)), limit=999)
        for task in page.tasks:
            await with_app.control.cancel(task.id)


async def test_an_overlap_is_skipped(world: World, apped: tuple[Holdfast, Say]) -> None:
    app, say = apped
    await every_minute(world, app, say, overlap=Overlap.SKIP)
    world.process(app)
    await world.clock.elapse("3m")
    assert await world.minutes() == [1.0]
    assert (await world.trigger()).missed == 2
    await settle(world)
    await world.clock.elapse("1m")
    assert await world.minutes() == [1.0, 4.0]


async def test_an_overlap_is_queued_until_the_last_task_has_ended(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say, overlap=Overlap.QUEUE)
    process = world.process(app)
    await world.clock.elapse("130s")
    assert await world.minutes() == [1.0]
    trigger = await world.trigger()
    assert (trigger.missed, trigger.fire_time) == (0, START + 120)
    await settle(world)
    await world.clock.elapse("31s")
    assert await world.minutes() == [1.0, 2.0]
    process.calls.clear()
    await world.clock.elapse("1h")
    looks = [verb for verb in process.calls if verb != "find_all_pending"]
    assert len(looks) < 60 * 3 * 4, "it is asked after twice a minute, not more"


async def test_a_persons_fire_does_not_let_the_next_time_overlap(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say, overlap=Overlap.SKIP)
    world.process(app)
    await world.clock.elapse("65s")
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        extra = await (await app.schedule.get("tick")).fire()
        await extra.cancel()
        await world.clock.elapse("60s")
        assert (await world.trigger()).missed == 1, "the task of the first minute still waits"
        await settle(world)
        extra = await (await app.schedule.get("tick")).fire()
        await world.clock.elapse("60s")
        assert (await world.trigger()).missed == 2, "that of the person still waits"
        await extra.cancel()
        await world.clock.elapse("60s")
    assert (await world.trigger()).missed == 2
    assert len(await world.keys()) == 4


async def test_a_fire_time_that_comes_again_counts_the_task_that_it_had(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say, overlap=Overlap.SKIP)
    waits = await world.trigger()
    process = world.process(app)
    await world.clock.elapse("61s")
    first = (await world.trigger()).last_task
    process.kill()
    await TriggerShortcuts(world.memory).save(waits)  # as from a backup
    world.process(app)
    await world.clock.elapse("1s")
    assert (await world.trigger()).last_task == first
    await world.clock.elapse("60s")
    assert len(await world.keys()) == 1, "the one that there is still waits"


async def test_what_is_caught_up_does_not_overlap_itself(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say, overlap="queue", misfire="catch-up", catch_up_max=3)
    world.clock.advance("5m")
    world.process(app)
    for made in ([3.0], [3.0, 4.0], [3.0, 4.0, 5.0]):
        await world.clock.elapse("31s" if len(made) > 1 else "1s")
        assert (await world.minutes())[: len(made)] == made
        page = await world.memory.views.find(Filter(statuses=(Status.PENDING,)), limit=9)
        assert len(page.tasks) == 1
        await settle(world)


async def test_a_full_queue_puts_it_off_uncounted(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(app, start=False)
    process.queue_limit = 1
    process.start()
    await world.clock.elapse("130s")
    trigger = await world.trigger()
    assert await world.minutes() == [1.0]
    assert (trigger.status, trigger.reason) == (
        S.PENDING,
        "queue 'default' is full, or its intake is paused",
    )
    assert (trigger.retry_count, trigger.fire_time) == (0, START + 120)
    await settle(world)
    await world.clock.elapse(NO_ROOM_SECONDS)
    assert await world.minutes() == [1.0, 2.0]


# -- what cannot be fired


async def test_a_bad_payload_does_not_stop_its_neighbours(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    other = Holdfast("memory://", clock=world.clock, chance=world.chance)

    @other.task("say")
    async def say_number(ctx: Context, number: int) -> None: ...

    with other.on(world.memory, clock=world.clock, chance=world.chance):
        await other.schedule.every("1m", say_number, 7, name="bad")
    await every_minute(world, app, say)
    world.process(app)
    await world.clock.elapse("90s")
    assert await world.minutes() == [1.0]
    bad = await world.trigger("bad")
    assert (bad.status, bad.fire_time) == (S.SUSPENDED, START + 60)
    assert bad.reason is not None
    assert "the stored value is not of type" in bad.reason


async def test_a_reason_does_not_tell_the_payload(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, _ = apped
    older = Holdfast("memory://", clock=world.clock, chance=world.chance)

    @older.task("login")
    async def login(ctx: Context, login: dict[str, str]) -> None: ...

    @app.task("login")
    async def login_by_number(ctx: Context, login: dict[str, int]) -> None: ...

    with older.on(world.memory, clock=world.clock, chance=world.chance):
        await older.schedule.every("1m", login, {"password": "hunter2"}, name="bad")
    world.process(app)
    await world.clock.elapse("90s")
    bad = await world.trigger("bad")
    assert bad.status is S.SUSPENDED
    assert bad.reason is not None
    assert "payload.password" in bad.reason
    assert "hunter2" not in bad.reason


async def test_a_type_that_nobody_knows_suspends_after_its_time(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    stranger = Holdfast("memory://", clock=world.clock)
    process = world.process(stranger)
    await world.clock.elapse("2m")
    waiting = await world.trigger()
    assert (waiting.status, waiting.unknown_since) == (S.PENDING, START + 60)
    assert waiting.retry_count == 0
    assert len(process.calls) < 60, "it has patience"
    await world.clock.elapse("10m")
    trigger = await world.trigger()
    assert (trigger.status, trigger.fire_time) == (S.SUSPENDED, START + 60)
    assert trigger.reason is not None
    assert "'say'" in trigger.reason


async def test_a_type_that_another_worker_knows_is_left_to_it(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    world.process(Holdfast("memory://", clock=world.clock))
    away = world.process(app)
    away.kill()
    await world.clock.elapse("50s")
    await away.beat()
    await world.clock.elapse("20s")
    trigger = await world.trigger()
    assert (trigger.status, trigger.unknown_since) == (S.PENDING, None)
    world.process(app)
    await world.clock.elapse("10s")
    assert await world.minutes() == [1.0]


async def test_a_worker_that_fires_nothing_serves_no_trigger(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    idle = world.process(app, start=False)
    idle.schedules = False
    idle.start()
    world.process(Holdfast("memory://", clock=world.clock))
    for _ in range(12):
        await idle.beat()
        await world.clock.elapse("1m")
    trigger = await world.trigger()
    assert (trigger.status, trigger.fire_time) == (S.SUSPENDED, START + 60)


async def test_while_nobody_can_say_who_lives_an_unknown_type_waits(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    process = world.process(Holdfast("memory://", clock=world.clock))
    process.faults = {"workers": "lost request"}.get
    await world.clock.elapse("30m")
    trigger = await world.trigger()
    assert (trigger.status, trigger.unknown_since) == (S.PENDING, None)


async def test_ended_triggers_are_pruned_after_their_time(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.at(START + 60, say, "x", name="once", keep="1d")
        await app.schedule.at(START + 365 * 86_400, say, "x", name="next-year", keep="1d")
    world.process(app)
    await world.clock.elapse("61s")
    world.close()
    rules = Rules(checkpoint_ttl_seconds=1)
    options = WorkerOptions(audit_seconds=1, reconcile_seconds=0, rules=rules)
    pruner = Pruner(environment(world.memory, world.clock, options=options))
    for by, left in (("23h", ["next-year", "once"]), ("2h", ["next-year"]), ("99d", ["next-year"])):
        world.clock.advance(by)
        await pruner.tick()
        page = await world.memory.triggers.find_all()
        assert [trigger.id for trigger in page.triggers] == left
