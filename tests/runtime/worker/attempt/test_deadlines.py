"""One timer for all stages of a worker; each is interrupted at its own moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Context, Holdfast, Retry
from holdfast.runtime.worker.attempt import Deadlines
from holdfast.runtime.worker.running_tasks import RunningTask
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import detail_of


class Bench:
    """Stages that would run for ever; ``ended`` has those that were interrupted, and when."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.began = self.clock.steady()
        self.held: dict[str, RunningTask] = {}
        self.deadlines = Deadlines(self.clock, self.held.values)
        self.ended: list[tuple[str, float]] = []

    def begin(self, name: str, *, ends: float) -> None:
        held = RunningTask(name, name, safe_until=1e9)
        held.run = asyncio.create_task(self._stage(name))
        self.held[name] = held
        self.deadlines.begin(held, self.began + ends)

    async def _stage(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append((name, round(self.clock.steady() - self.began, 3)))

    def rings(self) -> int:
        return sum(not timer.cancelled for timer in self.clock._timers)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    for held in made.held.values():
        assert held.run is not None
        held.run.cancel()
    await asyncio.gather(
        *(held.run for held in made.held.values() if held.run), return_exceptions=True
    )


async def test_each_stage_is_interrupted_at_its_own_moment(bench: Bench) -> None:
    for name, ends in (("a", 5.0), ("b", 9.0), ("c", 2.0), ("d", 5.0)):
        bench.begin(name, ends=ends)
    await bench.clock.elapse("8s")
    assert bench.ended == [("c", 2.0), ("a", 5.0), ("d", 5.0)]
    await bench.clock.elapse("1s")
    assert bench.ended[3:] == [("b", 9.0)]
    assert all(held.out_of_time for held in bench.held.values())


async def test_a_hundred_stages_have_one_timer(bench: Bench) -> None:
    for n in range(100):
        bench.begin(f"s-{n}", ends=60.0 + n)
        assert bench.rings() == 1
    bench.deadlines.close()
    assert bench.rings() == 0


async def test_a_stage_that_has_ended_is_not_touched(bench: Bench) -> None:
    bench.begin("gone", ends=5.0)
    del bench.held["gone"]
    bench.begin("next", ends=float("inf"))  # it is between two stages
    bench.begin("last", ends=7.0)
    await bench.clock.elapse("6s")
    assert bench.ended == []
    assert bench.rings() == 1, "for the last"


async def test_stages_of_one_worker_run_out_of_time_one_by_one(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("brief", timeout="2s", retry=Retry(max=1))
    async def brief(ctx: Context) -> None:
        await asyncio.Event().wait()

    @app.task("long", timeout="20s", retry=Retry(max=1))
    async def long(ctx: Context) -> None:
        await asyncio.Event().wait()

    engine = holdfast_engine(app)
    handles = [await long.submit(), await brief.submit(), await long.submit()]
    await engine.start()
    began = engine.clock.now()
    await engine.advance("30s")
    failures = [(await detail_of(engine, handle)).task.failure for handle in handles]
    assert [round(found.at - began) for found in failures if found] == [20, 2, 20]
    assert all(found and found.error == "holdfast.StageTimeout" for found in failures)
