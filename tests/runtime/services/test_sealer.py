"""The sealer looks at once, then as often as the store has something for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.services import sealer
from holdfast.runtime.services.sealer import Sealer
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.stores.memory.state import MemoryState
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.environment import environment
from tests.support.runtime.helpers import FlakyStore


class Outboxes(MemoryAdmin):
    """A store as far as the sealer knows it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryState(clock))
        self.waiting = 0
        self.is_down = False
        self.looks: list[float] = []
        self._clock, self._began = clock, clock.steady()

    async def seal(self, *, limit: int) -> int:
        self.looks.append(self._clock.steady() - self._began)
        if self.is_down:
            raise StoreUnavailable("nobody answers")
        sealed = min(limit, self.waiting)
        self.waiting -= sealed
        return sealed


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Outboxes(self.clock)
        store = WrappedStore(MemoryStore(self.clock), admin=self.store)
        self.sealer = Sealer(environment(store, self.clock))
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self.sealer.run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.stop()


async def test_what_waits_is_sealed_at_once_and_looked_for_every_five_seconds(
    bench: Bench,
) -> None:
    bench.store.waiting = 3
    bench.start()
    await bench.clock.elapse("11s")
    assert bench.store.waiting == 0
    assert bench.store.looks == [0, 5, 10]


async def test_a_store_that_never_has_anything_is_looked_at_every_minute(bench: Bench) -> None:
    bench.start()
    await bench.clock.elapse("121s")
    assert bench.store.looks == [0, 60, 120]
    bench.store.waiting = 1
    await bench.clock.elapse("70s")
    assert bench.store.looks[3:] == [180, 185, 190]


async def test_an_outage_is_survived(bench: Bench) -> None:
    bench.store.waiting, bench.store.is_down = 3, True
    bench.start()
    await bench.clock.elapse("11s")
    assert bench.store.waiting == 3
    bench.store.is_down = False
    await bench.clock.elapse("5s")
    assert (bench.store.waiting, bench.store.looks) == (0, [0, 5, 10, 15])


async def test_a_round_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "BATCH", 10)
    monkeypatch.setattr(sealer, "BATCHES_A_ROUND", 3)
    bench.store.waiting = 45
    assert await bench.sealer.tick() == 30
    assert await bench.sealer.tick() == 15
    assert len(bench.store.looks) == 5


async def test_a_worker_seals(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    engine = holdfast_engine(app, store=store, clock=clock)
    await engine.start()
    await clock.elapse("1s")
    assert store.calls.count("seal") == 1
