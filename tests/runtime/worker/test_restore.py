"""From a checkpoint onward, and what to do when it is no good (C3, C4)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.domain.errors import CheckpointGone
from holdfast.domain.task.events import TaskProgress
from holdfast.domain.task.task import FailureKind
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.engine.declare import Workflow
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, detail_of, event_names, task_of

ONCE = Retry(max=1)


class Bench:
    """A workflow of stages a, b, c whose c fails until it is mended."""

    def __init__(self, holdfast_engine: MakeEngine, *, names: str = "abc", **options: Any) -> None:
        self.ran: list[str] = []
        self.saw: dict[str, Any] = {}  # the data and the results that a stage found
        self.broken = {"c"}
        self.open = asyncio.Event()  # while it is not set, every stage waits
        self.open.set()
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.store = FlakyStore(self.memory)
        self.make = holdfast_engine
        self.options = options
        self.engine = self.deploy(names)

    def deploy(self, names: str) -> Engine:
        """The app as its next version has it, on the same store."""
        app = Holdfast("memory://")
        self.flow: Workflow[Any, Any] = app.workflow("upgrade", retry=ONCE, **self.options)
        self.stages = {name: self.flow.stage(name=name)(self.stage(name)) for name in names}
        return self.make(app, store=self.store, clock=self.clock)

    def stage(self, name: str) -> Callable[[Context, None], Any]:
        async def run(ctx: Context, _: None) -> str:
            self.ran.append(name)
            self.saw[name] = (dict(ctx.data), [n for n in "abc" if self.result_of(ctx, n)])
            ctx.data[name] = True
            await self.open.wait()
            if name in self.broken:
                raise ValueError(name)
            return name

        return run

    def result_of(self, ctx: Context, name: str) -> Any:
        return ctx.find_result(self.stages[name]) if name in self.stages else None

    async def failed_at_c(self) -> Handle[Any]:
        handle = await self.flow.submit(None)
        await self.engine.drain()
        assert (await handle.info()).status is Status.FAILED
        self.broken.clear()
        self.ran.clear()
        return handle

    async def again(self, handle: Handle[Any], names: str | None = None) -> Status:
        """Retried, by the same code or by another version of it."""
        if names is not None:
            self.engine.close()
            self.engine = self.deploy(names)
            handle = self.engine.app.handle(handle.id)
        await handle.retry()
        await self.engine.drain()
        return (await handle.info()).status

    def tamper(self, handle: Handle[Any], **fields: Any) -> None:
        bodies = self.memory.state.bodies[handle.id]
        assert bodies.checkpoint is not None
        raw = msgspec.json.decode(bodies.checkpoint) | fields
        bodies.checkpoint = msgspec.json.encode(raw)


@pytest.fixture
def bench(holdfast_engine: MakeEngine) -> Bench:
    return Bench(holdfast_engine)


async def test_a_retry_goes_on_behind_the_last_completed_stage(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    assert await bench.again(handle) is Status.COMPLETED
    assert bench.ran == ["c"]
    assert bench.saw["c"] == ({"a": True, "b": True}, ["a", "b"])
    data = (await detail_of(bench.engine, handle)).data
    assert data is not None
    assert msgspec.json.decode(data) == {"a": True, "b": True, "c": True}


async def test_a_restore_publishes_progress_before_the_first_heartbeat(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    told: list[tuple[str, str, str, int]] = []  # and how many heartbeats there were by then
    bench.engine.close()
    bench.engine = bench.deploy("abc")

    def note(event: TaskProgress) -> None:
        beats = bench.store.calls.count("renew") - before
        told.append((event.task_id, event.stage, event.message, beats))

    bench.engine.app.on_progress = note
    await bench.engine.drain()  # the worker has announced itself, which is a renewal of nothing
    before = bench.store.calls.count("renew")
    bench.open.clear()
    await bench.engine.app.handle(handle.id).retry()
    await bench.engine.advance(1)
    assert bench.store.calls.count("renew") > before
    restored = (handle.id, "c", "restored from its checkpoint")
    assert [event for event in told if event[-1] == 0] == [(*restored, 0)]
    bench.open.set()
    await bench.engine.drain()


async def test_a_retry_from_scratch_starts_at_stage_0(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    await handle.retry(from_checkpoint=False)
    detail = await detail_of(bench.engine, handle)
    assert (detail.checkpoint, detail.stages, detail.task.last_completed) == (None, (), -1)
    await bench.engine.drain()
    assert bench.ran == ["a", "b", "c"]


INVALID = [
    {"lastCompletedStageIndex": 7},
    {"lastCompletedStageIndex": -1},
    {"completedStageNames": ["a"]},
    {"timestamp": "2001-01-01T00:00:00Z"},
    {"completedStageNames": ["a", "gone"]},
    {"lastCompletedStageIndex": 0, "completedStageNames": ["a"]},
]
YEAR = "365d"


@pytest.mark.parametrize("fields", INVALID, ids=repr)
async def test_a_type_may_choose_to_start_over_from_an_invalid_checkpoint_with_one_warning(
    holdfast_engine: MakeEngine, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    bench = Bench(holdfast_engine, on_invalid="restart", checkpoint_max_age=YEAR)
    handle = await bench.failed_at_c()
    bench.tamper(handle, **fields)
    with caplog.at_level(logging.WARNING):
        assert await bench.again(handle) is Status.COMPLETED
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert handle.id in warnings[0].getMessage()
    assert bench.ran == ["a", "b", "c"]
    assert "CheckpointDiscarded" in await event_names(bench.engine, handle)
    assert (await task_of(bench.engine, handle)).epoch == 2, "redone work has new effect keys"
    assert bench.saw["a"] == ({}, []), "nothing is left of the first time"
    assert bench.saw["b"] == ({"a": True}, ["a"])


async def test_a_task_that_was_suspended_for_a_year_goes_on_from_its_checkpoint(
    bench: Bench,
) -> None:
    handle = await bench.failed_at_c()
    await bench.engine.advance(YEAR)
    assert (await task_of(bench.engine, handle)).status is Status.FAILED
    assert await bench.again(handle) is Status.COMPLETED
    assert bench.ran == ["c"]
    assert (await task_of(bench.engine, handle)).epoch == 1, "its effect keys are the same"


@pytest.mark.parametrize("on_invalid", ["suspend", "restart"])
async def test_a_workflow_may_limit_the_age_of_its_checkpoints(
    holdfast_engine: MakeEngine, on_invalid: str
) -> None:
    bench = Bench(holdfast_engine, on_invalid=on_invalid, checkpoint_max_age="8d")
    handle = await bench.failed_at_c()
    await bench.engine.advance("7d")
    bench.broken = {"c"}
    assert await bench.again(handle) is Status.FAILED
    assert bench.ran == ["c"], "it was young enough"
    bench.broken.clear()
    await bench.engine.advance("2d")
    if on_invalid == "restart":
        assert await bench.again(handle) is Status.COMPLETED
        assert bench.ran == ["c", "a", "b", "c"]
        return
    assert await bench.again(handle) is Status.FAILED
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.INVALID_CHECKPOINT
    assert "older than checkpoint_max_age" in failure.message


async def test_a_retry_from_a_checkpoint_that_is_gone_is_refused(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    bench.memory.state.bodies[handle.id].checkpoint = None
    with pytest.raises(CheckpointGone, match="has completed 2 stages and its checkpoint is gone"):
        await handle.retry()
    with pytest.raises(CheckpointGone):
        await bench.engine.app.control.resume_suspended(handle.id)
    assert (await task_of(bench.engine, handle)).status is Status.FAILED
    entries = await bench.engine.store.admin.audits(limit=10)
    assert [entry.refused for entry in entries] == ["checkpoint-gone"] * 2
    await handle.rollback()
    await bench.engine.drain()
    assert (await task_of(bench.engine, handle)).status is Status.ROLLED_BACK


async def test_a_checkpoint_that_goes_missing_on_the_way_suspends(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    await handle.retry()
    bench.memory.state.bodies[handle.id].checkpoint = None
    await bench.engine.drain()
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.INVALID_CHECKPOINT
    await handle.retry(from_checkpoint=False)
    await bench.engine.drain()
    assert bench.ran == ["a", "b", "c"]


@pytest.mark.parametrize("fields", INVALID, ids=repr)
async def test_an_invalid_checkpoint_suspends(
    holdfast_engine: MakeEngine, fields: dict[str, Any]
) -> None:
    bench = Bench(holdfast_engine, checkpoint_max_age=YEAR)
    handle = await bench.failed_at_c()
    bench.tamper(handle, **fields)
    assert await bench.again(handle) is Status.FAILED
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.INVALID_CHECKPOINT
    assert bench.ran == []
    assert (await detail_of(bench.engine, handle)).checkpoint is not None


@pytest.mark.parametrize("names", ["xabc", "axbc", "bac", "acb"])
async def test_a_stage_inserted_or_moved_before_the_checkpoint_suspends(
    bench: Bench, names: str
) -> None:
    handle = await bench.failed_at_c()
    assert await bench.again(handle, names) is Status.FAILED
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.DEFINITION_CHANGED
    assert bench.ran == []
    detail = await detail_of(bench.engine, handle)
    assert detail.checkpoint is not None
    assert detail.task.stages == ("a", "b", "c"), "the record still says what has run"
    await bench.engine.app.handle(handle.id).rollback()
    await bench.engine.drain()
    task = await task_of(bench.engine, handle)
    assert task.status is Status.ROLLBACK_FAILED, "undoing other stages would be worse"


async def test_code_without_a_stage_left_to_run_suspends(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    assert await bench.again(handle, "ab") is Status.FAILED
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.DEFINITION_CHANGED


async def test_a_stage_removed_from_the_code_makes_the_checkpoint_invalid(
    holdfast_engine: MakeEngine,
) -> None:
    bench = Bench(holdfast_engine, on_invalid="restart")
    handle = await bench.failed_at_c()
    assert await bench.again(handle, "ac") is Status.COMPLETED
    assert bench.ran == ["a", "c"]


async def test_a_stage_added_behind_the_checkpoint_runs(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    assert await bench.again(handle, "abxcd") is Status.COMPLETED
    assert bench.ran == ["x", "c", "d"]
    assert (await task_of(bench.engine, handle)).stages == tuple("abxcd")


@pytest.mark.parametrize("on_invalid", ["suspend", "restart"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xff", b'{"lastCompletedStageIndex": "two"}'])
async def test_an_undecodable_checkpoint_suspends_and_deletes_nothing(
    holdfast_engine: MakeEngine, body: bytes, on_invalid: str
) -> None:
    bench = Bench(holdfast_engine, on_invalid=on_invalid)
    handle = await bench.failed_at_c()
    bench.memory.state.bodies[handle.id].checkpoint = body
    assert await bench.again(handle) is Status.FAILED
    detail = await detail_of(bench.engine, handle)
    assert detail.task.failure is not None
    assert detail.task.failure.kind is FailureKind.SERIALISATION
    assert detail.checkpoint == body
    assert len(detail.stages) == 2
    assert bench.ran == []


async def test_an_undecodable_payload_suspends(bench: Bench) -> None:
    handle = await bench.flow.submit(None)
    bench.memory.state.bodies[handle.id].payload = b"{"
    await bench.engine.drain()
    failure = (await task_of(bench.engine, handle)).failure
    assert failure is not None
    assert failure.kind is FailureKind.SERIALISATION


async def test_the_field_names_of_earlier_writers_are_read(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    bodies = bench.memory.state.bodies[handle.id]
    assert bodies.checkpoint is not None
    raw = msgspec.json.decode(bodies.checkpoint)
    raw["completedStages"] = raw.pop("completedStageNames")
    raw["contextData"] = raw.pop("customData")
    raw["savedAt"] = raw.pop("timestamp")
    bodies.checkpoint = msgspec.json.encode(raw)
    assert await bench.again(handle) is Status.COMPLETED
    assert bench.ran == ["c"]


async def test_a_store_that_cannot_be_read_is_an_outage_and_not_a_missing_checkpoint(
    bench: Bench,
) -> None:
    handle = await bench.failed_at_c()
    await handle.retry()
    bench.store.down = {"claim"}
    await bench.engine.start()
    await bench.clock.elapse("30s")
    assert bench.ran == []
    assert (await task_of(bench.engine, handle)).status is Status.PENDING
    bench.store.down = set()
    await bench.clock.elapse("5s")
    await bench.engine.drain()
    assert bench.ran == ["c"]
    assert (await task_of(bench.engine, handle)).status is Status.COMPLETED


async def test_failures_are_remembered_in_the_checkpoint_and_never_move_it(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    saved = await bench.engine.store.views.checkpoint(handle.id)
    assert saved is not None
    assert (saved.last_completed_stage_index, saved.version) == (1, 3)
    assert [f.message for f in saved.failure_history] == ["c"]
    assert saved.custom_data == {"a": True, "b": True}, "nothing of the failed stage"
    assert set(saved.stage_durations) == {"a", "b"}


async def test_with_no_completed_stage_there_is_no_checkpoint(bench: Bench) -> None:
    bench.broken = {"a"}
    handle = await bench.flow.submit(None)
    await bench.engine.drain()
    assert await bench.engine.store.views.checkpoint(handle.id) is None


async def test_a_request_that_comes_between_does_not_change_what_the_record_says_has_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await bench.failed_at_c()
    apply = bench.store.tasks.apply
    stages_written: list[tuple[str, ...]] = []

    async def meanwhile(batch: Sequence[Transition]) -> Sequence[Outcome]:
        if batch[0].lease is not None and not stages_written:
            stages_written.append(batch[0].after.stages)
            await bench.engine.app.control.pause(handle.id)
        return await apply(batch)

    monkeypatch.setattr(bench.store.tasks, "apply", meanwhile)
    assert await bench.again(handle, "xabc") is Status.FAILED
    assert stages_written == [("a", "b", "c")]
    task = await task_of(bench.engine, handle)
    assert (task.stages, task.pause_requested) == (("a", "b", "c"), False)
