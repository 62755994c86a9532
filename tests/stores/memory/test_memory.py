"""The memory store alone: it is not durable, forgets tenants, and has a doctor and signals."""

import asyncio

from msgspec.structs import replace

from holdfast.ports import Topic
from holdfast.stores.memory import MemoryStore
from holdfast.stores.signals import Signals
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver


async def test_a_store_in_memory_says_that_it_is_not_durable() -> None:
    assert not MemoryStore(ManualClock()).durable


async def test_a_tenant_is_forgotten_with_its_last_task_only() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    driver = StoreDriver(store, clock)
    first = await driver.start(tenant="t", stages=("only",), keep_seconds=0)
    second = await driver.submit(tenant="t", stages=("only",), keep_seconds=0)
    await driver.complete(first)
    assert (await driver.tenant("t")).active == second.id
    await driver.complete(await driver.take())
    assert store.state.tenants == {}


async def test_the_doctor_finds_a_record_that_names_other_stages_than_ran() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    driver = StoreDriver(store, clock)
    task = await driver.finish_stage(await driver.start(stages=("one", "two")))
    for stages in (("odd", "two"), ()):
        store.state.tasks[task.id] = replace(task, stages=stages)
        [found] = await store.admin.doctor(fix=False, limit=10)
        assert (found.invariant, found.task_id) == ("I7", task.id)
    store.state.tasks[task.id] = task
    assert await store.admin.doctor(fix=False, limit=10) == []


async def test_a_signal_reaches_the_others_when_a_loop_was_closed() -> None:
    signals = Signals(ManualClock())
    ticket = signals.ticket(Topic.READY)
    gone = asyncio.new_event_loop()
    left = gone.create_task(signals.wait(Topic.READY, ticket, timeout=99))
    await asyncio.to_thread(gone.run_until_complete, asyncio.sleep(0))
    gone.close()
    waiting = asyncio.ensure_future(signals.wait(Topic.READY, ticket, timeout=99))
    await asyncio.sleep(0)
    signals.notify(Topic.READY)
    await waiting
    left._log_destroy_pending = False  # type: ignore[attr-defined]
