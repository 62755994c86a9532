"""The sweeps: unconditional, timed, batched, also on an idle queue (L1, L2)."""

import asyncio

import pytest

from holdfast import Context, Holdfast, Retry, RetryAfter, Status
from holdfast.ports import Due
from holdfast.runtime.services.timers import BATCH, TICK_SECONDS, Timers
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.environment import environment
from tests.support.runtime.helpers import FlakyStore, Gate, task_of


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.ran: list[float] = []
        self.gate = Gate()

        @app.task("wait", retry=Retry(max=9))
        async def wait(ctx: Context, stand: bool) -> None:
            self.ran.append(self.clock.now())
            if stand and ctx.attempt == 1:
                await self.gate.stand()
            if ctx.attempt == 1:
                raise RetryAfter(60)

        self.wait = wait
        self.clock = ManualClock()
        self.store = FlakyStore(MemoryStore(self.clock))
        self.engine: Engine = make(app, store=self.store, clock=self.clock)

    def timers(self) -> Timers:
        return Timers(environment(self.store, self.clock))


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


async def test_a_worker_fires_what_is_due_within_a_second(bench: Bench) -> None:
    handle = await bench.wait.submit(False)
    await bench.engine.start()
    await bench.clock.elapse("59s")
    assert len(bench.ran) == 1
    await bench.clock.elapse("2s")
    assert (await handle.info()).status is Status.COMPLETED
    first, second = bench.ran
    assert 60 <= second - first <= 61


async def test_a_worker_takes_over_a_lapsed_lease_within_two_seconds_more(
    bench: Bench, app: Holdfast
) -> None:
    handle = await bench.wait.submit(True)
    dead = app.worker(heartbeat_thread=False)
    await dead.start()
    await bench.gate.wait_until_reached()
    dead.abandon()
    await bench.engine.start()
    await bench.clock.elapse("29s")
    assert len(bench.ran) == 1
    await bench.clock.elapse("3s")
    assert (await handle.info()).status is Status.COMPLETED
    assert (await task_of(bench.engine, handle)).crashes == 0, "reset by the commit"


async def test_the_sweeps_go_on_after_an_outage(bench: Bench) -> None:
    handle = await bench.wait.submit(False)
    await bench.engine.start()
    await bench.clock.elapse("10s")
    bench.store.down = {"expire", "promote"}
    await bench.clock.elapse("2m")
    assert len(bench.ran) == 1
    bench.store.down = set()
    await bench.clock.elapse("1s")
    assert (await handle.info()).status is Status.COMPLETED


async def test_after_a_full_batch_the_next_sweep_follows_at_once(bench: Bench) -> None:
    timers = bench.timers()
    for _ in range(BATCH + 1):
        await bench.wait.submit(False)
    await bench.engine.drain()
    assert bench.engine.worker is not None
    bench.engine.worker.abandon()
    bench.clock.advance("61s")
    assert await timers.tick() == 0.0
    assert await timers.tick() == TICK_SECONDS


async def test_it_sleeps_no_longer_than_until_the_next_is_due(bench: Bench) -> None:
    timers = bench.timers()
    await bench.wait.submit(False)
    await bench.engine.drain()
    assert bench.engine.worker is not None
    bench.engine.worker.abandon()
    assert await timers.tick() == TICK_SECONDS
    bench.clock.advance(59.75)
    assert await timers.tick() == pytest.approx(0.25)


async def test_a_defect_in_a_service_does_not_end_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*, limit: int) -> Due:
        raise RuntimeError("a defect")

    handle = await bench.wait.submit(False)
    await bench.engine.start()
    await bench.clock.elapse("10s")
    with monkeypatch.context() as patched:
        patched.setattr(bench.engine.app.store.tasks, "promote", broken)
        await bench.clock.elapse("2m")
    assert "a defect" in caplog.text
    await bench.clock.elapse("3s")
    assert (await handle.info()).status is Status.COMPLETED


async def test_after_a_standstill_of_the_process_the_heartbeat_goes_first(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    """Our own leases have lapsed while nothing of us ran; a beat still keeps them."""
    bench = Bench(app, holdfast_engine)
    sweeps = asyncio.create_task(bench.timers().run())
    await bench.clock.elapse("2s")
    bench.store.calls.clear()
    bench.clock.advance("31s")
    await bench.clock.elapse("0.9s")
    assert "expire" not in bench.store.calls
    await bench.clock.elapse("1s")
    assert "expire" in bench.store.calls
    sweeps.cancel()
