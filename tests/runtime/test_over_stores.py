"""The main roads, end to end, on each store: the same app runs on all of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast import Canary, Context, Filter, Handle, Holdfast, Retry, Snooze, Status
from holdfast.errors import KeyConflict, TaskRolledBack
from holdfast.ports import Stats, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.views.store import SqliteViews
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, detail_of, event_names, within_bounds

T = TypeVar("T")


class RestingViews(SqliteViews):
    at_rest: asyncio.Event

    async def stats(self) -> Stats:
        await within_bounds(self.at_rest.wait())
        return await super().stats()


class Unhurried(SqliteStore):
    """Counts what its threads have in hand, and tells its figures when that is nothing: the engine
    asks for them before it moves the clock, which would run away from a slow disk."""

    _in_hand = 0

    async def open(self) -> None:
        await super().open()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self.views: RestingViews = RestingViews(self._open_here)
        self.views.at_rest = self._at_rest
        sides: list[Any] = [self._writer, self._open_here().readers]
        for side in sides:
            side.do = self._counted(side.do)

    def _counted(self, do: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def counted(work: Any, *args: Any, **options: Any) -> T:
            self._in_hand += 1
            self._at_rest.clear()
            try:
                return await do(work, *args, **options)
            finally:
                self._in_hand -= 1
                if not self._in_hand:
                    self._at_rest.set()

        return counted


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Store]:
    kept: Store = MemoryStore(clock)
    if request.param == "sqlite":
        kept = Unhurried(tmp_path / "holdfast.db", clock)
    await kept.open()
    yield kept
    findings = await kept.admin.doctor(fix=False, limit=100)
    await kept.close()
    assert list(findings) == []


class Bench:
    def __init__(self, app: Holdfast) -> None:
        self.said: list[str] = []
        self.fails: set[str] = set()
        self.gate: Gate | None = None
        self.flow = app.workflow(
            "upgrade", payload=int, result=int, retry=Retry(max=2, backoff=("1m",), jitter=0.0)
        )

        @self.flow.stage
        async def snapshot(ctx: Context, version: int) -> str:
            await self.step(ctx, "snapshot")
            ctx.data["seen"] = [version]
            return f"s-{version}"

        @snapshot.undo
        async def drop(ctx: Context, version: int) -> None:
            self.said.append(f"drop {ctx.result_of(snapshot)}")

        @self.flow.stage
        def migrate(ctx: Context, version: int) -> int:
            self.said.append("migrate")
            if "migrate" in self.fails:
                raise ValueError("migrate")
            return len(ctx.result_of(snapshot)) + len(ctx.data["seen"])

        @self.flow.stage
        async def switch(ctx: Context, version: int) -> int:
            await self.step(ctx, "switch")
            return ctx.result_of(migrate) + version

    async def step(self, ctx: Context, name: str) -> None:
        self.said.append(name)
        if self.gate is not None and name == "snapshot":
            await self.gate.stand()
        if name in self.fails:
            raise ValueError(name)


@pytest.fixture
def bench(app: Holdfast) -> Bench:
    return Bench(app)


@pytest.fixture
async def engine(
    app: Holdfast, bench: Bench, store: Store, clock: ManualClock, holdfast_engine: MakeEngine
) -> AsyncIterator[Engine]:
    made = holdfast_engine(app, store=store, clock=clock)
    yield made
    made.close()


async def submitted(bench: Bench, engine: Engine, **options: Any) -> Handle[int]:
    handle = await bench.flow.submit(7, tenant="t-1", **options)
    await engine.drain()
    return handle


async def test_a_workflow_completes(bench: Bench, engine: Engine) -> None:
    handle = await submitted(bench, engine)
    assert await handle.result() == 11
    assert bench.said == ["snapshot", "migrate", "switch"]
    assert (await handle.info()).completed == ("snapshot", "migrate", "switch")
    assert (await handle.envelope()).status == "completed"


async def test_a_failed_stage_is_retried_at_its_time_and_suspended_at_the_last(
    bench: Bench, engine: Engine
) -> None:
    bench.fails = {"migrate"}
    handle = await submitted(bench, engine)
    assert (await handle.info()).status is Status.RETRYING
    await engine.advance("61s")
    await engine.drain()
    assert (await handle.info()).status is Status.FAILED
    bench.fails = set()
    await handle.retry()
    await engine.drain()
    assert await handle.result() == 11
    assert bench.said == ["snapshot", "migrate", "migrate", "migrate", "switch"]


@pytest.mark.parametrize("stage", ["snapshot", "migrate", "switch"])
@pytest.mark.parametrize("when", ["before", "after", "commit"])
async def test_a_crash_loses_nothing(bench: Bench, engine: Engine, stage: str, when: Any) -> None:
    engine.crash_at(stage, when=when)
    handle = await submitted(bench, engine)
    assert engine.deaths == 1
    assert await handle.result() == 11
    assert bench.said.count(stage) == (2 if when == "after" else 1)
    assert (await event_names(engine, handle)).count("StageCompleted") == 3


async def test_three_crashes_suspend(bench: Bench, engine: Engine) -> None:
    engine.crash_at("migrate", times=3)
    handle = await submitted(bench, engine)
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.kind == "poison"


async def test_a_rollback_undoes_and_a_retry_starts_over(bench: Bench, engine: Engine) -> None:
    bench.fails = {"switch"}
    handle = await submitted(bench, engine)
    await handle.pause()
    await handle.rollback("no good")
    await engine.drain()
    assert bench.said[-1] == "drop s-7"
    with pytest.raises(TaskRolledBack):
        await handle.result()
    assert (await detail_of(engine, handle)).checkpoint is None
    bench.fails = set()
    await handle.retry()
    await engine.drain()
    assert await handle.result() == 11


@pytest.mark.parametrize("command", ["pause", "cancel"])
async def test_a_request_during_a_stage_acts_behind_it(
    bench: Bench, engine: Engine, command: str
) -> None:
    bench.gate = Gate()
    handle = await bench.flow.submit(7, tenant="t-1")
    await engine.start()
    await bench.gate.wait_until_reached()
    await getattr(handle, command)()
    bench.gate.open()
    await engine.drain()
    assert bench.said == ["snapshot"]
    assert (await handle.info()).status in (Status.PAUSED, Status.CANCELLED)


async def test_a_tenants_line_is_kept_and_a_key_gives_the_first_task(
    bench: Bench, engine: Engine
) -> None:
    bench.fails = {"migrate"}
    first = await submitted(bench, engine, key="upgrade-7")
    second = await submitted(bench, engine)
    assert (await second.info()).status is Status.PENDING
    assert (await submitted(bench, engine, key="upgrade-7")).id == first.id
    with pytest.raises(KeyConflict):
        await bench.flow.submit(8, tenant="t-1", key="upgrade-7")
    await first.cancel()
    bench.fails = set()
    await engine.drain()
    assert await within_bounds(second.result()) == 11


async def test_the_recovery_after_a_restart(
    bench: Bench, engine: Engine, app: Holdfast, store: Store, holdfast_engine: MakeEngine
) -> None:
    """Section 7.3 of the persistence document, call by call."""
    bench.fails = {"migrate"}
    handle = await submitted(bench, engine)
    await engine.advance("61s")
    await engine.drain()
    engine.close()

    again = holdfast_engine(app, store=store, clock=engine.clock)
    status = await app.query.query_task_status_by_tenant("t-1")
    assert status.task is not None
    assert (status.task.id, status.task.status) == (handle.id, Status.FAILED)
    assert await app.query.has_checkpoint("t-1")
    bench.fails = set()
    bench.said.clear()
    await app.query.retry_task_by_tenant("t-1", from_checkpoint=True)
    await again.drain()
    assert bench.said == ["migrate", "switch"], "completed stages are skipped"
    assert await handle.result() == 11
    assert not await app.query.has_checkpoint("t-1")
    again.close()


async def test_a_stage_that_snoozes_finds_its_data_again(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    flow, seen = app.workflow("poll", payload=int), list[Any]()

    @flow.stage
    async def first(ctx: Context, order: int) -> None:
        await poll(ctx)

    @flow.stage
    async def second(ctx: Context, order: int) -> None:
        await poll(ctx)

    @second.undo
    async def un_second(ctx: Context, order: int) -> None:
        seen.append(("undo", dict(ctx.data)))

    async def poll(ctx: Context) -> None:
        name = ctx.stage
        seen.append((name, dict(ctx.data)))
        ctx.data[name] = ctx.data.get(name, 0) + 1
        if ctx.data[name] < 2 or name == "second":
            raise Snooze("1m")

    handle = await flow.submit(1, tenant="t-1")
    for _ in range(90):  # second by second: a store with threads of its own lives in real time
        await engine.advance(1)
        if len(seen) == 3:
            break
    assert seen == [
        ("first", {}),
        ("first", {"first": 1}),
        ("second", {"first": 2}),
    ]
    await handle.pause()
    await handle.rollback()
    await engine.drain()
    assert seen[-1] == ("undo", {"first": 2, "second": 1})
    assert (await handle.info()).status is Status.ROLLED_BACK


async def test_a_bulk_action_sets_suspended_tasks_going(
    app: Holdfast, bench: Bench, engine: Engine
) -> None:
    bench.fails = {"switch"}
    handles = [await bench.flow.submit(n, tenant=f"t-{n}") for n in range(12)]
    await engine.advance("10m")
    bench.fails = set()
    await engine.advance(1)
    bulk = await app.bulk.start("resume", Filter(type="upgrade"), canary=Canary(steps=(1, 4)))
    info = await bulk.info()
    for _ in range(600):  # second by second: a store with threads of its own lives in real time
        await engine.advance(1)
        info = await bulk.info()
        if info.over:
            break
    assert (info.phase, info.counts.done, info.counts.ended) == ("done", 12, 12)
    for handle in handles:
        assert (await handle.info()).status is Status.COMPLETED
