"""What a person asks of a trigger, and what becomes of it when answers are lost."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Context, Holdfast, TriggerStatus
from holdfast.domain.task.state import Status
from holdfast.domain.trigger.trigger import TriggerChange
from holdfast.engine.declare import AsyncTask
from holdfast.errors import IllegalTransition, InvalidInput, QueueFull
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine

Echo = AsyncTask[str, str]
S = TriggerStatus
HOUR = 3_600.0


async def test_firing_now_leaves_the_times_alone(engine: Engine, app: Holdfast, echo: Echo) -> None:
    trigger = await app.schedule.every("1h", echo, "x", overlap="skip")
    before = await trigger.info()
    first, second = await trigger.fire("to see"), await trigger.fire()
    assert first.id != second.id
    await engine.drain()
    assert [await one.result() for one in (first, second)] == ["x", "x"]
    after = await trigger.info()
    assert (after.fire_time, after.trigger_at) == (before.fire_time, before.trigger_at)
    assert (after.fired, after.last_task) == (2, first.id), "the older one still waited"


async def test_a_fire_whose_answer_was_lost_makes_one_task(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1h", echo, "x", name="hourly")
    triggers, real = app.store.triggers, app.store.triggers.apply

    async def apply(batch: Any, **options: Any) -> Any:
        """Its answer is lost; when it is sent again, a scheduler has the trigger."""
        await real(batch, **options)
        await triggers.claim("another scheduler", trigger_id="hourly")
        return await real(batch, **options)

    triggers.apply = apply  # type: ignore[method-assign]
    handle = await trigger.fire()
    info = await trigger.info()
    assert (info.fired, info.last_task) == (1, handle.id)
    assert (await app.store.views.stats()).by_status == {Status.PENDING: 1}
    assert [entry.refused for entry in await app.store.admin.audits(limit=9)] == [None]


async def test_a_fire_that_is_decided_anew_over_another_wish_makes_one_task(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1h", echo, "x", name="hourly")
    triggers, real = app.store.triggers, app.store.triggers.apply

    async def apply(batch: Any, **options: Any) -> Any:
        await real(batch, **options)
        triggers.apply = real  # type: ignore[method-assign]
        await (await app.schedule.get("hourly")).pause()
        return await real(batch, **options)

    triggers.apply = apply  # type: ignore[method-assign]
    handle = await trigger.fire()
    assert (await app.store.views.stats()).by_status == {Status.PENDING: 1}
    assert (await handle.info()).id == handle.id
    assert (await trigger.info()).last_task == handle.id


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
async def test_a_wish_whose_answer_was_lost_is_answered_as_granted(
    engine: Engine, app: Holdfast, echo: Echo, verb: str
) -> None:
    trigger = await app.schedule.every("1h", echo, "x", name="hourly")
    if verb == "resume":
        await trigger.pause()
    changes = app.store.triggers.apply

    async def apply(batch: Any, **options: Any) -> Any:
        await changes(batch, **options)
        there = await trigger.info()
        later = replace(there, version=there.version + 1, request="another's")
        await changes([TriggerChange(before=there, after=later)], **options)
        return await changes(batch, **options)

    app.store.triggers.apply = apply  # type: ignore[method-assign]
    status = await getattr(trigger, verb)()
    assert status is (await trigger.info()).status
    assert all(entry.refused is None for entry in await app.store.admin.audits(limit=9))


async def test_firing_what_fires_once_ends_it(engine: Engine, app: Holdfast, echo: Echo) -> None:
    trigger = await app.schedule.at(engine.clock.now() + HOUR, echo, "x")
    await trigger.fire()
    assert (await trigger.info()).status is S.COMPLETED
    with pytest.raises(IllegalTransition):
        await trigger.fire()
    await engine.advance("2h")
    assert (await trigger.info()).fired == 1


async def test_a_paused_trigger_rests_and_can_be_fired(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    trigger = await app.schedule.every("1h", echo, "x")
    assert await trigger.pause("lunch") is S.PAUSED
    await trigger.fire()
    await engine.advance("3h")
    info = await trigger.info()
    assert (info.status, info.fired, info.reason) == (S.PAUSED, 1, "lunch")
    assert len(await trigger.next(2)) == 2
    assert await trigger.resume() is S.PENDING
    await engine.advance(1)
    info = await trigger.info()
    assert (info.fired, info.missed) == (2, 2)


async def test_a_cancelled_trigger_fires_no_more(engine: Engine, app: Holdfast, echo: Echo) -> None:
    trigger = await app.schedule.every("1h", echo, "x")
    assert await trigger.cancel("enough") is S.CANCELLED
    await engine.advance("3h")
    info = await trigger.info()
    assert (info.fired, info.reason) == (0, "enough")


async def test_who_asked_is_written_down_granted_or_refused(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    made = await app.schedule.every("1h", echo, "x", name="hourly")
    trigger = await app.schedule.acting_as("ada", "cli").get("hourly")
    await trigger.pause("lunch")
    with pytest.raises(IllegalTransition):
        await trigger.pause("again")
    await made.cancel()
    entries = {(e.command, e.refused): e for e in await app.store.admin.audits(limit=10)}
    granted = entries["pause", None]
    assert (granted.task_id, granted.by.actor, granted.by.origin) == (
        "trigger:hourly",
        "ada",
        "cli",
    )
    assert (granted.by.reason, granted.before, granted.after) == ("lunch", S.PENDING, S.PAUSED)
    assert entries["pause", "illegal-transition"].by.reason == "again"
    assert entries["cancel", None].by.actor == "app"


async def test_a_full_queue_refuses_a_fire(holdfast_engine: MakeEngine) -> None:
    app = Holdfast("memory://", queue_limit=1)

    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    holdfast_engine(app)
    trigger = await app.schedule.every("1h", echo, "x")
    await trigger.fire()
    with pytest.raises(QueueFull):
        await trigger.fire()
    assert (await trigger.info()).fired == 1


async def test_one_whose_type_is_not_here_cannot_be_fired_from_here(
    engine: Engine, app: Holdfast, echo: Echo
) -> None:
    await app.schedule.every("1h", echo, "x", name="hourly")
    other = Holdfast("memory://")
    with other.on(engine.store, clock=engine.clock, chance=engine.chance):
        trigger = await other.schedule.get("hourly")
        with pytest.raises(InvalidInput, match="'echo' is not declared here"):
            await trigger.fire()
        assert await trigger.pause() is S.PAUSED, "the rest can be done from anywhere"


@pytest.mark.parametrize("count", [-1, True, 10_000, "5"])
async def test_next_takes_a_number_within_bounds(
    engine: Engine, app: Holdfast, echo: Echo, count: Any
) -> None:
    trigger = await app.schedule.every("1h", echo, "x")
    with pytest.raises(InvalidInput):
        await trigger.next(count)
