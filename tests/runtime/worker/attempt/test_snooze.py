"""A stage that asks to be called again later."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Holdfast, Retry, Snooze, Status
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.events import TaskSnoozed
from holdfast.domain.task.placement import Place
from holdfast.errors import InvalidInput, TaskFailed
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, detail_of, event_names, events_of, task_of


def declare_counting(app: Holdfast, times: int, *, seen: list[Any]) -> Any:
    """A task that snoozes so often before it is done."""

    @app.task("count", retry=Retry(max=2))
    async def count(ctx: Context) -> int:
        seen.append((ctx.attempt, ctx.data.get("calls", 0)))
        ctx.data["calls"] = ctx.data.get("calls", 0) + 1
        if ctx.data["calls"] <= times:
            raise Snooze("1m")
        return int(ctx.data["calls"])

    return count


async def test_a_snoozed_stage_is_called_again_after_its_delay_with_the_data_it_left(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen: list[Any] = []
    engine = holdfast_engine(app)
    handle = await declare_counting(app, 3, seen=seen).submit()
    await engine.drain()
    assert (await handle.info()).status is Status.PENDING
    await engine.advance("59s")
    assert len(seen) == 1
    await engine.advance("2m1s")
    assert seen == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert await handle.result() == 4


async def test_a_snooze_takes_no_slot(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    engine = holdfast_engine(app)
    handle = await declare_counting(app, 1, seen=[]).submit()
    await engine.drain()
    assert engine.worker is not None
    assert engine.worker.running == 0
    task = await task_of(engine, handle)
    assert (task.place, task.lease) == (Place.LATER, None)


async def test_a_snooze_of_no_time_goes_to_the_end_of_the_queue_at_once(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    calls: list[int] = []

    @app.task("turns")
    async def turns(ctx: Context, number: int) -> None:
        calls.append(number)
        ctx.data["calls"] = ctx.data.get("calls", 0) + 1
        if ctx.data["calls"] < 3:
            raise Snooze(0)

    engine = holdfast_engine(app, slots=1)
    await turns.submit_many([1, 2])
    await engine.start()
    for _ in range(1_000):  # turns of the loop: no time passes
        await asyncio.sleep(0)
    assert calls == [1, 2, 1, 2, 1, 2]


async def test_the_timeline_tells_of_a_snooze_behind_the_start_of_its_stage(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    engine = holdfast_engine(app)
    handle = await declare_counting(app, 1, seen=[]).submit()
    await engine.drain()
    assert (await event_names(engine, handle))[-2:] == ["StageStarted", "TaskSnoozed"]
    last = (await events_of(engine, handle))[-1]
    assert isinstance(last, TaskSnoozed)
    assert (last.stage, last.run, last.delay_seconds) == ("count", 1, 60.0)


async def test_why_says_until_when_it_snoozes(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    engine = holdfast_engine(app)
    handle = await declare_counting(app, 1, seen=[]).submit()
    await engine.drain()
    told = await handle.why()
    assert told.startswith("It is due in 1m (")
    assert "stage 'count' has snoozed for 1m and is then called again" in told


async def test_a_snooze_makes_the_failures_before_it_count_no_more(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    calls: list[int] = []

    @app.task("now.and.then", retry=Retry(max=2, backoff=("1m",)))
    async def work(ctx: Context) -> str:
        calls.append(ctx.attempt)
        if len(calls) in (1, 3):
            raise ValueError("no luck")
        if len(calls) == 2:
            raise Snooze("1m")
        return "done"

    engine = holdfast_engine(app)
    handle = await work.submit()
    await engine.advance("10m")
    assert calls == [1, 2, 1, 2]
    assert await handle.result() == "done"


async def test_a_failed_call_after_a_snooze_leaves_the_data_of_the_snooze(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen: list[Any] = []

    @app.task("work", retry=Retry(max=2, backoff=("1m",)))
    async def work(ctx: Context) -> None:
        seen.append(dict(ctx.data))
        ctx.data["n"] = len(seen)
        if len(seen) == 1:
            raise Snooze(1)
        if len(seen) == 2:
            raise ValueError("no luck")

    engine = holdfast_engine(app)
    await work.submit()
    await engine.advance("10m")
    assert seen == [{}, {"n": 1}, {"n": 1}]


class Flow:
    """Three stages with undos; one of them snoozes so often, then fails for good."""

    def __init__(self, app: Holdfast, snoozer: str, *, fails: bool = False) -> None:
        self.app, self.snoozer, self.fails = app, snoozer, fails
        self.undone: list[tuple[str, Any]] = []
        self.called: list[tuple[str, Any]] = []
        self.flow = app.workflow("flow", payload=int, retry=Retry(max=1))
        for name in ("a", "b", "c"):
            stage = self.flow.stage(name=name)(self.stage)
            stage.undo(self.undo)

    async def stage(self, ctx: Context, times: int) -> None:
        self.called.append((ctx.stage, ctx.data.get("naps", 0)))
        if ctx.stage == self.snoozer and ctx.data.get("naps", 0) < times:
            ctx.data["naps"] = ctx.data.get("naps", 0) + 1
            raise Snooze("1m")
        if ctx.stage == self.snoozer and self.fails:
            raise ValueError("no luck")
        ctx.data["done"] = ctx.stage

    async def undo(self, ctx: Context, times: int) -> None:
        self.undone.append((ctx.stage, dict(ctx.data)))


async def test_a_snooze_behind_a_checkpoint_keeps_its_data_in_it(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow = Flow(app, "b")
    engine = holdfast_engine(app)
    handle = await flow.flow.submit(2)
    await engine.drain()
    detail = await detail_of(engine, handle)
    assert detail.checkpoint is not None
    saved = ckpt.decode(detail.checkpoint)
    assert (saved.last_completed_stage_index, saved.version) == (0, 2)
    assert saved.custom_data == {"done": "a", "naps": 1}
    assert detail.data is None
    await engine.advance("5m")
    assert [name for name, _ in flow.called] == ["a", "b", "b", "b", "c"]
    assert (await handle.info()).status is Status.COMPLETED


async def test_a_checkpoint_does_not_grow_too_old_while_its_task_snoozes(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen: list[str] = []
    flow = app.workflow("flow", payload=int)

    @flow.stage
    async def first(ctx: Context, order: int) -> None:
        seen.append("first")

    @flow.stage
    async def poll(ctx: Context, order: int) -> None:
        seen.append("poll")
        if len(seen) < 6:
            raise Snooze("5d")

    engine = holdfast_engine(app)
    handle = await flow.submit(1)
    await engine.advance("30d")
    assert seen == ["first", *["poll"] * 5]
    assert (await handle.info()).status is Status.COMPLETED


@pytest.mark.parametrize("snoozer", ["a", "b"])
async def test_a_stage_that_has_snoozed_is_undone_as_one_that_was_begun(
    app: Holdfast, holdfast_engine: MakeEngine, snoozer: str
) -> None:
    flow = Flow(app, snoozer)
    engine = holdfast_engine(app)
    handle = await flow.flow.submit(9)
    await engine.drain()
    await handle.pause()
    await handle.rollback()
    await engine.drain()
    assert (await handle.info()).status is Status.ROLLED_BACK
    assert [name for name, _ in flow.undone] == (["a"] if snoozer == "a" else ["b", "a"])
    assert flow.undone[0][1]["naps"] == 1


async def test_a_retry_from_scratch_forgets_the_data_of_a_snooze(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow = Flow(app, "a", fails=True)
    engine = holdfast_engine(app)
    handle = await flow.flow.submit(1)
    await engine.advance("1m")
    with pytest.raises(TaskFailed):
        await handle.result()
    await handle.retry()
    await engine.drain()
    assert flow.called == [("a", 0), ("a", 1), ("a", 1)]
    await handle.retry(from_checkpoint=False)
    await engine.drain()
    assert flow.called[-1] == ("a", 0)


async def test_an_undo_finds_the_data_of_the_checkpoint_and_not_of_a_snooze_long_before_it(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow = Flow(app, "a")
    engine = holdfast_engine(app)
    handle = await flow.flow.submit(1)
    gate = Gate()
    flow_stage = flow.stage

    async def stand(ctx: Context, times: int) -> None:
        if ctx.stage == "c":
            await gate.stand()
        await flow_stage(ctx, times)

    for stage in flow.flow.declared.stages:
        stage.call = stand
    await engine.advance("2m")
    await gate.wait_until_reached()
    await handle.pause()
    gate.open()
    gate.reached.clear()
    flow.snoozer, flow.fails = "c", True
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    assert flow.undone[0] == ("c", {"naps": 1, "done": "b"})


@pytest.mark.parametrize("command", ["cancel", "pause"])
async def test_a_request_that_waits_is_applied_by_a_snooze(
    app: Holdfast, holdfast_engine: MakeEngine, command: str
) -> None:
    gate = Gate()

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        await gate.stand()
        ctx.data["kept"] = True
        raise Snooze("1m")

    engine = holdfast_engine(app)
    handle = await stand.submit()
    await engine.start()
    await gate.wait_until_reached()
    await getattr(handle, command)("enough")
    gate.open()
    await engine.drain()
    info = await handle.info()
    assert info.status is (Status.CANCELLED if command == "cancel" else Status.PAUSED)
    assert info.reason == "enough"
    assert (await detail_of(engine, handle)).data == b'{"kept":true}'


async def test_a_snooze_in_an_undo_is_a_failure_that_says_so(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow = app.workflow("flow", payload=int, retry=Retry(max=1))

    @flow.stage
    async def first(ctx: Context, order: int) -> None: ...

    @first.undo
    async def un_first(ctx: Context, order: int) -> None:
        raise Snooze("1m")

    engine = holdfast_engine(app)
    handle = await flow.submit(1)
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.ROLLBACK_FAILED
    assert info.failure is not None
    assert info.failure.message == "Snooze is for stages: an undo that waits raises RetryAfter"


async def test_data_that_cannot_be_kept_fails_the_stage_that_snoozes(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("large")
    async def large(ctx: Context) -> None:
        ctx.data["much"] = "x" * ckpt.DATA_LIMIT_BYTES
        raise Snooze("1m")

    engine = holdfast_engine(app)
    handle = await large.submit()
    await engine.drain()
    with pytest.raises(TaskFailed, match=r"ctx\.data is"):
        await handle.result()


async def test_a_plain_function_may_snooze(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    @app.task("plain")
    def plain(ctx: Context) -> int:
        ctx.data["n"] = ctx.data.get("n", 0) + 1
        if ctx.data["n"] < 3:
            raise Snooze(5)
        return int(ctx.data["n"])

    engine = holdfast_engine(app)
    handle = await plain.submit()
    await engine.advance("1m")
    assert await handle.result() == 3


async def test_a_worker_that_stops_keeps_the_data_of_a_snooze(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        ctx.data["kept"] = True
        try:
            await gate.stand()
        finally:
            raise Snooze("1m")

    engine: Engine = holdfast_engine(app, slots=1)
    handle = await stand.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    engine.worker = None
    gate.open()
    await worker.drain()
    assert (await detail_of(engine, handle)).data == b'{"kept":true}'
    assert (await event_names(engine, handle))[-1] == "TaskSnoozed"


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "soon", 101 * 365 * 86_400])
def test_a_delay_is_bounded_as_that_of_a_retry(delay: Any) -> None:
    with pytest.raises(InvalidInput):
        Snooze(delay)


async def test_a_crash_after_a_snooze_goes_on_from_its_data(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen: list[Any] = []
    engine = holdfast_engine(app)
    handle = await declare_counting(app, 2, seen=seen).submit()
    await engine.drain()
    engine.crash_at("count", when="before")
    await engine.advance("5m")
    assert seen == [(1, 0), (2, 1), (1, 2)]
    assert await handle.result("1s") == 3
