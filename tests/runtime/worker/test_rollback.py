"""Rollback: undo in reverse, each undo committed, resumed where it stopped (S8)."""

from typing import Any

import msgspec
import pytest

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.domain.task.events import StageUndone, TaskRollingBack
from holdfast.engine.declare import Workflow
from holdfast.errors import TaskFailed, TaskRolledBack
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, detail_of, event_names, events_of, task_of


class Bench:
    """Stages a, b (without undo), c, d; they and their undos can be made to fail."""

    def __init__(self, app: Holdfast) -> None:
        self.said: list[str] = []
        self.found: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.gate: Gate | None = None
        self.flow: Workflow[Any, Any] = app.workflow("upgrade", retry=Retry(max=2, backoff=(5,)))
        self.stages = {name: self.add(name) for name in "abcd"}

    def add(self, name: str) -> Any:
        @self.flow.stage(name=name)
        async def stage(ctx: Context, _: None) -> str:
            self.said.append(name)
            if name in self.fails:
                raise ValueError(name)
            ctx.data[name] = "done"
            if self.gate is not None and name == "c":
                await self.gate.stand()
            return name.upper()

        if name != "b":

            @stage.undo
            async def undo(ctx: Context, _: None) -> None:
                self.said.append(f"undo {name}")
                self.found[name] = ctx.find_result(self.stages[name])
                if f"undo {name}" in self.fails:
                    raise ValueError(f"undo {name}")
                ctx.data[name] = "undone"

        return stage

    async def run(self, engine: Engine, *, fails: str = "") -> Handle[Any]:
        self.fails = set(fails)
        handle = await self.flow.submit(None, tenant="t-1")
        await engine.drain()
        await engine.advance("10s")
        self.fails = set()
        self.said.clear()
        return handle


@pytest.fixture
def bench(app: Holdfast) -> Bench:
    return Bench(app)


