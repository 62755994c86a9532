"""A person drains a worker by its switch, from any machine."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.domain.audit import Audit
from holdfast.domain.task.events import name_of
from holdfast.domain.task.task import By
from holdfast.errors import StoreUnavailable
from holdfast.ports import Store, Switch, SwitchSetting
from holdfast.runtime.services.drain_watch import POLL_SECONDS
from holdfast.runtime.worker.worker import Worker
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import BOUND_SECONDS, Gate, task_of, within_bounds

LATER = f"{POLL_SECONDS + 0.1}s"


class Owner:
    def __init__(self) -> None:
        self.told = asyncio.Event()


async def order(store: Store, worker: str) -> None:
    by = By(actor="ops", origin="here", reason="new machine")
    audit = Audit(task_id=f"worker:{worker}", command="drain", by=by, at=1.0, before="", after="")
    assert await store.admin.set_switch(Switch.DRAIN, worker, on=False, audit=audit)


async def started(app: Holdfast, name: str, owner: Owner) -> Worker:
    worker = app.worker(name=name, heartbeat_thread=False, on_drained=owner.told.set)
    await worker.start()
    return worker


@pytest.fixture
def engine(app: Holdfast, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def test_a_worker_drains_when_told_and_tells_its_owner(app: Holdfast, engine: Engine) -> None:
    one, other = Owner(), Owner()
    neighbour, worker = await started(app, "w-2", other), await started(app, "w-1", one)
    await order(engine.store, "w-1")
    await engine.clock.elapse(LATER)
    await within_bounds(one.told.wait())
    await engine.clock.elapse(LATER)
    assert not other.told.is_set()
    assert await engine.store.admin.switches() == []  # it has left, and its switch with it
    assert await within_bounds(worker.drain()) == []  # its owner may ask, too
    await within_bounds(neighbour.drain())


async def test_what_it_runs_is_finished_and_nothing_new_is_taken(
    app: Holdfast, engine: Engine
) -> None:
    gate, owner = Gate(), Owner()

    @app.task("slow")
    async def slow(ctx: Context, _: None) -> None:
        await gate.stand()

    await started(app, "w-1", owner)
    running = await slow.submit(None)
    await gate.wait_until_reached()
    await order(engine.store, "w-1")
    await engine.clock.elapse(LATER)
    late = await slow.submit(None)
    await engine.clock.elapse("1s")
    assert not owner.told.is_set()
    gate.open()
    await within_bounds(owner.told.wait())
    assert (await task_of(engine, running)).status is Status.COMPLETED
    assert (await task_of(engine, late)).status is Status.PENDING


async def test_a_plain_function_keeps_its_lease_however_long_it_takes(
    app: Holdfast, engine: Engine
) -> None:
    begun, go_on, owner = threading.Event(), threading.Event(), Owner()

    @app.task("plain")
    def plain(ctx: Context, _: None) -> str:
        begun.set()
        assert go_on.wait(BOUND_SECONDS)
        return "done"

    @app.task("quick")
    async def quick(ctx: Context, _: None) -> None: ...

    await started(app, "w-1", owner)
    handle = await plain.submit(None)
    assert await asyncio.to_thread(begun.wait, BOUND_SECONDS)
    await order(engine.store, "w-1")
    await engine.clock.elapse("10m")  # much longer than a drain at a process's end
    late = await quick.submit(None)
    await engine.clock.elapse("1s")
    assert (await task_of(engine, late)).status is Status.PENDING
    task = await task_of(engine, handle)
    assert task.status is Status.RUNNING
    assert task.lease is not None
    assert not owner.told.is_set()
    go_on.set()
    while not owner.told.is_set():
        await asyncio.to_thread(lambda: None)
        await engine.clock.elapse("1s")
    assert (await task_of(engine, handle)).status is Status.COMPLETED


class GoneAdmin(MemoryAdmin):
    looks = 0

    async def switches(self) -> Sequence[SwitchSetting]:
        self.looks += 1
        if self.looks < 3:
            raise StoreUnavailable("away")
        return await super().switches()


class Gone(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.admin: GoneAdmin = GoneAdmin(self.state)


async def test_an_outage_hides_an_order_only_while_it_lasts(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock, owner = ManualClock(), Owner()
    store = Gone(clock)
    engine = holdfast_engine(app, store=store, clock=clock)
    await started(app, "w-1", owner)
    await order(engine.store, "w-1")
    await engine.clock.elapse(2 * POLL_SECONDS + 0.1)
    assert not owner.told.is_set()
    await engine.clock.elapse(LATER)
    await within_bounds(owner.told.wait())
    assert store.admin.looks == 3


async def test_what_is_handed_out_after_a_release_is_not_given_back_by_an_older_look(
    app: Holdfast, engine: Engine
) -> None:
    """The worker has seen the hold, and looks again only in a while."""

    @app.task("quick")
    async def quick(ctx: Context) -> str:
        return "done"

    await engine.start()
    await app.tenants.hold("t-1")
    await engine.clock.elapse(LATER)
    handle = await quick.submit(tenant="t-1")
    await app.tenants.release("t-1")
    assert await handle.result() == "done"
    detail = await engine.store.views.detail(handle.id)
    assert detail is not None
    assert [name_of(event) for event in detail.events].count("TaskStarted") == 1
