"""The engine that tests run on keeps its own promises."""

from typing import Any

import pytest

from holdfast import Context, Holdfast, Retry, RetryAfter, Status
from holdfast.errors import InvalidInput
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, event_names


async def test_what_falls_due_on_the_way_runs_at_its_own_moment(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[tuple[str, float]] = []

    @app.task("wait", retry=Retry(max=9))
    def wait(ctx: Context, name: str) -> None:
        ran.append((name, engine.clock.now() - began))
        if ctx.attempt < 3:
            raise RetryAfter(60 if name == "a" else 100)

    engine: Engine = holdfast_engine(app)
    began = engine.clock.now()
    await wait.submit("a")
    await wait.submit("b")
    await engine.advance("1h")
    assert sorted((name, round(at)) for name, at in ran) == [
        *(("a", 0), ("a", 60), ("a", 120)),
        *(("b", 0), ("b", 100), ("b", 200)),
    ]
    assert [round(at) for _, at in ran] == [0, 0, 60, 100, 120, 200]
    assert engine.clock.now() - began == pytest.approx(3600)


async def test_months_pass_quickly_when_nothing_runs(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("once", retry=Retry(max=2))
    async def once(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RetryAfter("60d")

    engine = holdfast_engine(app)
    handle = await once.submit()
    await engine.advance("59d")
    assert (await handle.info()).status is Status.RETRYING
    await engine.advance("2d")
    assert (await handle.info()).status is Status.COMPLETED


async def test_a_stage_that_runs_while_time_passes_keeps_its_lease(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()
    stand = gate.declare(app, "stand")

    engine = holdfast_engine(app)
    handle = await stand.submit()
    await engine.advance("10m")
    assert (await handle.info()).status is Status.RUNNING
    assert "LeaseLost" not in await event_names(engine, handle)
    gate.open()
    await engine.drain()
    assert (await handle.info()).status is Status.COMPLETED


async def test_nothing_runs_before_it_is_told_to(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("note")
    async def note(ctx: Context) -> None: ...

    engine = holdfast_engine(app)
    handle = await note.submit()
    await engine.clock.elapse("1m")
    assert (await handle.info()).status is Status.PENDING


async def test_a_crash_with_others_under_way_is_the_crash_of_all(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    calls: list[str] = []
    gate = Gate()

    @app.task("stand")
    async def stand(ctx: Context) -> int:
        calls.append("stand")
        if ctx.attempt == 1:
            await gate.stand()
        return ctx.attempt

    @app.task("die")
    async def die(ctx: Context) -> None:
        await gate.reached.wait()
        calls.append("die")

    engine = holdfast_engine(app)
    engine.crash_at("die", when="after")
    first, second = await stand.submit(), await die.submit()
    await engine.drain()
    assert await first.result() == 2
    assert (await second.info()).status is Status.COMPLETED
    assert calls.count("stand") == calls.count("die") == 2
    assert engine.deaths == 1


@pytest.mark.parametrize(
    "options", [{"stage": "nowhere"}, {"stage": "note", "when": "during"}], ids=repr
)
async def test_a_crash_that_cannot_come_is_refused(
    app: Holdfast, holdfast_engine: MakeEngine, options: Any
) -> None:
    @app.task("note")
    async def note(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput):
        holdfast_engine(app).crash_at(**options)


async def test_the_app_is_as_it_was_when_the_engine_is_closed(app: Holdfast) -> None:
    @app.task("note")
    async def note(ctx: Context) -> None: ...

    before = (app.clock, app.chance)
    engine = Engine(app)
    assert app.clock is engine.clock
    await note.submit()
    await engine.drain()
    engine.close()
    assert (app.clock, app.chance) == before
    async with app:
        assert not (await app.store.views.stats()).by_status


async def test_the_same_seed_gives_the_same_story(holdfast_engine: MakeEngine) -> None:
    async def story() -> list[str]:
        app = Holdfast("memory://")

        @app.task("note", retry=Retry(max=2))
        async def note(ctx: Context) -> None:
            raise ValueError

        engine = holdfast_engine(app, seed=7)
        handles = [await note.submit() for _ in range(3)]
        await engine.drain()
        return [
            f"{h.id} {t.due if t else None}"
            for h in handles
            for t in await engine.store.views.load([h.id])
        ]

    assert await story() == await story()
