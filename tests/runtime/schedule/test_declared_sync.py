"""Triggers that code declares: the same in the store, and gone when they are gone from it."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, TriggerStatus
from holdfast.domain.trigger.firing import NOT_DECLARED
from holdfast.domain.trigger.schedule import Every
from holdfast.ports import Filter, Kept
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.runtime.schedule.declared_sync import PAGE, SYNC_SECONDS
from tests.support.runtime.schedules import START, Say, World, an_app, no_faults

S = TriggerStatus


def release(world: World, *declares: Callable[[Say], object]) -> Holdfast:
    """A version of the code."""
    app, say = an_app(world)
    for declare in declares:
        declare(say)
    return app


def tick(interval: str = "1m", **terms: Any) -> Callable[[Say], object]:
    return lambda say: say.every(interval, payload="hello", name="tick", **terms)


async def asked(world: World, app: Holdfast, verb: str) -> None:
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await getattr(await app.schedule.get("tick"), verb)()


async def test_what_is_declared_is_in_the_store_when_a_worker_starts(world: World) -> None:
    world.process(release(world, tick(tenant="t-1")))
    await world.clock.elapse("1s")
    trigger = await world.trigger()
    assert (trigger.declared, trigger.tenant, trigger.target) == (True, "t-1", "say")
    assert trigger.fire_time == START + 60
    await world.clock.elapse("1m")
    assert await world.minutes() == [1.0]


async def test_three_workers_declare_it_once(world: World) -> None:
    app = release(world, tick())
    for _ in range(3):
        world.process(app)
    await world.clock.elapse("5m")
    assert await world.minutes() == [1, 2, 3, 4, 5]
    [trigger] = (await world.memory.triggers.find_all()).triggers
    assert (trigger.fired, trigger.missed) == (5, 0)


async def test_its_payload_is_made_at_its_time(world: World) -> None:
    app, say = an_app(world)

    @say.cron("*/30 * * * *", tz="Asia/Kolkata", name="tick")
    def word(at: datetime) -> str:
        return at.isoformat()

    world.process(app)
    await world.clock.elapse("30m")
    [task] = (await world.memory.views.find(Filter(), limit=9)).tasks
    detail = await world.memory.views.detail(task.id)
    assert detail is not None
    assert detail.payload == b'"2023-11-15T04:00:00+05:30"'


async def test_a_function_that_fails_suspends_its_own_trigger_only(world: World) -> None:
    app, say = an_app(world)

    @say.every("1m")
    def broken() -> str:
        raise RuntimeError("no word comes to mind")

    @say.every("1m", name="wrong")
    def wrong() -> str:
        return 7  # type: ignore[return-value]

    say.every("1m", payload="hello", name="tick")
    world.process(app)
    await world.clock.elapse("100s")
    assert await world.minutes() == [1.0]
    for name, said in (("say.broken", "no word comes to mind"), ("wrong", "payload")):
        trigger = await world.trigger(name)
        assert (trigger.status, trigger.fire_time) == (S.SUSPENDED, START + 60)
        assert trigger.reason is not None
        assert said in trigger.reason


async def test_an_unchanged_one_is_left_alone_and_made_up_for(world: World) -> None:
    old = world.process(release(world, tick(misfire="catch-up")))
    await world.clock.elapse("90s")
    old.kill()
    before = await world.trigger()
    world.clock.advance("2m")
    new = world.process(release(world, tick(misfire="catch-up")))
    await new.declared.sync()
    assert await world.trigger() == before
    await world.clock.elapse("1s")
    assert await world.minutes() == [1, 2, 3]


async def test_a_changed_one_counts_its_times_from_now_and_keeps_its_counters(
    world: World,
) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("90s")
    old.kill()
    world.clock.advance("5m")
    world.process(release(world, tick("2m", overlap="skip")))
    await world.clock.elapse("1s")
    trigger = await world.trigger()
    assert await world.minutes() == [1.0], "what the old one missed is gone with it"
    assert (trigger.fired, trigger.overlap) == (1, "skip")
    assert trigger.fire_time is not None
    assert (trigger.fire_time - START) / 60 == 8.0, "even minutes since 1970"


async def test_a_persons_pause_stays_over_restarts_and_changes(world: World) -> None:
    app = release(world, tick())
    old = world.process(app)
    await world.clock.elapse("1s")
    await asked(world, app, "pause")
    old.kill()
    for again in (app, release(world, tick("2m"))):
        process = world.process(again)
        await world.clock.elapse("5m")
        process.kill()
        assert (await world.trigger()).status is S.PAUSED
    assert await world.minutes() == []


async def test_a_persons_cancel_stays_until_the_definition_changes(world: World) -> None:
    app = release(world, tick())
    old = world.process(app)
    await world.clock.elapse("1s")
    await asked(world, app, "cancel")
    old.kill()
    world.clock.advance("30d")
    await world.memory.admin.prune(Kept.TRIGGERS, older_than_seconds=0, limit=99, dry_run=False)
    same = world.process(app)
    await world.clock.elapse("2m")
    assert (await world.trigger()).status is S.CANCELLED
    same.kill()
    world.process(release(world, tick("2m")))
    await world.clock.elapse("1s")
    assert (await world.trigger()).status is S.PENDING


async def test_a_persons_cancel_stays_when_the_schedule_does(world: World) -> None:
    app = release(world, tick())
    old = world.process(app)
    await world.clock.elapse("1s")
    await asked(world, app, "cancel")
    old.kill()
    for other in (release(world, tick(overlap="skip")), release(world, tick(queue="slow"))):
        process = world.process(other)
        await world.clock.elapse(SYNC_SECONDS + 1)
        process.kill()
        assert (await world.trigger()).status is S.CANCELLED


async def test_the_old_worker_of_a_rolling_deploy_leaves_the_new_definition_alone(
    world: World,
) -> None:
    world.process(release(world, tick("1m")))
    await world.clock.elapse("9m")
    new = world.process(release(world, tick("2m")))
    await world.clock.elapse(2 * SYNC_SECONDS)
    assert (await world.trigger()).schedule == Every(seconds=120, start=0)
    await asked(world, new.app, "cancel")
    await world.clock.elapse(2 * SYNC_SECONDS)
    trigger = await world.trigger()
    assert (trigger.status, trigger.schedule) == (S.CANCELLED, Every(seconds=120, start=0))


async def test_a_scheduler_that_had_to_be_started_again_is_no_new_worker(world: World) -> None:
    old = world.process(release(world, tick("1m")))
    await world.clock.elapse("1s")
    world.process(release(world, tick("2m")))
    await world.clock.elapse("1s")
    old.services[0].cancel()
    old.services[0] = asyncio.create_task(old.scheduler.run())
    await world.clock.elapse("1s")
    assert (await world.trigger()).schedule == Every(seconds=120, start=0)


async def test_what_somebody_removed_is_made_again(world: World) -> None:
    world.process(release(world, tick()))
    await world.clock.elapse("1s")
    await TriggerShortcuts(world.memory).remove("tick")
    await world.clock.elapse(SYNC_SECONDS)
    assert (await world.trigger()).status is S.PENDING


@pytest.mark.parametrize("payload", ["v1", "v2"])
async def test_a_deploy_over_a_fire_time_does_not_lose_it(world: World, payload: str) -> None:
    def nightly(word: str) -> Callable[[Say], object]:
        return lambda say: say.cron("0 3 * * *", payload=word, name="tick")

    old = world.process(release(world, nightly("v1")))
    await world.clock.elapse("1s")
    fire_time = (await world.trigger()).fire_time
    assert fire_time is not None
    old.kill()
    world.clock.advance(fire_time - world.clock.now() + 60)
    world.process(release(world, nightly(payload)))
    await world.clock.elapse("1s")
    [task] = (await world.memory.views.find(Filter(), limit=9)).tasks
    detail = await world.memory.views.detail(task.id)
    assert detail is not None
    assert detail.payload == f'"{payload}"'.encode()
    assert (await world.trigger()).last_fire_time == fire_time


async def test_what_another_makes_behind_a_look_is_not_written_over(world: World) -> None:
    app = release(world, tick())
    slow = world.process(app, start=False)
    find = slow.triggers.find

    async def find_and_then(trigger_id: str) -> Any:
        found = await find(trigger_id)
        if found is None:
            other = world.process(app)
            await world.clock.elapse("1s")
            await asked(world, app, "pause")
            other.kill()
        return found

    slow.triggers.__dict__["find"] = find_and_then
    slow.start()
    await slow.declared.sync()
    await world.clock.elapse("5m")
    assert (await world.trigger()).status is S.PAUSED


async def test_one_that_is_removed_from_the_code_is_cancelled_at_the_next_start(
    world: World,
) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    world.process(release(world))
    await world.clock.elapse("1s")
    trigger = await world.trigger()
    assert (trigger.status, trigger.reason) == (S.CANCELLED, NOT_DECLARED)
    assert trigger.ended_at == world.clock.now() - 1
    await world.clock.elapse("5m")
    assert await world.minutes() == []


async def test_declared_again_it_comes_back(world: World) -> None:
    for app in (release(world, tick()), release(world), release(world, tick())):
        process = world.process(app)
        await world.clock.elapse("1s")
        process.kill()
        await world.memory.tasks.leave(process.name)
    trigger = await world.trigger()
    assert (trigger.status, trigger.ended_at, trigger.reason) == (S.PENDING, None, None)
    assert trigger.fire_time == START + 60


async def test_what_a_live_worker_declares_is_not_judged_at_a_start(world: World) -> None:
    world.process(release(world, tick()))
    await world.clock.elapse("1s")
    world.process(release(world))
    await world.clock.elapse("1s")
    assert (await world.trigger()).status is S.PENDING


async def test_what_a_live_worker_declares_is_left_to_it_at_its_time(world: World) -> None:
    new = world.process(release(world))  # it comes first to each time
    await world.clock.elapse("1s")
    old = world.process(release(world, tick()))
    for _ in range(12):
        await old.beat()
        await new.beat()
        await world.clock.elapse("20s")
    assert (await world.minutes())[:3] == [1, 2, 3], "the old one fires it"
    trigger = await world.trigger()
    assert (trigger.status, trigger.missed, trigger.retry_count) == (S.PENDING, 0, 0)


async def test_while_nobody_can_say_who_lives_nothing_is_judged(world: World) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    process = world.process(release(world))
    process.faults = {"workers": "lost request"}.get
    await world.clock.elapse("3m")
    assert (await world.trigger()).status is S.PENDING
    process.faults = no_faults
    await world.clock.elapse("10s")
    assert (await world.trigger()).status is S.CANCELLED


async def test_a_worker_says_what_it_declares_before_it_is_in_the_store(world: World) -> None:
    process = world.process(release(world, tick()), start=False)
    process.faults = {"apply": "lost request"}.get
    process.start()
    await world.clock.elapse("1s")
    assert await world.memory.triggers.find("tick") is None
    [worker] = await world.memory.views.workers(live_within_seconds=60)
    assert worker.beat.triggers == ("tick",)


async def test_at_its_fire_time_it_is_cancelled_when_nobody_declares_it_any_more(
    world: World,
) -> None:
    old = world.process(release(world, tick()))
    world.process(release(world))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    assert (await world.trigger()).status is S.PENDING
    await world.clock.elapse("60s")
    trigger = await world.trigger()
    assert (trigger.status, trigger.reason) == (S.CANCELLED, NOT_DECLARED)
    assert await world.minutes() == []


async def test_whoever_does_not_know_the_type_does_not_judge(world: World) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    world.process(Holdfast("memory://", clock=world.clock))
    await world.clock.elapse("2m")
    assert (await world.trigger()).status is S.PENDING


async def test_triggers_that_were_made_by_a_call_are_nobodys_to_judge(world: World) -> None:
    app, say = an_app(world)
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.every("1m", say, "hello", name="tick")
    world.process(release(world))
    await world.clock.elapse("90s")
    assert await world.minutes() == [1.0]


async def test_the_sweep_looks_through_all_pages(world: World) -> None:
    app, say = an_app(world)
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.every("1d", say, "hello", name="tick")
    one = await world.trigger()
    for n in range(PAGE + 1):
        await TriggerShortcuts(world.memory).save(replace(one, id=f"a-{n:04}"))
        await TriggerShortcuts(world.memory).save(replace(one, id=f"z-{n:04}", declared=True))
    world.process(app)
    await world.clock.elapse("1s")
    assert (await world.trigger("z-0000")).status is S.CANCELLED
    assert (await world.trigger(f"z-{PAGE:04}")).status is S.CANCELLED
    assert (await world.trigger("a-0000")).status is S.PENDING


async def test_the_sweep_does_not_look_at_what_is_not_declared(world: World) -> None:
    app, say = an_app(world)
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.every("1d", say, "hello", name="tick")
    one = await world.trigger()
    for n in range(3 * PAGE):
        await TriggerShortcuts(world.memory).save(replace(one, id=f"a-{n:04}"))
    process = world.process(app)
    await world.clock.elapse("1s")
    assert process.calls.count("find_all") == 1


async def test_one_whose_type_went_with_it_is_cancelled_in_its_time(world: World) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    other = world.process(Holdfast("memory://", clock=world.clock))
    await world.clock.elapse("15m")
    trigger = await world.trigger()
    assert (trigger.status, trigger.reason) == (S.CANCELLED, NOT_DECLARED)
    assert trigger.ended_at is not None
    other.kill()
    world.process(release(world, tick()))
    await world.clock.elapse("1s")
    assert await world.minutes() == [15.0], "it was only away: once for all that it missed"


async def test_a_worker_that_fires_nothing_keeps_no_trigger(world: World) -> None:
    old = world.process(release(world, tick()))
    await world.clock.elapse("1s")
    old.kill()
    await world.memory.tasks.leave(old.name)
    idle = world.process(release(world, tick()), start=False)
    idle.schedules = False
    idle.start()
    await idle.beat()
    world.process(release(world))
    await world.clock.elapse("1s")
    assert (await world.trigger()).status is S.CANCELLED


async def test_a_judgement_that_came_too_soon_is_mended_by_the_next_sync(world: World) -> None:
    app = release(world, tick())
    process = world.process(app)
    await world.clock.elapse("1s")
    trigger = await world.trigger()
    dropped = replace(
        trigger, status=S.CANCELLED, reason=NOT_DECLARED, fire_time=None, trigger_at=None
    )
    await TriggerShortcuts(world.memory).save(dropped)
    await world.clock.elapse(SYNC_SECONDS)
    assert (await world.trigger()).status is S.PENDING
    process.kill()


async def test_the_first_sync_waits_for_the_store(world: World) -> None:
    process = world.process(release(world, tick()), start=False)
    process.faults = {"find": "lost request", "find_all": "lost request"}.get
    process.start()
    await world.clock.elapse("10s")
    assert await world.memory.triggers.find("tick") is None
    process.faults = no_faults
    await world.clock.elapse("2s")
    assert (await world.trigger()).status is S.PENDING
