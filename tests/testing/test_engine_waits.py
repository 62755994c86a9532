"""The engine of tests never hangs: who waits runs it, and the clock carries over all there is."""

import asyncio

import pytest

from holdfast import Context, Holdfast, PlanStatus, Retry, Status
from holdfast.testing import StillBusy
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import within_bounds

START = 1_700_000_000.0


async def test_who_waits_for_a_result_runs_the_engine(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def double(ctx: Context, number: int) -> int:
        return number * 2

    holdfast_engine(app)
    handles = [await double.submit(number) for number in range(3)]
    assert [await within_bounds(handle.result()) for handle in handles] == [0, 2, 4]
    both = await within_bounds(asyncio.gather(*(handle.result(timeout="1h") for handle in handles)))
    assert both == [0, 2, 4]


async def test_who_waits_takes_over_from_a_dead_worker(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def once(ctx: Context) -> int:
        return ctx.fence

    engine = holdfast_engine(app)
    engine.crash_at("once", when="before")
    handle = await once.submit()
    assert await within_bounds(handle.result()) > 0
    assert engine.deaths == 1


async def test_a_stage_may_wait_for_another_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def inner(ctx: Context) -> str:
        return "inner"

    @app.task
    async def outer(ctx: Context) -> str:
        return "outer of " + await (await inner.submit()).result()

    holdfast_engine(app)
    outermost = await outer.submit()
    assert await within_bounds(outermost.result()) == "outer of inner"


async def test_who_waits_for_what_is_due_later_is_told_what_to_call(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task(retry=Retry(max=3, backoff=("5m",), jitter=0.0))
    async def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("away")
        return "sent"

    engine = holdfast_engine(app, patience=0.01)
    handle = await flaky.submit()
    with pytest.raises(StillBusy, match=r"RETRYING.*await engine\.advance\(300\)"):
        await within_bounds(handle.result())
    with pytest.raises(StillBusy, match=r"await engine\.advance"):
        await within_bounds(handle.result(timeout="1h"))
    waiting = asyncio.create_task(handle.result())
    await engine.advance("5m")
    assert await within_bounds(waiting) == "sent"


async def test_who_waits_for_what_waits_for_a_person_is_told_so(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def note(ctx: Context) -> None: ...

    holdfast_engine(app, patience=0.01)
    handle = await note.submit()
    await handle.pause()
    with pytest.raises(StillBusy, match="PAUSED"):
        await within_bounds(handle.result())


async def test_the_clock_carries_a_plan_over_its_soaks_in_order(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    engine = holdfast_engine(app)
    seen: list[tuple[str, float]] = []

    @app.task(retry=Retry(max=3, backoff=("2m",), jitter=0.0))
    async def upgrade(ctx: Context, name: str) -> None:
        seen.append((name, engine.clock.now() - START))
        if name == "b" and ctx.attempt == 1:
            raise ConnectionError("away")

    @app.task
    async def tick(ctx: Context) -> None:
        seen.append(("tick", engine.clock.now() - START))

    tasks = [upgrade.on(name, tenant=name) for name in "abc"]
    plan = await app.plan("p", tasks, waves=("1", "2", "3"), soak="10m")
    await app.schedule.every("15m", tick, name="ticks")
    await engine.advance("1h")
    assert (await plan.info()).status is PlanStatus.COMPLETED
    at = [(name, round(when / 60)) for name, when in seen]
    upgrades = [one for one in at if one[0] != "tick"]
    assert upgrades == [("a", 0), ("b", 10), ("b", 12), ("c", 22)]
    assert [when for name, when in at if name == "tick"] in ([15, 30, 45, 60], [0, 15, 30, 45, 60])
    assert [when for _, when in seen] == sorted(when for _, when in seen)


async def test_who_waits_for_a_plan_runs_the_engine_or_is_told_what_to_call(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def upgrade(ctx: Context, name: str) -> None: ...

    engine = holdfast_engine(app, patience=0.01)
    quick = await app.plan("quick", [upgrade.on("a", tenant="a")])
    with pytest.raises(StillBusy, match=r"driven by the clock, so call `await engine\.advance"):
        await within_bounds(quick.wait())
    await engine.advance(5)
    assert (await quick.wait()).status is PlanStatus.COMPLETED
    tasks = [upgrade.on(name, tenant=name) for name in "bc"]
    slow = await app.plan("slow", tasks, waves=("1", "2"), soak="10m")
    await engine.advance(5)
    with pytest.raises(StillBusy, match=r"plan slow soaks.*await engine\.advance\(59\d"):
        await within_bounds(slow.wait())
    handle = (await slow.tasks())[1]
    with pytest.raises(StillBusy, match="plan slow"):
        await within_bounds(handle.result())
    await engine.advance("10m")
    assert (await slow.wait()).status is PlanStatus.COMPLETED
    assert (await handle.info()).status is Status.COMPLETED
