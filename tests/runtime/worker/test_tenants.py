"""One running task per tenant, first in, first out; what holds the line and what opens it (P7)."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Permanent, Retry, Status
from holdfast.domain.task.task import FailureKind
from holdfast.errors import QueueFull, TaskNotFound, TenantMovedOn
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import task_of

LATER = Retry(backoff=("1m",), jitter=0.0)


class Bench:
    """A task ``flaky`` that fails when told so, and a ``sure`` one that works."""

    def __init__(self, app: Holdfast, **options: Any) -> None:
        self.ran: list[str] = []
        self.fails: type[Exception] | None = ValueError
        self.flow = app.workflow("flaky", payload=str, retry=LATER, **options)

        @self.flow.stage
        async def first(ctx: Context, name: str) -> None: ...

        @self.flow.stage
        async def second(ctx: Context, name: str) -> None:
            self.ran.append(name)
            if self.fails is not None and name == "flaky":
                raise self.fails("told to")

    async def submit(self, name: str) -> Handle[Any]:
        return await self.flow.submit(name, tenant="t-1")


async def line_behind_a_failed_one(
    app: Holdfast, make: MakeEngine, **options: Any
) -> tuple[Bench, Engine, Handle[Any], Handle[Any]]:
    bench = Bench(app, **options)
    bench.fails = Permanent
    engine = make(app)
    first, second = await bench.submit("flaky"), await bench.submit("sure")
    await engine.drain()
    assert (await first.info()).status is Status.FAILED
    bench.fails = None
    return bench, engine, first, second


async def test_a_tenants_tasks_run_one_at_a_time_in_order(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    running: list[str] = []
    order: list[str] = []

    @app.task("step")
    async def step(ctx: Context, name: str) -> None:
        assert ctx.tenant is not None
        assert ctx.tenant not in running
        running.append(ctx.tenant)
        await give_way()
        order.append(name)
        running.remove(ctx.tenant)

    engine = holdfast_engine(app)
    for n in range(5):
        for tenant in ("t-1", "t-2"):
            await step.submit(f"{tenant}.{n}", tenant=tenant)
    await engine.drain()
    for tenant in ("t-1", "t-2"):
        mine = [name for name in order if name.startswith(tenant)]
        assert mine == [f"{tenant}.{n}" for n in range(5)]


async def give_way() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_workflow_that_rests_unsettled_holds_its_tenants_line(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench, engine, first, second = await line_behind_a_failed_one(app, holdfast_engine)
    await engine.advance("1h")
    assert (await second.info()).status is Status.PENDING
    await first.retry()
    await engine.drain()
    assert bench.ran == ["flaky", "flaky", "sure"]
    assert (await second.info()).status is Status.COMPLETED


@pytest.mark.parametrize("settle", ["discard", "rollback"])
async def test_settling_the_held_one_opens_the_line(
    app: Holdfast, holdfast_engine: MakeEngine, settle: str
) -> None:
    _, engine, first, second = await line_behind_a_failed_one(app, holdfast_engine)
    await getattr(first, settle)()
    await engine.drain()
    assert (await second.info()).status is Status.COMPLETED


async def test_a_paused_workflow_holds_the_line_too(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app)
    bench.fails = None
    engine = holdfast_engine(app)
    first, second = await bench.submit("a"), await bench.submit("b")
    await first.pause()
    await engine.drain()
    assert (await second.info()).status is Status.PENDING
    await first.resume()
    await engine.drain()
    assert bench.ran == ["a", "b"]


async def test_with_hold_off_the_line_goes_on(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    _, _, _, second = await line_behind_a_failed_one(app, holdfast_engine, hold=False)
    assert (await second.info()).status is Status.COMPLETED


async def test_a_one_stage_task_does_not_hold_the_line_unless_told_to(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("open", retry=Retry(max=1))
    async def opened(ctx: Context, fails: bool) -> None:
        if fails:
            raise ValueError

    @app.task("held", retry=Retry(max=1), hold=True)
    async def held(ctx: Context, fails: bool) -> None:
        if fails:
            raise ValueError

    engine = holdfast_engine(app)
    after = {}
    for name, task in (("open", opened), ("held", held)):
        await task.submit(True, tenant=name)
        after[name] = await task.submit(False, tenant=name)
    await engine.drain()
    assert (await after["open"].info()).status is Status.COMPLETED
    assert (await after["held"].info()).status is Status.PENDING


@pytest.mark.parametrize("command", ["retry", "rollback"])
async def test_going_over_newer_work_is_refused_unless_forced(
    app: Holdfast, holdfast_engine: MakeEngine, command: str
) -> None:
    _, engine, first, _ = await line_behind_a_failed_one(app, holdfast_engine, hold=False)
    version = (await task_of(engine, first)).version
    with pytest.raises(TenantMovedOn) as refused:
        await getattr(first, command)()
    assert refused.value.tenant == "t-1"
    assert (await task_of(engine, first)).version == version
    await getattr(first, command)(force=True)
    await engine.drain()
    assert (await first.info()).status in (Status.COMPLETED, Status.ROLLED_BACK)


async def test_resuming_over_newer_work_is_refused_unless_forced(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app, hold=False)
    engine = holdfast_engine(app)
    first = await bench.submit("flaky")
    await engine.drain()
    await first.pause()
    await bench.submit("sure")
    await engine.drain()
    with pytest.raises(TenantMovedOn):
        await first.resume()
    bench.fails = None
    await first.resume(force=True)
    await engine.drain()
    assert (await first.info()).status is Status.COMPLETED


async def test_a_retry_that_comes_due_over_newer_work_goes_to_a_person(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app, hold=False)
    engine = holdfast_engine(app)
    first = await bench.submit("flaky")
    await engine.drain()
    assert (await first.info()).status is Status.RETRYING
    await bench.submit("sure")
    await engine.drain()
    bench.fails = None
    await engine.advance("2m")
    info = await first.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    assert info.failure.kind is FailureKind.TENANT_MOVED_ON
    assert bench.ran == ["flaky", "sure"]


async def test_without_newer_work_the_retry_runs(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app, hold=False)
    engine = holdfast_engine(app)
    first = await bench.submit("flaky")
    await engine.drain()
    bench.fails = None
    await engine.advance("2m")
    assert (await first.info()).status is Status.COMPLETED


async def test_a_task_that_is_not_kept_still_answers_for_its_result_and_its_key(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("echo", keep="0")
    async def echo(ctx: Context, text: str) -> str:
        return text

    engine = holdfast_engine(app)
    handle = await echo.submit("hello", key="once", tenant="t-1")
    await engine.drain()
    assert await handle.result() == "hello"
    with pytest.raises(TaskNotFound):
        await handle.info()
    again = await echo.submit("hello", key="once", tenant="t-1")
    assert again.id == handle.id
    await engine.advance("23h")
    assert (await echo.submit("hello", key="once", tenant="t-1")).id == handle.id
    await engine.advance("2h")
    assert (await echo.submit("hello", key="once", tenant="t-1")).id != handle.id


async def test_a_full_queue_refuses_and_takes_again_when_there_is_room(
    holdfast_engine: MakeEngine,
) -> None:
    app = Holdfast("memory://", queue_limit=2)

    @app.task("note")
    async def note(ctx: Context, n: int) -> None: ...

    engine = holdfast_engine(app)
    await note.submit(1, key="one")
    await note.submit(2)
    with pytest.raises(QueueFull) as refused:
        await note.submit(3)
    assert (refused.value.queue, refused.value.limit) == ("default", 2)
    assert (await note.submit(1, key="one")).id, "a repeat is no new task"
    await note.submit(3, queue="other")
    await engine.drain()
    await note.submit(3)


async def test_a_retry_asked_for_before_newer_work_ran_does_not_run_over_it(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app, hold=False)
    bench.fails = Permanent
    engine = holdfast_engine(app)
    first = await bench.submit("flaky")
    await engine.drain()
    bench.fails = None
    await bench.submit("sure")  # ready, and not yet handed out
    await first.retry()
    await engine.drain()
    assert bench.ran == ["flaky", "sure"]
    failure = (await first.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.TENANT_MOVED_ON
    await first.retry(force=True)
    await engine.drain()
    assert (await first.info()).status is Status.COMPLETED
