"""What a person asks by tenant (P8)."""

import pytest

from holdfast import Context, Holdfast, Permanent, Status
from holdfast.engine.declare import Workflow
from holdfast.errors import IllegalTransition, TaskNotFound
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, Gate

Flow = Workflow[bool, str]


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.ran: list[str] = []
        self.fails = True
        self.flow: Flow = app.workflow("upgrade", payload=bool, result=str)

        @self.flow.stage
        async def first(ctx: Context, early: bool) -> None:
            self.ran.append("first")
            if early and self.fails:
                raise Permanent("first")

        @self.flow.stage
        async def second(ctx: Context, early: bool) -> str:
            self.ran.append("second")
            if self.fails:
                raise Permanent("second")
            return "done"

        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.engine: Engine = make(app, store=self.memory, clock=self.clock)
        self.query = app.query


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


async def test_the_active_task_of_a_tenant_is_the_one_that_rests_unsettled(bench: Bench) -> None:
    first = await bench.flow.submit(False, tenant="t-1")
    await bench.flow.submit(False, tenant="t-1")
    await bench.engine.drain()
    status = await bench.query.query_task_status_by_tenant("t-1")
    assert status.task is not None
    assert (status.task.id, status.task.status) == (first.id, Status.FAILED)
    assert (status.has_checkpoint, status.waiting) == (True, 1)


async def test_a_tenant_without_tasks_has_none(bench: Bench) -> None:
    status = await bench.query.query_task_status_by_tenant("nobody")
    assert (status.task, status.has_checkpoint, status.waiting) == (None, False, 0)
    assert not await bench.query.has_checkpoint("nobody")
    with pytest.raises(TaskNotFound):
        await bench.query.retry_task_by_tenant("nobody")


async def test_a_settled_task_is_no_longer_active(bench: Bench) -> None:
    bench.fails = False
    await bench.flow.submit(False, tenant="t-1")
    await bench.engine.drain()
    assert (await bench.query.query_task_status_by_tenant("t-1")).task is None


async def test_many_tenants_are_answered_in_the_order_asked(bench: Bench) -> None:
    for n in range(3):
        await bench.flow.submit(False, tenant=f"t-{n}")
    found = await bench.query.query_task_status_by_tenants(["t-2", "nobody", "t-0"])
    assert [status.tenant for status in found] == ["t-2", "nobody", "t-0"]
    assert [status.task is None for status in found] == [False, True, False]


async def test_has_checkpoint_reads_the_checkpoint_and_not_the_record(bench: Bench) -> None:
    handle = await bench.flow.submit(False, tenant="t-1")
    await bench.engine.drain()
    assert await bench.query.has_checkpoint("t-1")
    bench.memory.state.bodies[handle.id].checkpoint = None
    assert not await bench.query.has_checkpoint("t-1")


async def test_without_a_completed_stage_there_is_none(bench: Bench) -> None:
    await bench.flow.submit(True, tenant="t-1")
    await bench.engine.drain()
    assert not await bench.query.has_checkpoint("t-1")


@pytest.mark.parametrize(
    ("from_checkpoint", "ran"), [(True, ["second"]), (False, ["first", "second"])]
)
async def test_a_retry_by_tenant(bench: Bench, from_checkpoint: bool, ran: list[str]) -> None:
    handle = await bench.flow.submit(False, tenant="t-1")
    await bench.engine.drain()
    bench.fails = False
    bench.ran.clear()
    task = await bench.query.retry_task_by_tenant("t-1", from_checkpoint=from_checkpoint)
    assert (task.id, task.status) == (handle.id, Status.PENDING)
    await bench.engine.drain()
    assert bench.ran == ran
    assert await handle.result() == "done"


async def test_a_retry_of_what_has_not_failed_is_refused(bench: Bench) -> None:
    await bench.flow.submit(False, tenant="t-1")
    with pytest.raises(IllegalTransition):
        await bench.query.retry_task_by_tenant("t-1")


async def test_a_checkpoint_that_cannot_be_read_is_there_all_the_same(bench: Bench) -> None:
    handle = await bench.flow.submit(False, tenant="t-1")
    await bench.engine.drain()
    bench.memory.state.bodies[handle.id].checkpoint = b"{"
    assert await bench.query.has_checkpoint("t-1")
    assert (await bench.query.query_task_status_by_tenant("t-1")).has_checkpoint


async def test_many_tenants_are_asked_for_in_few_calls(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    gate = Gate()

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        ctx.progress(0.5, "half way")
        await gate.stand()

    engine = holdfast_engine(app, store=store, clock=clock)
    await stand.submit(tenant="t-0")
    await engine.advance("20s")
    for n in range(1, 20):
        await stand.submit(tenant=f"t-{n}", queue="unserved")
    store.calls.clear()
    asked = [f"t-{n}" for n in range(20)]
    running, *waiting = await app.query.query_task_status_by_tenants(asked)
    reads = [call for call in store.calls if call not in ("claim", "wait")]  # the worker's
    assert reads == ["tenants", "load", "detail"], "in detail only the one that runs"
    assert running.task is not None
    assert (running.task.progress, running.task.message) == (0.5, "half way")
    assert [one.task.status for one in waiting if one.task] == [Status.PENDING] * 19
    gate.open()
    await engine.drain()
