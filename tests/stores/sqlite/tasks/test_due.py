"""A caller that waits for a due time is woken by an earlier one, and by nothing else."""

import asyncio
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.domain.trigger.trigger import TriggerStatus
from holdfast.ports import Topic
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.transaction import Txn
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE, TriggerDriver
from tests.support.sqlite.sqlite_files import end, opened, start

FOREVER = 240.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def woken(store: SqliteStore, topic: Topic, ticket: int) -> None:
    await asyncio.wait_for(store.wait(topic, ticket, timeout=FOREVER), FOREVER / 2)


async def written(store: SqliteStore) -> None:
    """The writer's thread has come to the end of what it was at, a look at the file among it."""

    def nothing(txn: Txn) -> None:
        del txn

    await store._writer.do(nothing)


async def test_a_busy_process_does_not_wake_who_waits_for_a_time(path: Path) -> None:
    async with opened(path) as store:
        due = store.ticket(Topic.DUE)
        for name in ("a", "b", "c"):
            ready = store.ticket(Topic.READY)
            other = start("submit", path, name, 30)
            await woken(store, Topic.READY, ready)
            assert await asyncio.to_thread(end, other) == "submitted"
            await written(store)
        assert store.ticket(Topic.DUE) == due


async def test_a_trigger_of_another_process_wakes_who_waits_for_a_time(path: Path) -> None:
    async with opened(path) as store:
        due = store.ticket(Topic.DUE)
        waiting = asyncio.ensure_future(woken(store, Topic.DUE, due))
        await asyncio.sleep(0)
        other = start("schedule", path, "nightly", SystemClock().now() - 1)
        await waiting
        assert await asyncio.to_thread(end, other) == "saved"
        found = await store.triggers.claim("s-1")
        assert [trigger.id for trigger in found.triggers] == ["nightly"]


async def test_a_trigger_saved_before_the_wait_is_not_missed(path: Path) -> None:
    async with opened(path) as store:
        due = store.ticket(Topic.DUE)
        await asyncio.to_thread(lambda: end(start("schedule", path, "t", 1)))
        await woken(store, Topic.DUE, due)


async def test_one_that_was_saved_here_is_told_once(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store, opened(path, clock) as other:
        await hands_on(store, clock).save()
        due, ready = store.ticket(Topic.DUE), store.ticket(Topic.READY)
        await StoreDriver(other, clock).submit()
        await woken(store, Topic.READY, ready)
        await written(store)
        assert store.ticket(Topic.DUE) == due


async def test_one_of_another_process_is_told_though_one_was_saved_here_since(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store, opened(path, clock) as other:
        due = store.ticket(Topic.DUE)
        await hands_on(other, clock).save("there", due_in=2 * A_MINUTE)
        await hands_on(store, clock).save("here", due_in=A_MINUTE)
        await woken(store, Topic.DUE, due)
        due = store.ticket(Topic.DUE)
        await hands_on(other, clock).save("sooner", due_in=1.0)
        await woken(store, Topic.DUE, due)


def hands_on(store: SqliteStore, clock: ManualClock) -> TriggerDriver:
    return TriggerDriver(store, clock, StoreDriver(store, clock))


async def test_a_later_one_and_one_that_waits_for_no_time_wake_nobody(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = hands_on(store, clock)
        first = await driver.save("first")
        due = store.ticket(Topic.DUE)
        await driver.save("later", due_in=2 * A_MINUTE)
        await driver.port.save(first)
        await driver.save("paused", due_in=1.0, status=TriggerStatus.PAUSED)
        assert store.ticket(Topic.DUE) == due
        await driver.save("sooner", due_in=1.0)
        assert store.ticket(Topic.DUE) == due + 1


async def test_one_that_fires_often_wakes_who_sleeps_past_its_next_time(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = hands_on(store, clock)
        await driver.save("seldom", due_in=60 * A_MINUTE)
        await driver.save_due("often")
        leased = await driver.take_one()
        due = store.ticket(Topic.DUE)
        await driver.fire(leased)  # its next time is in a minute
        assert store.ticket(Topic.DUE) == due + 1
