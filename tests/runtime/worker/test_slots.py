"""A worker claims what it can run, and no more."""

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast import Context, Holdfast
from holdfast.domain import notification
from holdfast.ports import Claimed
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, within_bounds


class Crowd:
    """Counts who is inside at once, and lets them out one by one."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.done = 0
        self.exits = asyncio.Semaphore(0)
        self.changed = asyncio.Condition()

    async def visit(self) -> None:
        async with self.changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
        await self.exits.acquire()
        async with self.changed:
            self.inside -= 1
            self.done += 1
            self.changed.notify_all()

    async def until(self, *, inside: int, done: int) -> None:
        async with self.changed:
            await within_bounds(
                self.changed.wait_for(lambda: self.inside == inside and self.done == done)
            )


async def test_a_worker_never_claims_more_than_its_slots(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    crowd = Crowd()

    @app.task("crowd.visit")
    async def visit(ctx: Context) -> None:
        await crowd.visit()

    engine = holdfast_engine(app, slots=3)
    for _ in range(10):
        await visit.submit()
    worker = await engine.start()
    await crowd.until(inside=3, done=0)
    assert worker.running == 3
    for done in range(1, 8):
        crowd.exits.release()
        await crowd.until(inside=3, done=done)
    for _ in range(3):
        crowd.exits.release()
    await engine.drain()
    assert (crowd.most, crowd.done) == (3, 10)


async def test_the_next_half_is_claimed_while_the_first_runs(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    crowd = Crowd()

    @app.task("crowd.visit")
    async def visit(ctx: Context) -> None:
        await crowd.visit()

    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    engine = holdfast_engine(app, slots=7, store=store, clock=clock)
    await visit.submit_many([None] * 20)
    worker = await engine.start()
    await crowd.until(inside=7, done=0)
    assert store.calls.count("claim") == 2, "four and three"
    for _ in range(20):
        crowd.exits.release()
    await engine.drain()
    assert (crowd.most, crowd.done, worker.running) == (7, 20, 0)


class AskedTasks(MemoryTasks):
    """Remembers what for."""

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.queues: list[tuple[str, ...]] = []

    async def claim(self, worker: str, **asked: Any) -> Sequence[Claimed]:
        self.queues.append(tuple(asked["queues"]))
        return await super().claim(worker, **asked)


class Asked(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.tasks: AskedTasks = AskedTasks(self.state)


async def test_a_full_worker_asks_for_deliveries_alone(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    crowd = Crowd()

    @app.task("crowd.visit")
    async def visit(ctx: Context) -> None:
        await crowd.visit()

    clock = ManualClock()
    store = Asked(clock)
    engine = holdfast_engine(app, slots=1, store=store, clock=clock)
    for _ in range(2):
        await visit.submit()
    await engine.start()
    await crowd.until(inside=1, done=0)
    store.tasks.queues.clear()
    await clock.elapse("20s")
    assert set(store.tasks.queues) == {(notification.QUEUE,)}
    assert len(store.tasks.queues) <= 21, "not more often than once a second"
    crowd.exits.release()
    await crowd.until(inside=1, done=1)
    assert "default" in store.tasks.queues[-1]
    crowd.exits.release()
    await engine.drain()


async def test_many_tasks_are_claimed_and_finished_in_batches(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("count.up")
    async def up(ctx: Context, n: int) -> int:
        return n + 1

    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    engine = holdfast_engine(app, slots=50, store=store, clock=clock)
    handles = await asyncio.gather(*(up.submit(n) for n in range(100)))
    assert store.calls.count("insert") < 10, "submits gather behind the one under way"
    await engine.drain()
    assert [await handle.result() for handle in handles] == list(range(1, 101))
    assert store.calls.count("claim") < 20
    assert store.calls.count("apply") < 20


async def test_a_worker_serves_only_its_queues(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    ran = []

    @app.task("note.down", queue="notes")
    async def note(ctx: Context, text: str) -> None:
        ran.append(text)

    holdfast_engine(app, patience=None)
    await note.submit("a")
    await note.submit("b", queue="slow")
    worker = app.worker(queues=("slow",), heartbeat_thread=False)
    await worker.start()
    handle = await note.submit("c", queue="slow")
    await within_bounds(handle.result())
    assert ran == ["b", "c"]
    await worker.drain()
    stats = await app.store.views.stats()
    assert stats.by_queue["notes"]["ready"] == 1  # type: ignore[index]
