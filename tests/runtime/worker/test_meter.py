"""The times of stages: counted in memory, handed to the store, kept through an outage."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, Retry
from holdfast.errors import StoreUnavailable
from holdfast.ports import BUCKETS, Timings
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.worker import meter as module
from holdfast.runtime.worker.meter import DONE, FAILED, FLUSH_SECONDS, UNDO_FAILED, UNDONE, Meter
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.stores.memory.state import MemoryState
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.environment import environment
from tests.support.runtime.helpers import within_bounds


class Ledger(MemoryAdmin):
    """Of a store, the verb that matters here."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryState(clock))
        self.batches: list[list[Timings]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def observe(self, batch: Sequence[Timings]) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.batches.append(list(batch))

    @property
    def counted(self) -> Counter[tuple[str, str, str]]:
        told: Counter[tuple[str, str, str]] = Counter()
        for one in (one for batch in self.batches for one in batch):
            told[one.type, one.stage, one.outcome] += one.count
        return told


def unreached() -> StoreUnavailable:
    error = StoreUnavailable("nobody answers")
    error.unwritten = True
    return error


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(clock: ManualClock) -> Ledger:
    return Ledger(clock)


@pytest.fixture
def meter(ledger: Ledger, clock: ManualClock) -> Meter:
    store = WrappedStore(MemoryStore(clock), admin=ledger)
    return Meter(environment(store, clock))


async def test_a_call_is_counted_in_the_span_that_ends_at_or_above_its_time(
    meter: Meter, ledger: Ledger
) -> None:
    for took in (0.0, BUCKETS[0], BUCKETS[0] * 1.01, BUCKETS[-1], BUCKETS[-1] + 1):
        meter.add("mail", "send", DONE, took)
    await meter.flush()
    [[told]] = ledger.batches
    counts = [0] * (len(BUCKETS) + 1)
    counts[0], counts[1], counts[-2], counts[-1] = 2, 1, 1, 1
    assert told.counts == tuple(counts)
    assert told.total_seconds == pytest.approx(BUCKETS[0] * 2.01 + BUCKETS[-1] * 2 + 1)


async def test_type_stage_and_outcome_are_counted_apart(meter: Meter, ledger: Ledger) -> None:
    kinds = [("a", "x", DONE), ("a", "x", FAILED), ("a", "y", DONE), ("b", "x", DONE)]
    for kind in kinds:
        meter.add(*kind, 1.0)
    await meter.flush()
    assert ledger.counted == Counter(kinds)


async def test_it_is_told_every_few_seconds_and_only_if_there_is_something(
    meter: Meter, ledger: Ledger, clock: ManualClock
) -> None:
    running = asyncio.create_task(meter.run())
    await clock.elapse(3 * FLUSH_SECONDS)
    assert ledger.batches == []
    meter.add("mail", "send", DONE, 0.1)
    await clock.elapse(FLUSH_SECONDS)
    await clock.elapse(3 * FLUSH_SECONDS)
    assert len(ledger.batches) == 1
    running.cancel()


async def test_an_outage_keeps_the_counts_for_later(
    meter: Meter, ledger: Ledger, clock: ManualClock
) -> None:
    running = asyncio.create_task(meter.run())
    ledger.error = unreached()
    for _ in range(3):
        meter.add("mail", "send", DONE, 1.0)
        await clock.elapse(FLUSH_SECONDS)
    ledger.error = None
    await clock.elapse(FLUSH_SECONDS)
    [[told]] = ledger.batches
    assert (told.count, told.total_seconds) == (3, 3.0)
    running.cancel()


async def test_what_is_counted_during_a_failed_flush_is_added_to_what_was_kept(
    meter: Meter, ledger: Ledger
) -> None:
    ledger.gate, ledger.error = asyncio.Event(), unreached()
    meter.add("mail", "send", DONE, 1.0)
    flush = asyncio.create_task(meter.flush())
    await asyncio.sleep(0)
    meter.add("mail", "send", DONE, 2.0)
    ledger.gate.set()
    await flush
    ledger.error = None
    await meter.flush()
    [[told]] = ledger.batches
    assert (told.count, told.total_seconds) == (2, 3.0)


async def test_what_may_have_been_counted_is_not_counted_again(
    meter: Meter, ledger: Ledger
) -> None:
    meter.add("mail", "send", DONE, 1.0)
    ledger.error = StoreUnavailable("the answer was lost")
    await meter.flush()
    ledger.error = None
    meter.add("mail", "send", DONE, 2.0)
    await meter.flush()
    [[told]] = ledger.batches
    assert (told.count, told.total_seconds) == (1, 2.0)


async def test_what_was_not_sent_yet_outlives_an_answer_that_was_lost(
    meter: Meter, ledger: Ledger
) -> None:
    for number in range(module.BATCH + 1):
        meter.add("mail", f"stage-{number}", DONE, 0.1)
    ledger.error = StoreUnavailable("the answer was lost")
    await meter.flush()
    ledger.error = None
    await meter.flush()
    assert ledger.counted == {("mail", f"stage-{module.BATCH}", DONE): 1}


async def test_a_flush_that_is_stopped_counts_nothing_twice(meter: Meter, ledger: Ledger) -> None:
    ledger.gate = asyncio.Event()
    meter.add("mail", "send", DONE, 1.0)
    flush = asyncio.create_task(meter.flush())
    await asyncio.sleep(0)
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    ledger.gate.set()
    await meter.flush()
    assert ledger.batches == [], "nobody can tell whether it was counted"


async def test_a_defect_of_the_store_keeps_no_worker_from_leaving(
    meter: Meter, ledger: Ledger
) -> None:
    ledger.error = RuntimeError("a defect")
    meter.add("mail", "send", DONE, 1.0)
    await meter.stop()


async def test_kinds_and_batches_are_bounded(
    meter: Meter, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CELLS_LIMIT", 500)
    for number in range(600):
        meter.add("mail", f"stage-{number}", DONE, 0.1)
    meter.add("mail", "stage-0", DONE, 0.1)
    await meter.flush()
    assert [len(batch) for batch in ledger.batches] == [200, 200, 100]
    assert ledger.counted["mail", "stage-0", DONE] == 2
    assert len(caplog.records) == 1, "it is said once"


async def test_each_end_of_a_stage_and_of_its_undo_is_timed_by_its_outcome(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow, tries = app.workflow("move"), Counter[str]()

    @flow.stage
    async def plain(ctx: Context, _: None) -> None: ...

    @flow.stage(retry=Retry(5))
    async def copy(ctx: Context, _: None) -> None:
        tries["copy"] += 1
        engine.clock.advance(2)
        if tries["copy"] == 1:
            raise ValueError("not yet")

    @copy.undo
    async def uncopy(ctx: Context, _: None) -> None:
        tries["uncopy"] += 1
        if tries["uncopy"] == 1:
            raise ValueError("not yet")

    engine = holdfast_engine(app)
    handle = await flow.submit(None)
    await engine.advance("10m")
    await handle.rollback()
    await engine.advance("10m")
    timings = (await engine.store.views.stats()).timings
    counted = {(one.stage, one.outcome): one.count for one in timings}
    assert counted == {
        ("plain", DONE): 1,  # and no undo of it: there is none to call
        ("copy", DONE): 1,
        ("copy", FAILED): 1,
        ("copy", UNDONE): 1,
        ("copy", UNDO_FAILED): 1,
    }
    [copied] = [one for one in timings if (one.stage, one.outcome) == ("copy", DONE)]
    assert copied.total_seconds == pytest.approx(2.0)


async def test_a_worker_hands_in_its_counts_before_it_leaves(app: Holdfast) -> None:
    store, clock = MemoryStore(ManualClock()), ManualClock()

    @app.task("mail")
    async def send(ctx: Context) -> None: ...

    with app.on(store, clock=clock, chance=app.chance):
        worker = app.worker(heartbeat_thread=False)
        await worker.start()
        handle = await send.submit()
        await within_bounds(handle.result())
        assert (await store.views.stats()).timings == ()
        await within_bounds(worker.drain())
        [told] = (await store.views.stats()).timings
        assert (told.type, told.outcome, told.count) == ("mail", DONE, 1)
