"""Workers that die, stores that are away, types that nobody knows (Q6)."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.task import FailureKind
from holdfast.engine.declare import Workflow
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, Gate, event_names, events_of, task_of


def three_stages(app: Holdfast, ran: list[str]) -> Workflow[Any, Any]:
    flow: Workflow[Any, Any] = app.workflow("upgrade")
    for name in "abc":

        @flow.stage(name=name)
        async def stage(ctx: Context, _: None) -> str:
            ran.append(ctx.stage)
            return ctx.stage

    return flow


@pytest.mark.parametrize("stage", ["a", "b", "c"])
@pytest.mark.parametrize(("when", "calls"), [("before", 1), ("after", 2), ("commit", 1)])
async def test_a_crash_at_any_boundary_loses_nothing_and_commits_once(
    app: Holdfast, holdfast_engine: MakeEngine, stage: str, when: Any, calls: int
) -> None:
    ran: list[str] = []
    flow = three_stages(app, ran)
    engine = holdfast_engine(app)
    engine.crash_at(stage, when=when)
    handle = await flow.submit(None, tenant="t-1")
    await engine.drain()
    assert engine.deaths == 1
    assert await handle.result() == "c"
    assert ran.count(stage) == calls
    assert ran == sorted(ran), "the stages before it did not run again"
    assert (await event_names(engine, handle)).count("StageCompleted") == 3


async def test_three_crashes_in_a_row_at_one_stage_suspend_the_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[str] = []
    flow = three_stages(app, ran)
    engine = holdfast_engine(app)
    engine.crash_at("b", when="after", times=5)
    handle = await flow.submit(None)
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    assert info.failure.kind is FailureKind.POISON
    assert ran == ["a", "b", "b", "b"]


async def test_crashes_at_different_stages_do_not_add_up(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[str] = []
    flow = three_stages(app, ran)
    engine = holdfast_engine(app)
    for stage in "abc":
        engine.crash_at(stage, when="after", times=2)
    handle = await flow.submit(None)
    await engine.drain()
    assert engine.deaths == 6
    assert (await handle.info()).status is Status.COMPLETED


async def test_a_poisoned_task_may_be_retried_by_a_person(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[str] = []
    flow = three_stages(app, ran)
    engine = holdfast_engine(app)
    engine.crash_at("b", when="after", times=3)
    handle = await flow.submit(None)
    await engine.drain()
    await handle.retry()
    await engine.drain()
    assert (await handle.info()).status is Status.COMPLETED


async def test_graceful_releases_are_not_counted(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("stand")
    async def stand(ctx: Context) -> int:
        await gate.stand()
        return ctx.attempt

    engine = holdfast_engine(app)
    handle = await stand.submit()
    for _ in range(5):
        gate.reached.clear()
        worker = app.worker(heartbeat_thread=False)
        await worker.start()
        await gate.wait_until_reached()
        await drained(worker, engine.clock)
        task = await task_of(engine, handle)
        assert (task.status, task.crashes, task.failures) == (Status.PENDING, 0, 0)
    gate.open()
    await engine.drain()
    assert await handle.result() == 1


async def drained(worker: Any, clock: ManualClock) -> list[str]:
    drain = asyncio.create_task(worker.drain())
    await clock.elapse("31s")
    return list(await asyncio.wait_for(drain, 5))


class Outage:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.gate = Gate()
        self.ran: list[int] = []
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.store = FlakyStore(self.memory)

        @app.task("stand")
        async def stand(ctx: Context) -> str:
            self.ran.append(ctx.fence)
            await self.gate.stand()
            return "done"

        self.stand = stand
        self.engine = make(app, store=self.store, clock=self.clock)

    async def begun(self) -> Handle[str]:
        handle = await self.stand.submit()
        await self.engine.start()
        await self.gate.wait_until_reached()
        return handle


async def test_a_short_outage_does_not_fail_a_stage(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Outage(app, holdfast_engine)
    handle = await bench.begun()
    bench.store.down = {"*"}
    bench.gate.open()
    await bench.clock.elapse("10s")
    bench.store.down = set()
    await bench.clock.elapse("2s")
    await bench.engine.drain()
    assert await handle.result() == "done"
    assert len(bench.ran) == 1


async def test_a_lease_that_lapsed_in_an_outage_is_nobodys_crash(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Outage(app, holdfast_engine)
    handle = await bench.begun()
    for _ in range(4):
        runs = len(bench.ran)
        bench.store.down = {"*"}
        await bench.clock.elapse("60s")
        bench.store.down = set()
        await bench.clock.elapse("5s")
        assert len(bench.ran) == runs + 1, "taken over when the store was back"
    bench.gate.open()
    await bench.engine.drain()
    assert await handle.result() == "done"
    lost = [e for e in await events_of(bench.engine, handle) if isinstance(e, LeaseLost)]
    assert [e.counted for e in lost] == [False] * 4


async def test_a_worker_stops_its_tasks_before_a_lease_it_cannot_renew_ends(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Outage(app, holdfast_engine)
    await bench.begun()
    worker = await bench.engine.start()
    bench.store.down = {"*"}
    await bench.clock.elapse("25s")
    assert worker.running == 1
    await bench.clock.elapse("4.5s")
    assert worker.running == 0


class Deploy:
    """A type that this worker does not know."""

    def __init__(self, make: MakeEngine) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.ran: list[str] = []
        self.make = make

    def app(self, *, knows: bool) -> Holdfast:
        app = Holdfast(self.store, clock=self.clock)

        @app.task("old")
        async def old(ctx: Context) -> None: ...

        if knows:

            @app.task("new")
            async def new(ctx: Context) -> None:
                self.ran.append(ctx.task_id)

            self.new = new
        return app


async def test_an_unknown_type_is_handed_back_uncounted_and_suspended_after_ten_minutes(
    holdfast_engine: MakeEngine,
) -> None:
    bench = Deploy(holdfast_engine)
    async with bench.app(knows=True):
        handle = await bench.new.submit()
    engine = holdfast_engine(bench.app(knows=False), store=bench.store, clock=bench.clock)
    await engine.advance("9m50s")
    task = await task_of(engine, handle)
    assert (task.status, task.failures, task.crashes) == (Status.PENDING, 0, 0)
    await engine.advance("30s")
    task = await task_of(engine, handle)
    assert task.status is Status.FAILED
    assert task.failure is not None
    assert task.failure.kind is FailureKind.UNKNOWN_TYPE


async def test_a_type_that_a_live_worker_knows_is_never_suspended_as_unknown(
    holdfast_engine: MakeEngine,
) -> None:
    bench = Deploy(holdfast_engine)
    newer = bench.app(knows=True)
    async with newer:
        handle = await bench.new.submit()
        knows_it = newer.worker(queues=("elsewhere",), heartbeat_thread=False)
        await knows_it.start()
        engine = holdfast_engine(bench.app(knows=False), store=bench.store, clock=bench.clock)
        await engine.start()
        await bench.clock.elapse("15m", turns=5)
        assert (await task_of(engine, handle)).status is Status.PENDING
        knows_it.abandon()


async def test_a_worker_that_learns_the_type_in_time_runs_it(holdfast_engine: MakeEngine) -> None:
    bench = Deploy(holdfast_engine)
    async with bench.app(knows=True):
        handle = await bench.new.submit()
    before = holdfast_engine(bench.app(knows=False), store=bench.store, clock=bench.clock)
    await before.advance("5m")
    before.close()
    after = holdfast_engine(bench.app(knows=True), store=bench.store, clock=bench.clock)
    await after.advance("10s")
    assert bench.ran == [handle.id]
