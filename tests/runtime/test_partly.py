"""A part of the store is away, or one record cannot be read: the rest goes on."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.errors import SerialisationError, StoreForeign
from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.errors import StoreUnavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, PartedStore, events_of, task_of, within_bounds

AWAY = StoreUnavailable("a part is away")
UNREADABLE = SerialisationError("its record cannot be read")


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine, store: type[PartedStore]) -> None:
        self.gate = Gate()
        self.ran: list[str] = []
        self.clock = ManualClock()
        self.store = store(MemoryStore(self.clock))

        @app.task("stand")
        async def stand(ctx: Context, n: int) -> int:
            self.ran.append(ctx.task_id)
            await self.gate.stand()
            return n

        self.stand = stand
        self.engine = make(app, store=self.store, clock=self.clock)

    async def begun(self) -> tuple[Handle[int], Handle[int]]:
        """Two that run; their first words have been sent."""
        handles = await self.stand.submit(1), await self.stand.submit(2)
        await self.engine.start()
        await self.clock.elapse("1s")
        assert sorted(self.ran) == sorted(handle.id for handle in handles)
        return handles

    async def status_of(self, handle: Handle[int]) -> Status:
        return (await task_of(self.engine, handle)).status

    async def losses_of(self, handle: Handle[int]) -> list[bool]:
        """Whether each was counted as a crash."""
        events = await events_of(self.engine, handle)
        return [event.counted for event in events if isinstance(event, LeaseLost)]


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine, PartedStore)


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# -- results


async def test_a_result_is_told_though_another_cannot_be_looked_for(bench: Bench) -> None:
    one, two = await bench.begun()
    waiting = [asyncio.create_task(handle.result()) for handle in (one, two)]
    await turns()
    bench.store.errors[one.id] = AWAY
    bench.gate.open()
    await bench.clock.elapse("2s")
    assert [task.done() for task in waiting] == [False, True]
    bench.store.errors.clear()
    await bench.clock.elapse("3s")
    assert await within_bounds(asyncio.gather(*waiting)) == [1, 2]


async def test_who_asks_for_a_result_in_a_part_that_is_away_waits_for_its_return(
    bench: Bench,
) -> None:
    one, two = await bench.begun()
    bench.gate.open()
    await bench.engine.drain()
    bench.store.errors[one.id] = AWAY
    waiting = [asyncio.create_task(handle.result()) for handle in (one, two)]
    await turns()
    assert [task.done() for task in waiting] == [False, True]
    bench.store.errors.clear()
    await bench.clock.elapse("2s")
    assert await within_bounds(asyncio.gather(*waiting)) == [1, 2]


# -- a record that cannot be read


async def test_a_run_whose_record_cannot_be_read_is_stopped_and_renewed_no_more(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await bench.begun()
    worker = await bench.engine.start()
    bench.store.errors[one.id] = UNREADABLE
    bench.gate.open()
    await bench.clock.elapse("1s")
    assert worker.running == 0
    assert await bench.status_of(two) is Status.COMPLETED
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [one.id in record.getMessage() for record in said] == [True]
    bench.store.renewed.clear()
    await bench.clock.elapse("15s")
    assert bench.store.renewed == [[]]


async def test_a_lease_that_lapses_because_its_record_cannot_be_read_is_counted(
    bench: Bench,
) -> None:
    one, _ = await bench.begun()
    bench.store.errors[one.id] = UNREADABLE
    bench.gate.open()
    await bench.clock.elapse("2s")
    bench.store.errors.clear()
    await bench.clock.elapse("32s")
    assert await bench.losses_of(one) == [True]
    assert await bench.status_of(one) is Status.COMPLETED


class Strict(PartedStore):
    """Refuses a whole batch for one bad record in it."""

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        for one in batch:
            if one.after.id in self.errors:
                raise self.errors[one.after.id]
        return await super().apply(batch)


async def test_a_record_that_cannot_be_read_does_not_cost_its_neighbours_their_run(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bench = Bench(app, holdfast_engine, Strict)
    one, two = await bench.begun()
    bench.store.errors[one.id] = UNREADABLE
    bench.gate.open()
    await bench.clock.elapse("1s")
    assert await bench.status_of(one) is Status.RUNNING, "until its lease lapses"
    assert await bench.status_of(two) is Status.COMPLETED


async def test_a_write_that_a_lasting_error_meets_is_tried_again_and_is_no_outage(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = await bench.begun()
    bench.store.errors[one.id] = StoreForeign("something of another program")
    bench.gate.open()
    await bench.clock.elapse("8s")
    assert set(caplog.messages) == {"something of another program"}
    bench.store.errors.clear()
    await bench.clock.elapse("2s")
    assert await bench.status_of(one) is Status.COMPLETED
    assert len(bench.ran) == 2, "each ran once"


# -- claims


async def test_what_was_claimed_is_begun_though_a_part_was_away(bench: Bench) -> None:
    bench.store.claims_miss_a_part = True
    handles = [await bench.stand.submit(n) for n in range(3)]
    await bench.engine.start()
    await bench.clock.elapse("1s")
    assert sorted(bench.ran) == sorted(handle.id for handle in handles)
    late = await bench.stand.submit(3)
    await bench.clock.elapse("6s")
    assert late.id in bench.ran
    assert len(set(bench.store.requests)) == len(bench.store.requests) > 1, "each is a new one"
    bench.store.claims_miss_a_part = False
    bench.gate.open()
    await bench.engine.drain()
    assert len(bench.ran) == 4


async def test_a_lease_that_nobody_was_told_of_is_nobodys_crash(bench: Bench) -> None:
    """The part that was silent had handed it out."""
    handle = await bench.stand.submit(1)
    await bench.store._store.tasks.claim(
        "whoever", request="r-1", queues=("default",), limit=1, lease_seconds=30
    )
    bench.store.claims_miss_a_part = True
    await bench.engine.start()
    await bench.clock.elapse("1s")
    bench.store.claims_miss_a_part = False
    bench.gate.open()
    await bench.clock.elapse("35s")
    assert await bench.losses_of(handle) == [False]
    assert await bench.status_of(handle) is Status.COMPLETED


# -- the heartbeat


async def test_leases_in_a_part_that_is_away_end_by_our_own_clock_and_no_others(
    bench: Bench,
) -> None:
    one, two = await bench.begun()
    worker = await bench.engine.start()
    bench.store.errors[one.id] = AWAY
    await bench.clock.elapse("25s")
    assert worker.running == 2
    await bench.clock.elapse("3s")
    assert worker.running == 1
    assert await bench.losses_of(one) == [], "stopped before its lease ends"
    bench.store.errors.clear()
    await bench.clock.elapse("2m")
    bench.gate.open()
    await bench.engine.drain()
    assert await bench.losses_of(one) == [False]
    assert await bench.losses_of(two) == []
    assert bench.ran.count(two.id) == 1


async def test_what_could_not_be_renewed_is_tried_again_at_the_next_tick_alone(
    bench: Bench,
) -> None:
    one, two = await bench.begun()
    bench.store.errors[one.id] = AWAY
    await bench.clock.elapse("10s")
    assert bench.store.renewed[-1] == [one.id], "tried again"
    bench.store.renewed.clear()
    await bench.clock.elapse("10s")
    both = [renewed for renewed in bench.store.renewed if two.id in renewed]
    assert len(both) == 1, "the others are renewed at their time"
    assert len(bench.store.renewed) == 20, "every half second"
    bench.store.errors.clear()
    await bench.clock.elapse("1s")
    bench.store.renewed.clear()
    await bench.clock.elapse("5s")
    assert [one.id] not in bench.store.renewed, "it is kept: no more haste"
    await bench.clock.elapse("20s")
    assert await bench.losses_of(one) == []
    bench.gate.open()
    await bench.engine.drain()
    assert len(bench.ran) == 2, "each ran once"


async def test_a_part_that_is_away_hides_no_end_that_was_written_here(bench: Bench) -> None:
    near, far = await bench.begun()
    waiting = asyncio.create_task(near.result())
    await bench.clock.elapse("1s")
    bench.store.calls.clear()
    bench.store.errors[far.id] = AWAY
    bench.gate.open()
    assert await within_bounds(waiting) == 1
    assert "peek" not in bench.store.calls
    bench.store.errors.clear()
    await bench.clock.elapse("5s")
    assert await bench.status_of(far) is Status.COMPLETED
