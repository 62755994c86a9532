"""A trigger that a clock ahead has sent away comes back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Context, Holdfast
from holdfast.errors import BackupRefused
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.runtime.schedule.patrol import EVERY_SECONDS, PAGE
from tests.support.runtime.schedules import START, Say, World, every_minute
from tests.support.sqlite.sqlite_files import PATIENCE_SECONDS
from verify.servers import RedisServer


async def comes_back(app: Holdfast) -> None:
    fired = asyncio.Event()

    @app.task("tick")
    async def tick(ctx: Context, word: str) -> None:
        fired.set()

    async with app:
        trigger_id = (await app.schedule.every("1s", tick, "x", name="tick")).id
        trigger = await app.store.triggers.find(trigger_id)
        assert trigger is not None
        ahead = app.clock.now() + 7_200  # as a clock leaves it that was two hours ahead
        await TriggerShortcuts(app.store).save(replace(trigger, fire_time=ahead, trigger_at=ahead))
        async with app.running():
            await asyncio.wait_for(fired.wait(), PATIENCE_SECONDS)


async def test_on_sqlite(tmp_path: Path) -> None:
    await comes_back(Holdfast(f"sqlite:///{tmp_path}/holdfast.db"))


async def test_on_redis(redis_server: RedisServer, redis_namespace: str) -> None:
    await comes_back(Holdfast(redis_server.url, namespace=redis_namespace))


async def test_redis_says_how_it_is_backed_up(
    redis_server: RedisServer, redis_namespace: str, tmp_path: Path
) -> None:
    async with Holdfast(redis_server.url, namespace=redis_namespace) as app:
        with pytest.raises(BackupRefused, match="BGSAVE"):
            await app.backup(tmp_path / "copy.db")


@pytest.mark.parametrize("overlap", ["allow", "queue"])
@pytest.mark.parametrize("misfire", ["once", "skip", "catch-up"])
async def test_a_clock_that_was_ahead_silences_no_interval(
    world: World, apped: tuple[Holdfast, Say], misfire: str, overlap: str
) -> None:
    app, say = apped
    terms: Any = {"misfire": misfire, "overlap": overlap}
    await every_minute(world, app, say, **terms)
    process = world.process(app)
    await world.clock.elapse("2m")
    world.clock.jump(7_200)
    await world.clock.elapse("8s")
    world.clock.jump(-7_200)
    await world.clock.elapse("1m")
    process.kill()
    made = [minute for minute in await world.minutes() if minute < 100]
    assert 3.0 in made or overlap == "queue"  # nobody runs the tasks here
    trigger = await world.trigger()
    assert trigger.trigger_at is not None
    assert trigger.trigger_at <= world.clock.now() + 90


async def test_a_time_fired_by_a_clock_ahead_makes_no_second_task_when_it_comes(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    await every_minute(world, app, say)
    world.process(app)
    await world.clock.elapse("2m")
    world.clock.jump(600)
    await world.clock.elapse("1m")
    world.clock.jump(-600)
    await world.clock.elapse("15m")
    found = await world.minutes()
    assert sorted(found) == sorted(set(found))
    assert set(found) >= {1.0, 2.0, 12.0, 13.0, *map(float, range(4, 18))}


async def test_a_cron_and_what_was_put_off_come_back_with_the_clock(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.cron("*/5 * * * *", say, "five", name="five")
        await app.schedule.at(START + 400, say, "then", name="then")
    process = world.process(app)
    process.queue_limit = 0
    await world.clock.elapse("1m")
    process.kill()
    full = world.process(app, start=False)
    full.queue_limit = 0  # nothing can be made: both are put off, by the clock that is ahead
    full.start()
    world.clock.jump(7_200)
    await world.clock.elapse("8s")
    full.kill()
    world.clock.jump(-7_200)
    world.process(app)
    await world.clock.elapse("10m")
    assert await world.minutes("five") != []
    assert await world.minutes("then") == [pytest.approx(400 / 60)]


async def test_many_triggers_that_were_sent_away_come_back_page_by_page(
    world: World, apped: tuple[Holdfast, Say]
) -> None:
    """Nothing is due, so that only the walk itself keeps the scheduler from a long rest."""
    app, say = apped
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        for number in range(3 * PAGE):
            await app.schedule.every("1h", say, "x", name=f"n-{number:03d}")
        ahead = world.clock.now() + 86_400
        for trigger in (
            await TriggerShortcuts(world.memory).find_all_pending(limit=1_000)
        ).triggers:
            sent = replace(trigger, fire_time=ahead, trigger_at=ahead)
            await TriggerShortcuts(world.memory).save(sent)
    world.process(app)
    await world.clock.elapse(2 * EVERY_SECONDS, turns=100 * PAGE)
    found = (await TriggerShortcuts(world.memory).find_all_pending(limit=1_000)).triggers
    assert [t.id for t in found if t.fire_time is None or t.fire_time >= ahead] == []
