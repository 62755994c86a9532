"""A worker that is told to stop: it claims no more, checkpoints, and gives back in time."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.task.events import TaskYielded
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.runtime.worker.worker import Worker
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import (
    BOUND_SECONDS,
    FlakyStore,
    Gate,
    events_of,
    task_of,
    within_bounds,
)


class Bench:
    def __init__(self, app: Holdfast) -> None:
        self.ran: list[str] = []
        self.gate = Gate()
        self.flow = app.workflow("upgrade", result=str)

        @self.flow.stage
        async def first(ctx: Context, _: None) -> None:
            self.ran.append("first")
            await self.gate.stand()

        @self.flow.stage
        async def second(ctx: Context, _: None) -> str:
            self.ran.append("second")
            return "done"


@pytest.fixture
def bench(app: Holdfast) -> Bench:
    return Bench(app)


@pytest.fixture
def engine(app: Holdfast, bench: Bench, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def start(app: Holdfast, bench: Bench) -> tuple[Worker, Handle[str]]:
    worker = app.worker(heartbeat_thread=False)
    await worker.start()
    handle = await bench.flow.submit(None)
    await bench.gate.wait_until_reached()
    return worker, handle


async def test_a_stage_that_ends_in_time_is_checkpointed_and_the_task_is_given_back(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    worker, handle = await start(app, bench)
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("10s")
    assert not drain.done()
    bench.gate.open()
    assert await within_bounds(drain) == []
    task = await task_of(engine, handle)
    assert (task.status, task.last_completed, task.lease) == (Status.PENDING, 0, None)
    assert not task.interrupted
    await engine.drain()
    assert bench.ran == ["first", "second"]


async def test_a_stage_that_does_not_end_in_time_is_stopped_and_given_back_uncounted(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    worker, handle = await start(app, bench)
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("29s")
    assert not drain.done()
    await engine.clock.elapse("1s")
    assert await within_bounds(drain) == []
    task = await task_of(engine, handle)
    assert (task.status, task.crashes, task.failures) == (Status.PENDING, 0, 0)
    assert task.interrupted, "its stage was begun: a rollback would have to undo it"
    [given_back] = [e for e in await events_of(engine, handle) if isinstance(e, TaskYielded)]
    assert given_back.worker == worker.name
    bench.gate.open()
    await engine.drain()
    assert await handle.result() == "done"


async def test_a_draining_worker_claims_no_more(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    worker, _ = await start(app, bench)
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("1s")
    later = await bench.flow.submit(None)
    await engine.clock.elapse("10s")
    assert (await later.info()).status is Status.PENDING
    assert worker.running == 1
    bench.gate.open()
    await within_bounds(drain)
    assert bench.ran == ["first"]


async def test_an_idle_worker_drains_at_once_and_leaves(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    worker = app.worker(heartbeat_thread=False)
    await worker.start()
    await engine.clock.elapse("1s")
    assert len(await engine.store.views.workers(live_within_seconds=60)) == 1
    assert await within_bounds(worker.drain()) == []
    assert await engine.store.views.workers(live_within_seconds=60) == []


async def test_a_stage_that_will_not_be_stopped_does_not_hold_up_the_drain_for_ever(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    reached, stubborn = asyncio.Event(), asyncio.Event()

    @app.task("stubborn")
    async def stay(ctx: Context) -> None:
        reached.set()
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    app.settings = app.settings.model_copy(update={"lease": 0.1})
    engine = holdfast_engine(app)
    handle = await stay.submit()
    worker = app.worker(heartbeat_thread=False)
    await worker.start()
    await within_bounds(reached.wait())
    drain = asyncio.create_task(worker.drain())
    try:
        await engine.clock.elapse("31s")
        assert await within_bounds(drain) == [handle.id]
    finally:
        stubborn.set()


class SlowTasks(MemoryTasks):
    """Its writes wait until the test lets them through."""

    through: asyncio.Event | None = None
    asked = 0

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        self.asked += 1
        if self.through is not None:
            await self.through.wait()
        return await super().apply(batch)


class SlowStore(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.tasks: SlowTasks = SlowTasks(self.state)


async def test_a_commit_that_was_begun_is_awaited_and_the_task_then_given_back(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock = ManualClock()
    store = SlowStore(clock)
    store.tasks.through = asyncio.Event()
    bench = Bench(app)
    engine = holdfast_engine(app, store=store, clock=clock)
    worker, handle = await start(app, bench)
    bench.gate.open()
    await clock.elapse("1s")
    assert store.tasks.asked == 1
    drain = asyncio.create_task(worker.drain())
    await clock.elapse("35s")
    store.tasks.through.set()
    assert await within_bounds(drain) == []
    task = await task_of(engine, handle)
    assert (task.status, task.last_completed, task.lease) == (Status.PENDING, 0, None)
    assert bench.ran == ["first"]


async def test_what_is_left_are_plain_functions_and_they_are_given_back_at_the_end(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    reached, opened = threading.Event(), threading.Event()

    @app.task("plain")
    def plain(ctx: Context) -> int:
        reached.set()
        assert opened.wait(BOUND_SECONDS)
        return ctx.fence

    engine = holdfast_engine(app)
    worker = app.worker(heartbeat_thread=False)
    await worker.start()
    handle = await plain.submit()
    assert await asyncio.to_thread(reached.wait, BOUND_SECONDS)
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("31s")
    assert await within_bounds(drain) == [handle.id]
    assert (await handle.info()).status is Status.RUNNING, "a thread keeps its lease"
    await worker.give_back_all()
    task = await task_of(engine, handle)
    assert (task.status, task.crashes, task.interrupted) == (Status.PENDING, 0, True)
    opened.set()
    await engine.drain()
    assert await handle.result() == (await task_of(engine, handle)).fence


async def test_a_drain_without_a_store_ends_all_the_same(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    bench = Bench(app)
    engine = holdfast_engine(app, store=store, clock=clock)
    worker, handle = await start(app, bench)
    store.down = {"*"}
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("62s")
    assert await within_bounds(drain) == []
    store.down = set()
    assert (await task_of(engine, handle)).lease is not None, "it will lapse"
    worker.abandon()


async def test_leaving_running_drains(app: Holdfast, bench: Bench, engine: Engine) -> None:
    async with app.running(heartbeat_thread=False):
        handle = await bench.flow.submit(None)
        await bench.gate.wait_until_reached()
        bench.gate.open()
        assert await within_bounds(handle.result()) == "done"
