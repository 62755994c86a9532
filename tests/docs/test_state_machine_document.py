"""The tests of section 7 of the state machine's document, by its names, on the real engine."""

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from holdfast import Context, Holdfast, Retry
from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import decide
from holdfast.domain.task.placement import Next
from holdfast.domain.task.state import Status
from holdfast.domain.task.transition import Outcome, Stale, Transition
from holdfast.errors import TaskFailed
from holdfast.ports import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import Engine, ManualClock


class WatchedStoreTasks(MemoryTasks):
    """Writes down which checkpoints were saved, and how often one was cleared."""

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.saved: list[int] = []
        self.cleared = 0

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        for transition in batch:
            if transition.checkpoint is not None:
                self.saved.append(transition.checkpoint.last_completed_stage_index)
            self.cleared += transition.drop_checkpoint
        return await super().apply(batch)


class WatchedStore(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tasks: WatchedStoreTasks = WatchedStoreTasks(self.state)


@pytest.fixture
def app() -> Holdfast:
    return Holdfast()


@pytest.fixture
def store(clock: ManualClock) -> WatchedStore:
    return WatchedStore(clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(app: Holdfast, store: WatchedStore, clock: ManualClock) -> Iterator[Engine]:
    engine = Engine(app, store=store, clock=clock)
    yield engine
    engine.close()


async def test_checkpoint_not_saved_for_last_stage(
    app: Holdfast, engine: Engine, store: WatchedStore
) -> None:
    flow = app.workflow("two-stages")

    @flow.stage(name="stage-1")
    async def first(ctx: Context, order: object) -> None: ...

    @flow.stage(name="stage-2")
    async def second(ctx: Context, order: object) -> None: ...

    handle = await flow.submit(None)
    await engine.drain()
    assert (await handle.info()).status is Status.COMPLETED
    assert store.tasks.saved == [0]
    assert store.tasks.cleared == 1
    assert await store.views.checkpoint(handle.id) is None


async def test_state_transition_only_from_executor(
    app: Holdfast, engine: Engine, store: WatchedStore
) -> None:
    flow = app.workflow("guarded")
    attempts: list[str] = []

    @flow.stage(name="only")
    async def only(ctx: Context, order: object) -> str:
        """Everybody else tries to complete the task while the executor holds it."""
        (running,) = await store.views.load([ctx.task_id])
        assert running is not None
        done = decide.Done(result=b'"forged"', data={}, started_at=0.0, duration_seconds=0.0)
        with pytest.raises(HoldfastError, match="only the holder of its lease"):
            decide.complete(msgspec.structs.replace(running, lease=None), done, now=0.0)
        stolen = decide.complete(running, done, now=0.0)
        for lease in (None, "made-up"):
            forged = msgspec.structs.replace(stolen, lease=lease, request=f"forged-{lease}")
            assert forged.next is Next.SETTLED
            assert await store.tasks.apply([forged]) == [Stale(running)]
            attempts.append(ctx.task_id)
        return "executed"

    handle = await flow.submit(None)
    (waiting,) = await store.views.load([handle.id])
    assert waiting is not None
    with pytest.raises(HoldfastError):
        decide.boundary(waiting, now=0.0)
    assert not {"complete", "fail", "start"} & set(dir(app.control)), "no such door"

    await engine.drain()
    assert await handle.result() == "executed"
    assert attempts == [handle.id] * 2


async def test_full_lifecycle_with_checkpoint(
    app: Holdfast, engine: Engine, store: WatchedStore
) -> None:
    flow = app.workflow("full")
    ran: list[str] = []

    @flow.stage(name="stage-1")
    async def first(ctx: Context, order: object) -> None:
        ran.append("stage-1")

    @flow.stage(name="stage-2", retry=Retry(max=1))
    async def second(ctx: Context, order: object) -> None:
        ran.append("stage-2")
        if ran.count("stage-2") == 1:
            raise ConnectionError("the database is down")

    @flow.stage(name="stage-3")
    async def third(ctx: Context, order: object) -> None:
        ran.append("stage-3")

    handle = await flow.submit(None)
    await engine.drain()
    with pytest.raises(TaskFailed):
        await handle.result()
    checkpoint = await store.views.checkpoint(handle.id)
    assert checkpoint is not None
    assert checkpoint.last_completed_stage_index == 0

    await handle.retry(from_checkpoint=True)
    await engine.drain()
    await handle.result()
    assert ran == ["stage-1", "stage-2", "stage-2", "stage-3"]
    assert await store.views.checkpoint(handle.id) is None
