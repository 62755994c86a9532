"""Pause, resume and cancel: at once on a task that rests, at the next boundary on one that runs."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Retry, RetryAfter, Status
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.task import By
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.engine.declare import Workflow
from holdfast.errors import IllegalTransition, TaskCancelled
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, detail_of, event_names, task_of


class Bench:
    """Stages a, b, c; each stands at its gate."""

    def __init__(self, app: Holdfast) -> None:
        self.ran: list[str] = []
        self.gates: dict[str, Gate] = {}
        self.fails: set[str] = set()
        self.flow: Workflow[Any, Any] = app.workflow("upgrade", retry=Retry(backoff=(5,)))
        for name in "abc":
            self.add(name)

    def add(self, name: str) -> None:
        self.gates[name] = Gate()

        @self.flow.stage(name=name)
        async def stage(ctx: Context, _: None) -> str:
            self.ran.append(name)
            await self.gates[name].stand()
            if name in self.fails and ctx.attempt == 1:
                raise ValueError(name)
            return name

    async def running_in(self, name: str, engine: Engine) -> Handle[Any]:
        handle = await self.flow.submit(None, tenant="t-1")
        await engine.start()
        for earlier in "abc"[: "abc".index(name)]:
            self.gates[earlier].open()
        await self.gates[name].wait_until_reached()
        return handle

    def open_all(self) -> None:
        for gate in self.gates.values():
            gate.open()


@pytest.fixture
def bench(app: Holdfast) -> Bench:
    return Bench(app)


@pytest.fixture
def engine(app: Holdfast, bench: Bench, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def test_a_pause_during_a_stage_takes_effect_behind_it_and_nothing_runs_again(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.running_in("b", engine)
    assert await handle.pause("lunch") is Status.RUNNING
    bench.open_all()
    await engine.drain()
    info = await handle.info()
    assert (info.status, info.completed, info.reason) == (Status.PAUSED, ("a", "b"), "lunch")
    assert bench.ran == ["a", "b"]
    saved = await engine.store.views.checkpoint(handle.id)
    assert saved is not None
    assert saved.completed_stage_names == ("a", "b")
    assert await handle.resume() is Status.PENDING
    await engine.drain()
    assert (await handle.info()).status is Status.COMPLETED
    assert bench.ran == ["a", "b", "c"]


async def test_a_cancel_during_a_stage_takes_effect_behind_it(bench: Bench, engine: Engine) -> None:
    handle = await bench.running_in("b", engine)
    await handle.cancel("not wanted any more")
    bench.open_all()
    await engine.drain()
    assert bench.ran == ["a", "b"]
    with pytest.raises(TaskCancelled, match="not wanted any more"):
        await handle.result()
    detail = await detail_of(engine, handle)
    assert detail.checkpoint is not None, "kept: a rollback may still be asked for"
    names = await event_names(engine, handle)
    assert names.index("CancelRequested") < names.index("TaskCancelled")
    assert names[-2:] == ["StageCompleted", "TaskCancelled"]


@pytest.mark.parametrize("command", ["pause", "cancel"])
async def test_a_request_during_the_last_stage_comes_too_late(
    bench: Bench, engine: Engine, command: str
) -> None:
    handle = await bench.running_in("c", engine)
    await getattr(handle, command)()
    bench.open_all()
    await engine.drain()
    task = await task_of(engine, handle)
    assert task.status is Status.COMPLETED
    assert not task.pause_requested
    assert not task.cancel_requested
    assert bench.ran == ["a", "b", "c"]


async def test_a_resume_takes_back_a_pause_that_was_only_asked_for(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.running_in("b", engine)
    await handle.pause()
    assert await handle.resume() is Status.RUNNING
    bench.open_all()
    await engine.drain()
    assert (await handle.info()).status is Status.COMPLETED
    assert bench.ran == ["a", "b", "c"]
    assert "TaskPaused" not in await event_names(engine, handle)


async def test_a_resume_with_nothing_to_resume_is_refused(bench: Bench, engine: Engine) -> None:
    handle = await bench.running_in("b", engine)
    with pytest.raises(IllegalTransition):
        await handle.resume()
    bench.open_all()
    await engine.drain()


async def test_many_requests_during_one_stage_are_met(bench: Bench, engine: Engine) -> None:
    handle = await bench.running_in("b", engine)
    for _ in range(10):
        await handle.pause()
        await handle.resume()
    await handle.pause()
    bench.open_all()
    await engine.drain()
    assert bench.ran == ["a", "b"]
    assert (await handle.info()).status is Status.PAUSED


async def test_a_cancel_beats_a_pause(bench: Bench, engine: Engine) -> None:
    handle = await bench.running_in("a", engine)
    await handle.pause()
    await handle.cancel()
    bench.open_all()
    await engine.drain()
    assert (await handle.info()).status is Status.CANCELLED
    assert bench.ran == ["a"]


@pytest.mark.parametrize(
    ("command", "status"), [("pause", Status.PAUSED), ("cancel", Status.CANCELLED)]
)
async def test_a_failure_is_a_stage_boundary_too(
    bench: Bench, engine: Engine, command: str, status: Status
) -> None:
    bench.fails = {"b"}
    handle = await bench.running_in("b", engine)
    await getattr(handle, command)()
    bench.open_all()
    await engine.drain()
    info = await handle.info()
    assert info.status is status
    assert info.failure is not None


async def test_a_task_that_waits_is_paused_and_resumed_at_once(
    bench: Bench, engine: Engine
) -> None:
    bench.open_all()
    handle = await bench.flow.submit(None, tenant="t-1")
    assert await handle.pause() is Status.PAUSED
    await engine.drain()
    assert bench.ran == []
    assert await handle.resume() is Status.PENDING
    await engine.drain()
    assert bench.ran == ["a", "b", "c"]


async def test_a_task_that_waits_is_cancelled_at_once(bench: Bench, engine: Engine) -> None:
    handle = await bench.flow.submit(None)
    assert await handle.cancel() is Status.CANCELLED
    await engine.drain()
    assert bench.ran == []


async def test_a_retry_that_is_due_later_can_be_paused_and_resumed(
    bench: Bench, engine: Engine
) -> None:
    bench.fails = {"a"}
    bench.open_all()
    handle = await bench.flow.submit(None)
    await engine.drain()
    assert await handle.pause() is Status.PAUSED
    await engine.advance("1h")
    assert bench.ran == ["a"]
    await handle.resume()
    await engine.drain()
    assert bench.ran == ["a", "a", "b", "c"]


async def test_a_retry_that_is_due_later_can_be_had_now(bench: Bench, engine: Engine) -> None:
    bench.fails = {"a"}
    bench.open_all()
    handle = await bench.flow.submit(None)
    await engine.drain()
    assert await handle.retry() is Status.PENDING
    await engine.drain()
    # A new run: its first attempt fails again, as this stage does.
    assert bench.ran == ["a", "a"]


async def test_a_request_made_while_a_dead_worker_held_the_task_is_met_before_its_next_stage(
    bench: Bench, engine: Engine
) -> None:
    handle = await bench.running_in("b", engine)
    await handle.cancel()
    assert engine.worker is not None
    engine.worker.abandon()
    engine.worker = None
    engine.deaths += 1
    await engine.drain()
    assert (await handle.info()).status is Status.CANCELLED
    assert bench.ran == ["a", "b"], "no stage starts after a cancel"


async def test_a_cancelled_task_lets_its_tenants_next_go(bench: Bench, engine: Engine) -> None:
    first = await bench.running_in("a", engine)
    second = await bench.flow.submit(None, tenant="t-1")
    await first.cancel()
    bench.open_all()
    await engine.drain()
    assert (await second.info()).status is Status.COMPLETED


class InterruptingTasks(MemoryTasks):
    """A cancel arrives between the claim and the holder's first write."""

    armed = False

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        if self.armed:
            self.armed = False
            task = self._state.tasks[batch[0].task_id]
            ask = OperatorRequest(
                by=By(actor="test"), now=self._state.clock.now(), request="cancel-1"
            )
            await super().apply([operate.cancel(task, ask)])
        return await super().apply(batch)


class Interrupting(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.tasks: InterruptingTasks = InterruptingTasks(self.state)


async def test_no_stage_runs_after_a_cancel_that_met_a_suspension(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[str] = []
    flow = app.workflow("upgrade", checkpoint_max_age="7d")

    @flow.stage
    async def first(ctx: Context, _: None) -> None: ...

    @flow.stage
    async def second(ctx: Context, _: None) -> None:
        ran.append("second")
        raise RetryAfter("8d")  # by then its checkpoint is too old

    clock = ManualClock()
    store = Interrupting(clock)
    engine = holdfast_engine(app, store=store, clock=clock)
    handle = await flow.submit(None)
    await engine.drain()
    store.tasks.armed = True
    await engine.advance("9d")
    assert (await handle.info()).status is Status.CANCELLED
    assert ran == ["second"]