@pytest.fixture
def engine(app: Holdfast, bench: Bench, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def test_a_rollback_from_failed_undoes_in_reverse_with_the_failed_stage(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.run(engine, fails="d")
    assert (await handle.info()).status is Status.FAILED
    assert await handle.rollback("wrong release") is Status.ROLLING_BACK
    await engine.drain()
    assert bench.said == ["undo d", "undo c", "undo a"]
    assert bench.found == {"d": None, "c": "C", "a": "A"}
    with pytest.raises(TaskRolledBack, match="wrong release"):
        await handle.result()
    detail = await detail_of(engine, handle)
    assert detail.checkpoint is None
    assert detail.task.last_completed == -1


async def test_a_stage_without_undo_is_shown_to_have_had_none(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine)
    await handle.rollback()
    await engine.drain()
    undone = [e for e in await events_of(engine, handle) if isinstance(e, StageUndone)]
    assert [(e.stage, e.had_undo) for e in undone] == [
        ("d", True),
        ("c", True),
        ("b", False),
        ("a", True),
    ]


async def test_a_rollback_from_completed_undoes_everything(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine)
    assert await handle.result() == "D"
    await handle.rollback()
    await engine.drain()
    assert bench.said == ["undo d", "undo c", "undo a"]
    assert (await handle.info()).status is Status.ROLLED_BACK


async def test_the_undo_of_a_completed_task_sees_its_data(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine)
    await handle.rollback()
    await engine.drain()
    data = (await detail_of(engine, handle)).data
    assert data is not None
    assert msgspec.json.decode(data) == {
        "a": "undone",
        "b": "done",
        "c": "undone",
        "d": "undone",
    }


@pytest.mark.parametrize("rest", ["pause", "cancel"])
async def test_a_rollback_from_paused_or_cancelled_undoes_what_was_completed(
    bench: Bench, engine: Engine, rest: str
) -> None:
    bench.gate = Gate()
    handle = await bench.flow.submit(None)
    await engine.start()
    await bench.gate.wait_until_reached()
    await getattr(handle, rest)()
    bench.gate.open()
    await engine.drain()
    bench.said.clear()
    await handle.rollback()
    await engine.drain()
    assert bench.said == ["undo c", "undo a"], "d was never begun"


async def test_a_paused_task_whose_stage_had_failed_undoes_that_stage_too(
    bench: Bench, engine: Engine
) -> None:
    bench.fails = {"c"}
    handle = await bench.flow.submit(None)
    await engine.drain()
    await handle.pause()
    bench.said.clear()
    await handle.rollback()
    await engine.drain()
    assert bench.said == ["undo c", "undo a"]


async def test_a_rollback_of_a_task_that_never_began_has_nothing_to_undo(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.flow.submit(None)
    await handle.cancel()
    await handle.rollback()
    await engine.drain()
    assert (await handle.info()).status is Status.ROLLED_BACK
    assert bench.said == []


async def test_an_undo_is_retried_and_then_stops_the_rollback(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine)
    bench.fails = {"undo c"}
    await handle.rollback()
    await engine.drain()
    assert (await handle.info()).status is Status.ROLLING_BACK
    assert bench.said == ["undo d", "undo c"]
    await engine.advance("10s")
    assert (await handle.info()).status is Status.ROLLBACK_FAILED
    assert bench.said == ["undo d", "undo c", "undo c"]
    with pytest.raises(TaskFailed, match="undo c"):
        await handle.result()
    assert (await event_names(engine, handle))[-2:] == ["StageUndoFailed", "TaskRollbackFailed"]


async def test_a_failed_rollback_asked_again_goes_on_where_it_stopped(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.run(engine)
    bench.fails = {"undo c"}
    await handle.rollback()
    await engine.drain()
    await engine.advance("10s")
    bench.fails = set()
    bench.said.clear()
    await handle.rollback()
    await engine.drain()
    assert bench.said == ["undo c", "undo a"]
    assert (await handle.info()).status is Status.ROLLED_BACK


async def test_resuming_a_suspended_rollback_rolls_back(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine)
    bench.fails = {"undo a"}
    await handle.rollback()
    await engine.drain()
    await engine.advance("10s")
    bench.fails = set()
    await engine.app.control.resume_suspended(handle.id)
    await engine.drain()
    assert (await handle.info()).status is Status.ROLLED_BACK


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("before", ["undo d", "undo c", "undo a"]),
        ("after", ["undo d", "undo c", "undo c", "undo a"]),
        ("commit", ["undo d", "undo c", "undo a"]),
    ],
)
async def test_a_crash_in_the_middle_of_a_rollback_resumes_there(
    bench: Bench, engine: Engine, when: Any, said: list[str]
) -> None:
    handle = await bench.run(engine)
    engine.crash_at("c", when=when, undo=True)
    await handle.rollback()
    await engine.drain()
    assert engine.deaths == 1
    assert bench.said == said
    assert (await handle.info()).status is Status.ROLLED_BACK
    undone = [e.stage for e in await events_of(engine, handle) if isinstance(e, StageUndone)]
    assert undone == ["d", "c", "b", "a"], "each undo is committed once"


async def test_a_rolled_back_task_may_be_run_again_from_stage_0(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.run(engine, fails="c")
    await handle.rollback()
    await engine.drain()
    bench.said.clear()
    await handle.retry()
    await engine.drain()
    assert bench.said == ["a", "b", "c", "d"]
    task = await task_of(engine, handle)
    assert (task.status, task.epoch, task.run) == (Status.COMPLETED, 2, 3)


async def test_a_rollback_says_where_it_began_and_who_asked(bench: Bench, engine: Engine) -> None:
    handle = await bench.run(engine, fails="c")
    await engine.app.control.acting_as("ann").rollback(handle.id, reason="no")
    [began] = [e for e in await events_of(engine, handle) if isinstance(e, TaskRollingBack)]
    assert (began.from_stage, began.by.actor, began.by.reason) == ("c", "ann", "no")
    await engine.drain()
