"""The contract for durable stores: all is there again, and several may have it open at once."""

from __future__ import annotations

import asyncio

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Applied, Existing
from holdfast.ports import Filter, Kept, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver, patience
from holdfast.testing.contract.tasks.signals import waiting


class Durability(Contract):
    """``open`` is called more than once in a test and must open the same data each time."""

    async def test_the_store_says_that_it_is_durable(self) -> None:
        assert self.store.durable

    async def test_everything_is_there_again_after_a_restart(self) -> None:
        await self.driver.complete(await self.driver.start(key="gone", keep_seconds=0))
        await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 7}))
        await self.driver.fail(await self.driver.start(), retry_seconds=60)
        held = await self.driver.start_past_stage(tenant="t")
        waiting = await self.driver.submit_many(2, tenant="t")
        await self.driver.ask(Command.PAUSE, await self.driver.load(waiting[0]))
        before = (await self.store.views.find(Filter(), limit=100)).tasks
        details = [await self.driver.detail(task) for task in before]
        stats = await self.store.views.stats()
        view = await self.driver.tenant("t")
        await self.store.close()

        async with self.open_again() as store:
            again = StoreDriver(store, self.clock)
            assert (await again.store.views.find(Filter(), limit=100)).tasks == before
            assert [await again.detail(task) for task in before] == details
            assert (await again.store.views.stats()).moves == stats.moves
            assert await again.tenant("t") == view
            assert len(await again.store.admin.audits(limit=10)) == 1
            assert await again.renew(held) == [True]
            task = await again.complete(held)
            assert task.status is Status.COMPLETED
            assert await again.claim_ids() == waiting[1:]
            self.clock.advance(60)
            assert (await again.store.tasks.promote(limit=10)).count == 1
            assert isinstance(
                (await again.insert(again.submission(key="gone", id="x")))[0], Existing
            )
            assert (
                await again.store.admin.prune(
                    Kept.TASKS, older_than_seconds=0, limit=9, dry_run=True
                )
                == 0
            )
            assert not await again.store.admin.doctor(fix=False, limit=10)
        await self.store.open()

    async def test_a_repeat_is_known_after_a_restart(self) -> None:
        transition = await self.driver.done(await self.driver.start())
        first = await self.driver.apply(transition)
        await self.store.close()
        async with self.open_again() as again:
            assert await again.tasks.apply([transition]) == [first]
        await self.store.open()

    async def test_two_that_have_it_open_share_its_tasks(self) -> None:
        async with self.open_again() as store:
            other = StoreDriver(store, self.clock)
            ids = await self.driver.submit_many(20) + await self.driver.submit_many(5, tenant="t")
            claims = await asyncio.gather(
                *(
                    side.claim_ids(f"w-{n}", limit=3)
                    for n in range(5)
                    for side in (self.driver, other)
                )
            )
            got = [task_id for claim in claims for task_id in claim]
            assert sorted(got) == ids[:21]

    async def test_what_one_writes_the_other_compares_with(self) -> None:
        async with self.open_again() as store:
            other = StoreDriver(store, self.clock)
            task = await self.driver.start()
            stage, pause = await self.driver.done(task), other.request(Command.PAUSE, task)
            outcomes = await asyncio.gather(self.driver.apply(stage), other.apply(pause))
            assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
            assert await self.driver.load(task.id) == await other.load(task.id)

    async def test_what_one_writes_wakes_those_who_wait_at_the_other(self) -> None:
        async with self.open_again() as store:
            other = StoreDriver(store, self.clock)
            (waiter,) = await waiting(other.store, Topic.READY, number=1)
            task = await self.driver.submit()
            async with patience():
                await waiter
            assert await other.claim_ids() == [task.id]
