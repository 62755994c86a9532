"""Leases are renewed from a thread, and lost where they must be."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from holdfast import Context, Holdfast, Status
from holdfast.domain.task.task import Progress
from holdfast.ports import Beat, Clock, Renewal
from holdfast.runtime.worker.heartbeat import Heartbeat
from holdfast.runtime.worker.running_tasks import RunningStages, RunningTask, RunningTasks, Stop
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.environment import environment
from tests.support.runtime.helpers import (
    BOUND_SECONDS,
    FlakyStore,
    Gate,
    event_names,
    task_of,
    within_bounds,
)
from verify.interception import InterceptedStore, Verb


async def test_a_running_stage_keeps_its_lease(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    gate = Gate()
    stand = gate.declare(app, "stand")

    engine = holdfast_engine(app)
    handle = await stand.submit()
    await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("10m", turns=5)
    assert "LeaseLost" not in await event_names(engine, handle)
    gate.open()
    await engine.drain()


async def test_a_beat_serves_all_leases_of_a_worker(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()
    stand = gate.declare(app, "stand")

    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    engine = holdfast_engine(app, store=store, clock=clock)
    for _ in range(50):
        await stand.submit()
    await engine.start()
    await gate.wait_until_reached()
    await clock.elapse("2s")
    store.calls.clear()
    await clock.elapse("30s")
    assert store.calls.count("renew") == 3, "one call every third of a lease"
    gate.open()
    await engine.drain()


async def test_the_lease_is_kept_while_the_event_loop_is_blocked() -> None:
    """With real threads and real time, since that is what it is about."""
    app = Holdfast("memory://", lease=3)
    renewed = threading.Event()

    class WatchedTasks(MemoryTasks):
        blocked = False

        def _renew(self, renewal: Renewal, until: float) -> bool:
            if self.blocked:
                renewed.set()
            return super()._renew(renewal, until)

    class Watched(MemoryStore):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.tasks: WatchedTasks = WatchedTasks(self.state)

    store = Watched(app.clock)
    app = Holdfast(store, lease=3)

    @app.task("block")
    async def block(ctx: Context) -> bool:
        store.tasks.blocked = True
        return renewed.wait(BOUND_SECONDS)  # blocks the loop: no coroutine of this worker can run

    async with app.running():
        handle = await block.submit()
        assert await within_bounds(handle.result()), "renewed from outside the loop"


async def test_a_hung_stage_loses_its_lease_after_timeout_and_grace(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    stubborn, ends = asyncio.Event(), list[int]()

    @app.task("hang", timeout="60s")
    async def hang(ctx: Context) -> str:
        while ctx.attempt == 1 and not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue
        ends.append(ctx.attempt)
        return f"attempt {ctx.attempt}"

    engine = holdfast_engine(app)
    handle = await hang.submit()
    await engine.start()
    try:
        await engine.clock.elapse("69s")
        assert (await task_of(engine, handle)).lease is not None
        assert "LeaseLost" not in await event_names(engine, handle)
        await engine.clock.elapse("35s")  # the grace is over, and what was left of the lease
        assert "LeaseLost" in await event_names(engine, handle)
        assert await within_bounds(handle.result()) == "attempt 2"
    finally:
        stubborn.set()
    await engine.drain()
    assert ends == [2, 1]
    assert (await event_names(engine, handle)).count("StageCompleted") == 1


async def test_a_lease_that_the_store_gave_to_another_stops_the_run(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, stopped = Gate(), asyncio.Event()

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        try:
            await gate.stand()
        except asyncio.CancelledError:
            stopped.set()
            raise

    clock = ManualClock()
    memory = MemoryStore(clock)
    engine = holdfast_engine(app, store=memory, clock=clock)
    handle = await stand.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    task = memory.state.tasks[handle.id]
    assert task.lease is not None
    memory.state.tasks[handle.id] = msgspec.structs.replace(
        task, lease=msgspec.structs.replace(task.lease, id="another's", owner="another")
    )
    await clock.elapse("11s")
    assert stopped.is_set()
    assert worker.running == 0
    after = await task_of(engine, handle)
    assert after.version == task.version, "a run without its lease writes nothing"
    assert after.status is Status.RUNNING


async def test_a_stage_does_not_begin_when_its_process_was_stopped_until_the_lease_had_lapsed(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seconds_left: list[float] = []

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        lease = (await task_of(engine, handle)).lease
        assert lease is not None
        seconds_left.append(lease.until - clock.now())

    clock = ManualClock()
    store = StoppedInRenewal(clock)
    engine = holdfast_engine(app, store=store, clock=clock)
    handle = await stand.submit()
    await store.tasks.claim("w-0", request="1", queues=["default"], limit=1, lease_seconds=1.0)
    clock.advance(2.0)
    await store.tasks.expire(limit=1, count_crashes=True)  # so that the next begin is noted at once
    store.stops_for_seconds = 60.0
    await engine.start()
    await clock.elapse("1s")
    assert store.stops_for_seconds == 0.0, "the process was stopped"
    assert seconds_left == []
    await store.tasks.expire(limit=1, count_crashes=True)
    await engine.drain(timeout=10)
    assert [left > 0 for left in seconds_left] == [True]


async def test_a_stage_does_not_begin_when_its_tenant_was_held_while_its_begin_was_noted(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    begun: list[str] = []

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        begun.append(ctx.stage)

    async def hold() -> None:
        await app.tenants.hold("t-1")
        worker.held_tenants.replace(["t-1"])  # the worker sees it at once

    clock = ManualClock()
    store = StoppedInRenewal(clock)
    engine = holdfast_engine(app, store=store, clock=clock)
    await stand.submit(tenant="t-1")
    await store.tasks.claim("w-0", request="1", queues=["default"], limit=1, lease_seconds=1.0)
    clock.advance(2.0)
    await store.tasks.expire(limit=1, count_crashes=True)  # so that the next begin is noted at once
    store.on_begin = hold
    worker = await engine.start()
    await clock.elapse("1s")
    assert store.on_begin is None, "the begin was noted"
    assert begun == []
    await app.tenants.release("t-1")
    await engine.drain(timeout=10)
    assert begun == ["stand"]


async def test_the_store_is_told_that_a_stage_begins_though_a_beat_took_the_news_and_was_lost() -> (
    None
):
    sent: list[Progress | None] = []

    async def renew(_: Beat, batch: Sequence[Renewal], **options: Any) -> list[bool]:
        sent.extend(renewal.progress for renewal in batch)
        return [True] * len(batch)

    clock = ManualClock()
    heartbeat = Heartbeat(
        environment(cast(Any, SimpleNamespace(tasks=SimpleNamespace(renew=renew))), clock),
        running=RunningTasks(lease_seconds=30.0, stages=RunningStages()),
        describe=lambda: cast(Any, None),
        on_zombie=lambda _: None,
        publish=lambda _: None,
    )
    running = RunningTask("task-1", "lease-1", safe_until=clock.steady() + 30.0)
    running.begin("one", at=clock.now(), ends=inf, renew_until=inf)
    assert running.renewal().progress is not None, "of a beat that does not arrive"
    await heartbeat.renew_now(running)
    assert [progress.stage for progress in sent if progress] == ["one"]


class StoppedInRenewal(InterceptedStore):
    """The process is stopped while it notes in the store that a stage begins."""

    def __init__(self, clock: ManualClock) -> None:
        self.stops_for_seconds = 0.0
        self.on_begin: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        super().__init__(MemoryStore(clock), self._intercept)

    def _intercept(self, name: str, verb: Verb) -> Verb:
        async def renew(beat: Beat, batch: Sequence[Renewal], **options: Any) -> Any:
            answers = await verb(beat, batch, **options)
            if any(renewal.progress for renewal in batch):
                self._clock.advance(self.stops_for_seconds)
                self.stops_for_seconds = 0.0
                if self.on_begin is not None:
                    await self.on_begin()
                    self.on_begin = None
            return answers

        return renew if name == "tasks.renew" else verb


def held() -> RunningTask:
    return RunningTask("task-1", "lease-1", safe_until=100.0)


async def test_only_new_progress_is_sent() -> None:
    one = held()
    assert one.renewal().progress is None
    one.report(Progress(fraction=0.1))
    one.report(Progress(fraction=0.2))
    sent = one.renewal().progress
    assert sent is not None
    assert sent.fraction == 0.2
    assert one.renewal().progress is None


async def test_a_lost_lease_beats_a_drain_and_a_drain_never_beats_a_lost_lease() -> None:
    one = held()
    one.ask_to_stop(Stop.DRAIN)
    one.ask_to_stop(Stop.LEASE_LOST)
    one.ask_to_stop(Stop.DRAIN)
    assert one.stop is Stop.LEASE_LOST


async def test_nothing_is_renewed_past_its_time_or_once_it_was_told_to_stop() -> None:
    one = held()
    assert one.may_renew(1e9)
    one.renew_until = 50.0
    assert one.may_renew(49.9)
    assert not one.may_renew(50.0)
    two = held()
    two.ask_to_stop(Stop.LEASE_LOST)
    assert not two.may_renew(0.0)


async def test_a_worker_with_a_heartbeat_thread_stops_promptly() -> None:
    app = Holdfast("memory://")

    @app.task("nothing")
    async def nothing(ctx: Context) -> None: ...

    began = time.monotonic()
    async with app.running(workers=2):
        pass
    assert time.monotonic() - began < BOUND_SECONDS
    assert not [t for t in threading.enumerate() if t.name == "holdfast-heartbeat"]
