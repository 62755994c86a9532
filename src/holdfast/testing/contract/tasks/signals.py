"""Signals: a ticket taken before a poll misses nothing that comes after the poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from holdfast.ports import Store, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver, patience
from holdfast.testing.contract.drivers.ways import walk

FOREVER_SECONDS = 3600.0  # by the test's clock, which stands still

Act = Callable[[StoreDriver], Awaitable[object]]


WAYS = {
    Topic.READY: ("submitted", "released", "given_back", "retrying", "due", "lapsed"),
    Topic.RESTED: ("completed", "failed", "withdrawn"),
}
CASES = [
    *(pytest.param(topic, partial(walk, way=way), id=way) for topic in WAYS for way in WAYS[topic]),
    pytest.param(Topic.RESTED, partial(StoreDriver.run, keep_seconds=0), id="let_go"),
]


class SignalContract(Contract):
    @pytest.mark.parametrize(("topic", "act"), CASES)
    async def test_what_came_after_the_ticket_ends_the_wait(self, topic: Topic, act: Act) -> None:
        async with expect_signal(self.store, topic, waiters=0):
            await act(self.driver)

    @pytest.mark.parametrize(("topic", "act"), CASES)
    async def test_who_waits_is_woken(self, topic: Topic, act: Act) -> None:
        async with expect_signal(self.store, topic, waiters=3):
            await act(self.driver)

    async def test_waking_a_tenants_line_is_a_signal(self) -> None:
        task = await self.driver.start(tenant="t")
        await self.driver.submit(tenant="t")
        async with expect_signal(self.store, Topic.READY, waiters=0):
            await self.driver.complete(task)

    async def test_a_wait_ends_with_its_timeout(self) -> None:
        (waiter,) = await start_waiters(self.store, Topic.READY, number=1, timeout=5)
        self.clock.advance(5)
        async with patience():
            await waiter

    async def test_a_wait_goes_on_when_nothing_has_come(self) -> None:
        (waiter,) = await start_waiters(self.store, Topic.READY, number=1)
        self.clock.advance(FOREVER_SECONDS - 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiter.done()
        waiter.cancel()

    async def test_a_waiter_that_gives_up_disturbs_nobody(self) -> None:
        first, second = await start_waiters(self.store, Topic.RESTED, number=2)
        first.cancel()
        await asyncio.wait([first])
        await self.driver.run()
        async with patience():
            await second

    async def test_a_worker_that_polls_and_waits_misses_nothing(self) -> None:
        """Run the loop of a worker while tasks are submitted at any time."""
        wanted, got = 30, list[str]()

        async def work(worker: str) -> None:
            while len(got) < wanted:
                ticket = self.store.ticket(Topic.READY)
                claims = await self.driver.claim(worker, limit=2)
                got.extend(claimed.task.id for claimed in claims)
                if not claims and len(got) < wanted:
                    await self.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)
            await self.driver.submit(queue="the end")  # wakes the others

        async def submit_all() -> list[str]:
            return [(await self.driver.submit()).id for _ in range(wanted)]

        async with patience():
            ids, *_ = await asyncio.gather(submit_all(), *(work(f"w-{n}") for n in range(3)))
        assert sorted(got) == ids


@asynccontextmanager
async def expect_signal(store: Store, topic: Topic, *, waiters: int = 2) -> AsyncIterator[None]:
    """Expect that the body wakes every waiter, and ends a wait whose ticket is older."""
    ticket = store.ticket(topic)
    woken = await start_waiters(store, topic, number=waiters)
    yield
    async with patience():
        await asyncio.gather(*woken)
        await store.wait(topic, ticket, timeout=FOREVER_SECONDS)


async def start_waiters(
    store: Store, topic: Topic, *, number: int, timeout: float = FOREVER_SECONDS
) -> list[asyncio.Task[None]]:
    """Start so many waiters with a fresh ticket, and let them fall asleep."""
    ticket = store.ticket(topic)
    waiters = [
        asyncio.create_task(store.wait(topic, ticket, timeout=timeout)) for _ in range(number)
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    return waiters
