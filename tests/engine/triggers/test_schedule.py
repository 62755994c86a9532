"""Triggers as a user makes and asks them."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Context, Holdfast, Misfire, Overlap, TriggerHandle, TriggerStatus
from holdfast.engine.declare import AsyncTask
from holdfast.errors import (
    DeclarationError,
    InvalidInput,
    InvalidName,
    InvalidPayload,
    InvalidSchedule,
    TriggerConflict,
    TriggerNotFound,
)
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine

Echo = AsyncTask[str, str]
S = TriggerStatus
HOUR = 3_600.0


# -- making


async def test_once_at_a_time_with_a_zone(engine: Engine, app: Holdfast, echo: Echo) -> None:
    when = datetime.fromtimestamp(engine.clock.now() + HOUR, timezone(timedelta(hours=8)))
    trigger = await app.schedule.at(when, echo, "then", tenant="t-1", name="then")
    await engine.advance("59m")
    info = await trigger.info()
    assert (info.status, info.fired, info.kind) == (S.PENDING, 0, "once")
    await engine.advance("2m")
    info = await trigger.info()
    assert (info.status, info.fired) == (S.COMPLETED, 1)
    assert info.last_task is not None
    assert await app.handle(info.last_task).result() == "then"
    assert await trigger.next(3) == []


async def test_an_engine_fires_each_time_on_its_way(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("15m", echo, "tick")
    await engine.advance("24h")
    info = await trigger.info()
    assert (info.fired, info.missed) == (96, 0)


async def test_an_interval_counts_from_its_start(engine: Engine, app: Holdfast, echo: Echo) -> None:
    start = engine.clock.now() + 10
    trigger = await app.schedule.every("1h", echo, "tick", start=start)
    assert [at.timestamp() for at in await trigger.next(2)] == [start, start + HOUR]
    at_once = await app.schedule.every("1h", echo, "tick", start=engine.clock.now())
    await engine.advance(1)
    assert (await at_once.info()).fired == 1


async def test_without_a_start_an_interval_counts_from_now(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1h", echo, "tick")
    [first] = await trigger.next()
    assert first.timestamp() == engine.clock.now() + HOUR


async def test_cron_by_the_clock_of_its_zone(engine: Engine, app: Holdfast, echo: Echo) -> None:
    trigger = await app.schedule.cron("0 3 * * *", echo, "night", tz="Asia/Shanghai")
    first, second = await trigger.next(2)
    assert first.isoformat() == "2023-11-16T03:00:00+08:00"
    assert second - first == timedelta(days=1)
    assert (await trigger.info()).kind == "cron"


async def test_a_time_in_the_past_fires_at_once(engine: Engine, app: Holdfast, echo: Echo) -> None:
    trigger = await app.schedule.at(engine.clock.now() - HOUR, echo, "late")
    await engine.advance(1)
    assert (await trigger.info()).status is S.COMPLETED
    assert (await trigger.info()).fired == 1


async def test_an_interval_whose_start_is_past_fires_at_once_and_then_at_its_times(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    start = engine.clock.now() - 2.5 * HOUR
    trigger = await app.schedule.every("1h", echo, "late", start=start, name="late")
    await engine.advance(1)
    info = await trigger.info()
    assert (info.fired, info.missed) == (1, 0)
    assert [at.timestamp() for at in await trigger.next(2)] == [start + 3 * HOUR, start + 4 * HOUR]
    again = await app.schedule.every("1h", echo, "late", start=start, name="late")
    await engine.advance(1)
    assert (await again.info()).fired == 1, "it is the trigger that is there"
    await engine.advance("1h")
    assert (await trigger.info()).fired == 2


async def test_an_interval_whose_start_is_past_is_made_up_where_that_is_asked_for(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    start = engine.clock.now() - 2.5 * HOUR
    trigger = await app.schedule.every("1h", echo, "late", start=start, misfire="catch-up")
    await engine.advance(1)
    assert (await trigger.info()).fired == 3


async def test_another_schedule_counts_from_now_whatever_its_start(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    await app.schedule.every("1h", echo, "x", name="changed")
    start = engine.clock.now() - 2.5 * HOUR
    changed = await app.schedule.every(
        "2h", echo, "x", name="changed", start=start, replace=True, misfire="skip"
    )
    await engine.advance(1)
    assert (await changed.info()).fired == 0
    assert [at.timestamp() for at in await changed.next(1)] == [start + 4 * HOUR]


async def test_what_is_said_beside_the_payload_is_kept(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every(
        "1h",
        echo,
        "x",
        tenant="t-1",
        queue="slow",
        user={"id": 1},
        misfire="catch-up",
        overlap="queue",
        jitter="5m",
        grace="2m",
        catch_up_max=7,
        keep="1d",
    )
    info = await trigger.info()
    assert (info.tenant, info.queue, info.user) == ("t-1", "slow", {"id": 1})
    assert (info.misfire, info.overlap) == (Misfire.CATCH_UP, Overlap.QUEUE)
    assert (info.jitter_seconds, info.grace_seconds, info.keep_seconds) == (300, 120, 86_400)
    assert info.catch_up_max == 7
    assert info.fire_time is not None
    assert info.trigger_at is not None
    assert 0 < info.trigger_at - info.fire_time <= 300


NO_ZONE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is wrong with it

REFUSED: dict[str, tuple[type[Exception], str, Any, dict[str, Any]]] = {
    "a cron that never fires": (InvalidSchedule, "cron", "0 0 30 2 *", {}),
    "no cron": (InvalidSchedule, "cron", "often", {}),
    "an unknown zone": (InvalidSchedule, "cron", "0 3 * * *", {"tz": "Mars/Base"}),
    "a negative interval": (InvalidSchedule, "every", -5, {}),
    "the past with skip": (InvalidSchedule, "at", 1_000.0, {"misfire": "skip"}),
    "a past start with skip": (
        InvalidSchedule,
        "every",
        "1h",
        {"start": 1_000.0, "misfire": "skip"},
    ),
    "no zone": (InvalidSchedule, "at", NO_ZONE, {}),
    "a bad name": (InvalidName, "every", "1h", {"name": "a b"}),
    "a bad tenant": (InvalidName, "every", "1h", {"tenant": "a b"}),
    "a bad payload": (InvalidPayload, "every", "1h", {"payload": 7}),
    "a bad policy": (InvalidInput, "every", "1h", {"misfire": "never"}),
    "a bad bound": (InvalidInput, "every", "1h", {"catch_up_max": 0}),
    "an unknown option": (InvalidInput, "every", "1h", {"jiter": 5}),
    "a negative jitter": (InvalidInput, "every", "1h", {"jitter": -5}),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_bad_input_is_refused_and_nothing_is_written(
    engine: Engine, app: Holdfast, echo: Echo, what: str
) -> None:
    error, verb, times, options = REFUSED[what]
    with pytest.raises(error):
        await getattr(app.schedule, verb)(times, echo, **{"payload": "x"} | options)
    assert (await app.schedule.page()).triggers == ()


# -- names


async def test_the_same_name_and_definition_is_the_same_trigger(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    first = await app.schedule.every("1h", echo, "x", name="hourly")
    await engine.advance("90m")
    before = await first.info()
    again = await app.schedule.every("1h", echo, "x", name="hourly")
    assert (again.id, await again.info()) == ("hourly", before)
    when = engine.clock.now() + 60
    await app.schedule.at(when, echo, "x", name="once", misfire="skip")
    await engine.advance("2m")
    gone = await app.schedule.at(when, echo, "x", name="once", misfire="skip")
    assert (await gone.info()).status is S.COMPLETED


async def test_the_same_name_with_another_definition_is_a_conflict_unless_it_replaces(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    await app.schedule.every("1h", echo, "x", name="hourly")
    await engine.advance("90m")
    with pytest.raises(TriggerConflict) as conflict:
        await app.schedule.every("2h", echo, "x", name="hourly")
    assert conflict.value.trigger_id == "hourly"
    replaced = await app.schedule.every("2h", echo, "x", name="hourly", replace=True)
    info = await replaced.info()
    assert info.fire_time == engine.clock.now() + 2 * HOUR
    assert info.fired == 1


async def test_of_two_who_make_one_name_at_once_one_is_in_conflict(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    find = app.store.triggers.find

    async def slow(trigger_id: str) -> Any:
        found = await find(trigger_id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return found

    app.store.triggers.find = slow  # type: ignore[method-assign]
    made = [app.schedule.every(every, echo, "x", name="one") for every in ("1h", "2h")]
    answers = await asyncio.gather(*made, return_exceptions=True)
    assert [type(answer) for answer in answers] == [TriggerHandle, TriggerConflict]
    info = await (await app.schedule.get("one")).info()
    assert (info.version, info.schedule.seconds) == (1, HOUR)  # type: ignore[union-attr]
    alike = [app.schedule.cron("0 3 * * *", echo, "x", name="two") for _ in range(2)]
    assert {handle.id for handle in await asyncio.gather(*alike)} == {"two"}


@pytest.mark.parametrize("start", [None, 0.0])
async def test_a_new_payload_leaves_the_next_time_alone(
    engine: Engine, app: Holdfast, echo: Echo, start: float | None
) -> None:
    trigger = await app.schedule.every("1h", echo, "x", name="hourly", start=start)
    await engine.advance(1)  # one whose start is past fires first
    before = await trigger.info()
    await engine.advance("10m")
    await app.schedule.every("1h", echo, "y", name="hourly", start=start, replace=True)
    after = await trigger.info()
    assert (after.fire_time, after.schedule) == (before.fire_time, before.schedule)
    assert bytes(after.payload) == b'"y"'


async def test_another_tenants_trigger_is_never_replaced(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    await app.schedule.every("1h", echo, "x", name="hourly", tenant="t-1")
    with pytest.raises(TriggerConflict):
        await app.schedule.every("1h", echo, "x", name="hourly", tenant="t-2", replace=True)


async def test_one_that_has_ended_begins_anew_when_it_is_replaced(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1h", echo, "x", name="hourly")
    await trigger.cancel()
    assert (await (await app.schedule.every("1h", echo, "x", name="hourly")).info()).ended_at
    await app.schedule.every("1h", echo, "x", name="hourly", replace=True)
    assert (await trigger.info()).status is S.PENDING


async def test_finding_and_listing(engine: Engine, app: Holdfast, echo: Echo) -> None:
    made = [await app.schedule.every("1h", echo, "x", tenant=f"t-{n % 2}") for n in range(120)]
    found = [trigger async for trigger in app.schedule.find()]
    assert [one.id for one in found] == sorted(one.id for one in made)
    assert len([one async for one in app.schedule.find(tenant="t-1")]) == 60
    await made[0].pause()
    paused = [one.id async for one in app.schedule.find(statuses=(S.PAUSED,))]
    assert paused == [made[0].id]
    handle = await app.schedule.get(made[3].id)
    assert isinstance(handle, TriggerHandle)
    assert made[3].id in repr(handle)
    with pytest.raises(TriggerNotFound):
        await app.schedule.get("nothing")


# -- declaring


async def test_declared_ones_are_seen_and_asked_like_any_other(
    app: Holdfast, echo: Echo, holdfast_engine: MakeEngine
) -> None:
    @echo.cron("0 * * * *")
    def hourly(at: datetime) -> str:
        return at.isoformat()

    assert hourly(datetime(2030, 1, 1, tzinfo=UTC)) == "2030-01-01T00:00:00+00:00", "still itself"
    name = echo.every("30m", payload="half", misfire="skip")
    engine = holdfast_engine(app)
    await engine.start()
    await engine.advance(1)
    assert [one.id async for one in app.schedule.find()] == ["echo.every", "echo.hourly"]
    assert name == "echo.every"
    [worker] = await app.store.views.workers(live_within_seconds=60)
    assert set(worker.beat.triggers) == {"echo.every", "echo.hourly"}
    trigger = await app.schedule.get("echo.hourly")
    handle = await trigger.fire()
    await engine.drain()
    assert await handle.result() == datetime.fromtimestamp(engine.clock.now(), UTC).isoformat()
    await engine.advance("1h")
    assert (await trigger.info()).fired == 2
    with pytest.raises(TriggerConflict):
        await app.schedule.every("30m", echo, "half", name=name, replace=True)


async def test_a_worker_may_leave_the_triggers_to_others(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1m", echo, "x")
    worker = app.worker(heartbeat_thread=False, schedules=False)
    await worker.start()
    await engine.clock.elapse("2m")
    assert (await trigger.info()).fired == 0
    worker.abandon()


def test_one_that_takes_no_payload_is_declared_at_once(app: Holdfast) -> None:
    @app.task("tidy")
    async def tidy(ctx: Context) -> None: ...

    assert tidy.cron("0 3 * * *") == "tidy.cron"
    assert app.registry.triggers["tidy.cron"].definition.declared


def test_a_workflow_is_declared_alike(app: Holdfast) -> None:
    upgrade = app.workflow("upgrade", payload=int)

    @upgrade.stage
    async def first(ctx: Context, version: int) -> None: ...

    assert upgrade.every("1d", payload=7, name="daily") == "daily"


def test_bad_declarations_are_refused_where_they_stand(app: Holdfast, echo: Echo) -> None:
    with pytest.raises(InvalidSchedule):
        echo.cron("often", payload="x")
    with pytest.raises(InvalidSchedule):
        echo.every("0s", payload="x")
    with pytest.raises(InvalidPayload):
        echo.every("1h", payload=7)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput):
        echo.every("1h", payload="x", overlap="perhaps")  # type: ignore[call-overload]
    with pytest.raises(InvalidName):
        echo.every("1h", payload="x", name="a b")
    echo.every("1h", payload="x")
    with pytest.raises(DeclarationError, match=r"two triggers are named 'echo\.every'"):
        echo.every("2h", payload="x")


def test_a_payload_function_is_plain_and_takes_the_time_or_nothing(
    app: Holdfast, echo: Echo
) -> None:
    async def later(at: datetime) -> str:
        return "x"

    def two(at: datetime, why: str) -> str:
        return "x"

    with pytest.raises(DeclarationError, match="plain function"):
        echo.every("1h")(later)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="the fire time, or nothing"):
        echo.every("1h")(two)  # type: ignore[arg-type]


async def test_a_declaration_without_payload_and_function_is_found_out(
    app: Holdfast, echo: Echo
) -> None:
    echo.cron("0 3 * * *")
    with pytest.raises(DeclarationError, match="neither payload= nor a function"):
        async with app:
            pass
