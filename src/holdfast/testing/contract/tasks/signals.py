"""Signals: who takes a ticket before a look misses nothing that comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.task.state import Command
from holdfast.ports import Store, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, Hands, patience

FOREVER_SECONDS = 3600.0  # by the test's clock, which stands still

Act = Callable[[Hands], Awaitable[object]]


async def submit(hands: Hands) -> None:
    await hands.submit()


async def release(hands: Hands) -> None:
    await hands.ask(Command.RELEASE, await hands.load(await held(hands)))


async def held(hands: Hands) -> str:
    return (await hands.submit(held=True)).id


async def give_back(hands: Hands) -> None:
    await hands.give_back(await hands.start())


async def retry_later(hands: Hands) -> None:
    await hands.fail(await hands.start())


async def come_due(hands: Hands) -> None:
    await hands.fail(await hands.start())
    hands.clock.advance(60)
    await hands.store.tasks.promote(limit=10)


async def lose_a_lease(hands: Hands) -> None:
    await hands.start()
    hands.clock.advance(LEASE_SECONDS + 1)
    await hands.store.tasks.expire(limit=10, count_crashes=True)


async def complete(hands: Hands) -> None:
    await hands.complete(await hands.start())


async def suspend(hands: Hands) -> None:
    await hands.suspend(await hands.start())


async def cancel(hands: Hands) -> None:
    await hands.ask(Command.CANCEL, await hands.submit())


async def let_go(hands: Hands) -> None:
    await hands.complete(await hands.start(keep_seconds=0))


READY: list[Act] = [submit, release, give_back, retry_later, come_due, lose_a_lease]
RESTED: list[Act] = [complete, suspend, cancel, let_go]
CASES = [(Topic.READY, act) for act in READY] + [(Topic.RESTED, act) for act in RESTED]


class Signalling(Contract):
    @pytest.mark.parametrize(("topic", "act"), CASES)
    async def test_what_came_after_the_ticket_ends_the_wait(
        self, hands: Hands, topic: Topic, act: Act
    ) -> None:
        ticket = hands.store.ticket(topic)
        await act(hands)
        async with patience():
            await hands.store.wait(topic, ticket, timeout=FOREVER_SECONDS)

    @pytest.mark.parametrize(("topic", "act"), CASES)
    async def test_who_waits_is_woken(self, hands: Hands, topic: Topic, act: Act) -> None:
        waiters = await waiting(hands.store, topic, number=3)
        await act(hands)
        async with patience():
            await asyncio.gather(*waiters)

    async def test_waking_a_tenants_line_is_a_signal(self, hands: Hands) -> None:
        task = await hands.start(tenant="t")
        await hands.submit(tenant="t")
        ticket = hands.store.ticket(Topic.READY)
        await hands.complete(task)
        async with patience():
            await hands.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)

    async def test_a_wait_ends_with_its_timeout(self, hands: Hands) -> None:
        (waiter,) = await waiting(hands.store, Topic.READY, number=1, timeout=5)
        hands.clock.advance(5)
        async with patience():
            await waiter

    async def test_a_wait_goes_on_when_nothing_has_come(self, hands: Hands) -> None:
        (waiter,) = await waiting(hands.store, Topic.READY, number=1)
        hands.clock.advance(FOREVER_SECONDS - 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiter.done()
        waiter.cancel()

    async def test_a_waiter_that_gives_up_disturbs_nobody(self, hands: Hands) -> None:
        first, second = await waiting(hands.store, Topic.RESTED, number=2)
        first.cancel()
        await asyncio.wait([first])
        await complete(hands)
        async with patience():
            await second

    async def test_a_worker_that_looks_and_waits_misses_nothing(self, hands: Hands) -> None:
        """The loop of every worker, against submits that come whenever they come."""
        wanted, got = 30, list[str]()

        async def work(worker: str) -> None:
            while len(got) < wanted:
                ticket = hands.store.ticket(Topic.READY)
                claims = await hands.claim(worker, limit=2)
                got.extend(claimed.task.id for claimed in claims)
                if not claims and len(got) < wanted:
                    await hands.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)
            await hands.submit(queue="the end")  # wakes the others

        async def submit_all() -> list[str]:
            return [(await hands.submit()).id for _ in range(wanted)]

        async with patience():
            ids, *_ = await asyncio.gather(submit_all(), *(work(f"w-{n}") for n in range(3)))
        assert sorted(got) == ids


async def waiting(
    store: Store, topic: Topic, *, number: int, timeout: float = FOREVER_SECONDS
) -> list[asyncio.Task[None]]:
    """Start so many waiters, all of them with a ticket of now and already asleep."""
    ticket = store.ticket(topic)
    waiters = [
        asyncio.create_task(store.wait(topic, ticket, timeout=timeout)) for _ in range(number)
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    return waiters
