"""What a stage sees, and what it leaves behind."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, Retry
from holdfast.domain.task.checkpoint import DATA_LIMIT_BYTES
from holdfast.domain.task.task import FailureKind
from holdfast.errors import InvalidInput, NoResult, TaskFailed
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, detail_of, suspend, task_of

QUICK = Retry(backoff=(1,))


@dataclass
class Snapshot:
    path: str
    size: int


class Report(BaseModel):
    rows: int


class Order(msgspec.Struct):
    version: int


async def test_results_reach_later_stages_as_what_they_were(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen: list[Any] = []
    upgrade = app.workflow("upgrade", payload=Order, result=Report)

    @upgrade.stage
    async def snapshot(ctx: Context, order: Order) -> Snapshot:
        seen.append(ctx.find_result(migrate))
        return Snapshot(path=f"/{order.version}", size=3)

    @upgrade.stage
    def migrate(ctx: Context, order: Order) -> Report:
        seen.append(ctx.result_of(snapshot))
        return Report(rows=7)

    engine = holdfast_engine(app)
    handle = await upgrade.submit(Order(version=2))
    await engine.drain()
    assert seen == [None, Snapshot(path="/2", size=3)]
    assert await handle.result() == Report(rows=7)


async def test_asking_for_the_result_of_a_stage_that_has_none_is_an_error(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    upgrade = app.workflow("upgrade", retry=Retry(max=1))

    @upgrade.stage
    async def first(ctx: Context, _: None) -> int:
        return ctx.result_of(second)

    @upgrade.stage
    async def second(ctx: Context, _: None) -> int:
        return 2

    failure = await suspend(holdfast_engine(app), upgrade, None)
    assert failure.error.endswith(NoResult.__name__)


async def test_data_is_kept_from_stage_to_stage_and_after_the_end(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    upgrade = app.workflow("upgrade")

    @upgrade.stage
    async def first(ctx: Context, _: None) -> None:
        ctx.data["schema"] = 7

    @upgrade.stage
    async def second(ctx: Context, _: None) -> None:
        ctx.data["schema"] += 1
        ctx.data["tables"] = ["a", "b"]

    engine = holdfast_engine(app)
    handle = await upgrade.submit(None)
    await engine.drain()
    detail = await detail_of(engine, handle)
    assert detail.data is not None
    assert msgspec.json.decode(detail.data) == {"schema": 8, "tables": ["a", "b"]}
    assert detail.checkpoint is None, "a completed task has no checkpoint"


async def test_a_failed_stage_leaves_none_of_its_data(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    seen = []
    upgrade = app.workflow("upgrade", retry=QUICK)

    @upgrade.stage
    async def first(ctx: Context, _: None) -> None:
        ctx.data["list"] = [1]

    @upgrade.stage
    async def second(ctx: Context, _: None) -> None:
        seen.append(dict(ctx.data))
        ctx.data["list"].append(2)
        ctx.data["half"] = "done"
        if ctx.attempt == 1:
            raise ValueError

    engine = holdfast_engine(app)
    await upgrade.submit(None)
    await engine.advance("5s")
    assert seen == [{"list": [1, 2]}, {"list": [1, 2]}]  # appended to after it was seen
    assert "half" not in seen[1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("big", "x" * DATA_LIMIT_BYTES),
        ("odd", object()),
        ("nan", float("nan")),
        ("surrogate", "\ud800"),
        ("set", {1, 2}),
        ("huge", 2**70),
    ],
)
async def test_data_that_cannot_be_kept_suspends_the_task(
    app: Holdfast, holdfast_engine: MakeEngine, key: str, value: Any
) -> None:
    ran = []

    @app.task("put.data")
    async def put(ctx: Context) -> None:
        ran.append(ctx.attempt)
        ctx.data[key] = value

    failure = await suspend(holdfast_engine(app), put)
    assert failure.kind is FailureKind.SERIALISATION
    assert ran == [1]


@pytest.mark.parametrize("value", [object(), float("inf"), "x" * 2_000_000, "\ud800"])
async def test_a_result_that_is_no_json_suspends_the_task(
    app: Holdfast, holdfast_engine: MakeEngine, value: Any
) -> None:
    @app.task("return.it")
    async def give(ctx: Context) -> Any:
        return value

    failure = await suspend(holdfast_engine(app), give)
    assert failure.kind is FailureKind.SERIALISATION
    assert "result of give" in failure.message


async def test_a_result_of_another_type_than_declared_suspends_the_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("return.it")
    async def give(ctx: Context) -> int:
        return "seven"  # type: ignore[return-value]

    engine = holdfast_engine(app)
    handle = await give.submit()
    await engine.drain()
    with pytest.raises(TaskFailed, match="result of give"):
        await handle.result()


async def test_the_effect_key_is_stable_over_retries_and_new_after_a_start_from_scratch(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    keys: list[str] = []

    @app.task("pay", retry=Retry(max=2, backoff=(1,)))
    async def pay(ctx: Context) -> None:
        keys.append(ctx.key)
        raise ValueError

    engine = holdfast_engine(app)
    handle = await pay.submit(key="order-7")
    await engine.advance("5s")
    await handle.retry()
    await engine.drain()
    assert keys == [f"{handle.id}/1/pay"] * 3
    await engine.advance("5s")
    await handle.retry(from_checkpoint=False)
    await engine.drain()
    assert keys[-1] == f"{handle.id}/2/pay"


async def test_the_effect_key_changes_after_a_rollback_and_the_undo_has_its_own(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    keys: list[str] = []
    upgrade = app.workflow("upgrade")

    @upgrade.stage
    async def only(ctx: Context, _: None) -> None:
        keys.append(ctx.key)

    @only.undo
    async def undo_only(ctx: Context, _: None) -> None:
        keys.append(ctx.key)

    engine = holdfast_engine(app)
    handle = await upgrade.submit(None)
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    await handle.retry()
    await engine.drain()
    task = handle.id
    assert keys == [f"{task}/1/only", f"{task}/1/only/undo", f"{task}/2/only"]


async def test_the_fence_rises_with_each_holder(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    fences: list[int] = []
    upgrade = app.workflow("upgrade", retry=QUICK)

    @upgrade.stage
    async def first(ctx: Context, _: None) -> None:
        fences.append(ctx.fence)
        if ctx.attempt == 1:
            raise ValueError

    @upgrade.stage
    async def second(ctx: Context, _: None) -> None:
        fences.append(ctx.fence)

    engine = holdfast_engine(app)
    handle = await upgrade.submit(None, tenant="t-1")
    await engine.advance("5s")
    other = await upgrade.submit(None, tenant="t-1")
    await engine.advance("5s")
    assert fences[0] < fences[1] == fences[2] < fences[3]
    assert (await task_of(engine, handle)).fence < (await task_of(engine, other)).fence


async def test_a_stage_knows_who_it_is(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    said: list[Any] = []

    @app.task("who")
    def who(ctx: Context, name: str) -> None:
        said.append((ctx.task_id, ctx.tenant, ctx.stage, ctx.attempt, name))

    engine = holdfast_engine(app)
    handle = await who.submit("ann", tenant="t-1")
    await engine.drain()
    assert said == [(handle.id, "t-1", "who", 1, "ann")]


async def test_progress_is_seen_live(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    gate = Gate()
    upgrade = app.workflow("upgrade")

    @upgrade.stage
    async def first(ctx: Context, _: None) -> None: ...

    @upgrade.stage
    async def copy(ctx: Context, _: None) -> None:
        ctx.progress(0.4, "copying")
        await gate.stand()

    engine = holdfast_engine(app)
    handle = await upgrade.submit(None)
    await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("1s")
    info = await handle.info()
    assert (info.progress, info.message, info.stage) == (0.7, "copying", "copy")
    gate.open()
    await engine.drain()
    assert (await handle.info()).progress == 1.0


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
async def test_progress_is_between_nothing_and_all(fraction: float) -> None:
    from holdfast.testing import context

    with pytest.raises(InvalidInput):
        context().progress(fraction)
