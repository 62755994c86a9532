"""Those who wait for results: one look serves them all, and none those of their own process."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, HoldfastError, Status
from holdfast.domain.errors import StoreError
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.errors import ResultTimeout, TaskCancelled, TaskNotFound
from holdfast.ports import Peek, Topic
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.views import MemoryViews
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, Gate, within_bounds


class SlowViews(MemoryViews):
    """A look's answer may be on its way for a while."""

    answers_late: Gate | None = None

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        seen = await super().peek(ids)
        gate, self.answers_late = self.answers_late, None
        if gate is not None:
            await gate.stand()
        return seen


class Slow(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.views: SlowViews = SlowViews(self.state)


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.gate = Gate()
        self.clock = ManualClock()
        self.memory = Slow(self.clock)
        self.store = FlakyStore(self.memory)

        @app.task("stand")
        async def stand(ctx: Context, n: int) -> int:
            await self.gate.stand()
            return n

        self.stand = stand
        self.engine: Engine = make(app, store=self.store, clock=self.clock, patience=None)

    def looks(self) -> int:
        return self.store.calls.count("peek")


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


@pytest.fixture
def ended_elsewhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the waiters see no write of their own process, as if another one had made it."""

    def unseen(batch: Sequence[Transition], answers: Sequence[Outcome | StoreError]) -> None: ...

    monkeypatch.setattr(bench.engine.app.waiters, "note_answers", unseen)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_look_serves_all_who_wait(bench: Bench) -> None:
    handles = [await bench.stand.submit(n) for n in range(20)]
    waiting = [asyncio.create_task(h.result()) for h in handles for _ in range(5)]
    await turns()
    bench.store.calls.clear()
    await bench.engine.start()
    bench.gate.open()
    results = await within_bounds(asyncio.gather(*waiting))
    assert results == [n for n in range(20) for _ in range(5)]
    assert bench.looks() <= 20, "not one look per waiter"


@pytest.mark.usefixtures("ended_elsewhere")
async def test_a_result_takes_one_look_before_and_one_behind_the_signal(bench: Bench) -> None:
    waiting = asyncio.create_task((await bench.stand.submit(1)).result())
    await bench.engine.start()
    await bench.gate.wait_until_reached()
    await turns()
    assert bench.looks() == 1
    bench.gate.open()
    assert await within_bounds(waiting) == 1
    assert bench.looks() == 2


@pytest.mark.usefixtures("ended_elsewhere")
async def test_what_comes_to_rest_behind_the_first_look_is_told_without_delay(bench: Bench) -> None:
    """It signals before the one who looked hears that it still runs."""
    first, second = await bench.stand.submit(1), await bench.stand.submit(2)
    await bench.engine.start()
    await bench.gate.wait_until_reached()
    await turns()
    slow = bench.memory.views.answers_late = Gate()
    waiting = asyncio.create_task(first.result())
    await slow.wait_until_reached()
    bench.gate.open()
    await turns()
    other = asyncio.create_task(second.result())
    slow.open()
    await turns()
    assert waiting.done(), "the clock has not moved"
    assert (await waiting, await within_bounds(other)) == (1, 2)


async def test_without_a_signal_there_is_at_most_one_look_a_second(bench: Bench) -> None:
    handle = await bench.stand.submit(1)
    waiting = asyncio.create_task(handle.result())
    await turns()
    bench.store.calls.clear()
    await bench.clock.elapse("10s")
    assert 9 <= bench.looks() <= 10
    bench.gate.open()
    await bench.engine.drain()
    assert await within_bounds(waiting) == 1


async def test_nobody_looks_when_nobody_waits(bench: Bench) -> None:
    handle = await bench.stand.submit(1)
    waiting = asyncio.create_task(handle.result())
    await turns()
    waiting.cancel()
    await bench.clock.elapse("2s")
    bench.store.calls.clear()
    await bench.clock.elapse("10s")
    assert bench.looks() == 0


async def test_what_this_process_has_written_is_not_looked_at_again(bench: Bench) -> None:
    waiting = asyncio.create_task((await bench.stand.submit(1)).result())
    await bench.engine.start()
    await bench.gate.wait_until_reached()
    bench.gate.open()
    assert await within_bounds(waiting) == 1
    await turns()
    assert bench.looks() == 1


async def test_an_operators_write_ends_the_waiting_without_a_look(bench: Bench) -> None:
    handle = await bench.stand.submit(1)
    waiting = asyncio.create_task(handle.result())
    await turns()
    await handle.cancel("not needed")
    with pytest.raises(TaskCancelled, match="not needed"):
        await within_bounds(waiting)
    assert bench.looks() == 1


async def test_an_outage_of_the_reads_does_not_hide_what_this_process_has_written(
    bench: Bench,
) -> None:
    handle = await bench.stand.submit(1)
    bench.store.down = {"peek"}
    waiting = asyncio.create_task(handle.result())
    await turns()
    bench.gate.open()
    await bench.engine.drain()
    assert await within_bounds(waiting) == 1


async def test_an_end_whose_write_has_failed_is_waited_for(bench: Bench) -> None:
    waiting = asyncio.create_task((await bench.stand.submit(1)).result())
    await bench.engine.start()
    await bench.gate.wait_until_reached()
    bench.store.down = {"apply"}
    bench.gate.open()
    await bench.clock.elapse("2s")
    assert not waiting.done()
    assert bench.looks() >= 2, "a look each second, as nobody can tell what was written"
    bench.store.down = set()
    await bench.clock.elapse("5s")
    assert await within_bounds(waiting) == 1


@pytest.mark.usefixtures("ended_elsewhere")
async def test_an_outage_is_waited_out(bench: Bench) -> None:
    handle = await bench.stand.submit(1)
    waiting = asyncio.create_task(handle.result())
    await turns()
    bench.store.down = {"peek"}
    bench.gate.open()
    await bench.engine.drain()
    await bench.clock.elapse("5s")
    assert not waiting.done()
    bench.store.down = set()
    await bench.clock.elapse("2s")
    assert await within_bounds(waiting) == 1


async def test_nobody_waits_for_a_watcher_that_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(topic: Topic, ticket: int, *, timeout: float) -> None:
        raise RuntimeError("a defect in the store")

    monkeypatch.setattr(bench.engine.app.waiters._store, "wait", broken)
    handle = await bench.stand.submit(1)
    with pytest.raises(RuntimeError, match="a defect"):
        await within_bounds(handle.result())


async def test_closing_the_app_ends_the_waiting() -> None:
    app = Holdfast("memory://")

    @app.task("never")
    async def never(ctx: Context) -> None: ...

    async with app:
        handle = await never.submit()
        waiting = asyncio.create_task(handle.result())
        await turns()
    with pytest.raises(HoldfastError, match="closed"):
        await within_bounds(waiting)


async def test_a_result_is_awaited_no_longer_than_asked(bench: Bench) -> None:
    handle = await bench.stand.submit(1)
    waiting = asyncio.create_task(handle.result(timeout="1m"))
    await bench.clock.elapse("59s")
    assert not waiting.done()
    await bench.clock.elapse("1s")
    with pytest.raises(ResultTimeout) as late:
        await within_bounds(waiting)
    assert (late.value.task_id, late.value.seconds) == (handle.id, 60)
    assert isinstance(late.value, TimeoutError)
    assert (await handle.info()).status is Status.PENDING, "the task goes on"


async def test_a_task_nobody_knows_is_not_waited_for(bench: Bench) -> None:
    with pytest.raises(TaskNotFound):
        await within_bounds(bench.engine.app.handle("no-such-task").result())


async def test_who_asks_for_a_result_during_an_outage_waits_for_its_end(bench: Bench) -> None:
    handle = await bench.stand.submit(7)
    bench.store.down.add("peek")
    waiting = asyncio.create_task(handle.result())
    await turns()
    assert not waiting.done()
    await bench.engine.start()
    bench.gate.open()
    bench.store.down.clear()
    await bench.clock.elapse("2s")
    assert await within_bounds(waiting) == 7
