"""A holder that was overtaken writes nothing, whatever it still believes."""

import msgspec
import pytest

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.domain.task.task import Lease
from holdfast.runtime.worker.executor import TaskExecution
from holdfast.runtime.worker.running_tasks import LeaseGone, RunningTask, Stop
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, event_names, task_of, within_bounds


class Bench:
    """A worker in stage ``work`` that does not know yet that another holds its task."""

    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.gate = Gate()
        self.fails = False
        self.flow = app.workflow("upgrade", retry=Retry(backoff=(5,)))

        @self.flow.stage
        async def work(ctx: Context, _: None) -> None:
            await self.gate.stand()
            if self.fails:
                raise ValueError

        @self.flow.stage
        async def rest(ctx: Context, _: None) -> None: ...

        self.clock = ManualClock()
        self.store_clock = ManualClock()
        self.store = MemoryStore(self.store_clock)
        self.engine: Engine = make(app, store=self.store, clock=self.clock)

    async def overtaken(self) -> Handle[object]:
        handle = await self.flow.submit(None, tenant="t-1")
        await self.engine.start()
        await self.gate.wait_until_reached()
        # The store's clock goes on while the worker's own stands still, as in a frozen process.
        self.store_clock.advance(60)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 1
        [claimed] = await self.store.tasks.claim(
            "another", request="r-1", queues=("default",), limit=1, lease_seconds=30
        )
        assert claimed.task.id == handle.id
        return handle


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_zombie_worker_cannot_move_a_task_taken_over(bench: Bench, fails: bool) -> None:
    handle = await bench.overtaken()
    before = await task_of(bench.engine, handle)
    worker = await bench.engine.start()
    bench.fails = fails
    bench.gate.open()
    for _ in range(10):
        await bench.clock.elapse(0)
    assert worker.running == 0
    after = await task_of(bench.engine, handle)
    assert after == before
    assert after.lease is not None
    assert after.lease.owner == "another"
    names = await event_names(bench.engine, handle)
    assert "StageCompleted" not in names
    assert "StageFailed" not in names


async def test_a_request_made_meanwhile_does_not_help_the_zombie(bench: Bench) -> None:
    handle = await bench.overtaken()
    await handle.cancel()
    before = await task_of(bench.engine, handle)
    bench.gate.open()
    for _ in range(10):
        await bench.clock.elapse(0)
    assert await task_of(bench.engine, handle) == before
    assert before.status is Status.RUNNING, "the new holder will apply the cancel"


async def test_the_same_fence_with_another_lease_is_refused_too(bench: Bench) -> None:
    """A promoted replica may give out a fence twice; the random lease id tells them apart."""
    handle = await bench.flow.submit(None)
    worker = await bench.engine.start()
    await bench.gate.wait_until_reached()
    task = bench.store.state.tasks[handle.id]
    assert task.lease is not None
    twin = msgspec.structs.replace(task.lease, id="twin", owner="another")
    assert isinstance(twin, Lease)
    bench.store.state.tasks[handle.id] = msgspec.structs.replace(task, lease=twin)
    bench.gate.open()
    for _ in range(10):
        await bench.clock.elapse(0)
    assert worker.running == 0
    assert (await task_of(bench.engine, handle)).version == task.version


@pytest.mark.parametrize("why", ["its time is over", "it was told so"])
async def test_no_stage_begins_under_a_lease_that_may_be_anothers(bench: Bench, why: str) -> None:
    """A process that was frozen between two stages wakes up right before the second."""
    handle = await bench.flow.submit(None)
    [claimed] = await bench.store.tasks.claim(
        "frozen", request="r-1", queues=("default",), limit=1, lease_seconds=30
    )
    held = RunningTask(handle.id, "lease-1", safe_until=bench.clock.steady() + 27)
    executor = bench.engine.app.worker(heartbeat_thread=False)._executor
    run = TaskExecution(executor, claimed, held, bench.flow.declared)
    if why == "its time is over":
        bench.clock.advance("27s")
    else:
        held.stop = Stop.LEASE_LOST
    called = executor.attempts.run(bench.flow.declared.stages[0], run)
    if why == "its time is over":
        assert await within_bounds(called) is None, "it is to be given back"
    else:
        with pytest.raises(LeaseGone):
            await within_bounds(called)
    assert not bench.gate.reached.is_set()
