"""The contract for durable stores: triggers are there again, and several may have them open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.trigger.trigger import Changed
from holdfast.ports import Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver, patience
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from holdfast.testing.contract.tasks.signals import waiting


class TriggerDurability(Contract):
    """``open`` is called more than once in a test and must open the same data each time."""

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[TriggerDriver]:
        async with self.open_again() as store:
            yield TriggerDriver(store, self.clock, StoreDriver(store, self.clock))

    async def test_triggers_are_there_again_after_a_restart(self) -> None:
        waits = await self.triggers.save(due_in=100, tenant="t")
        held = await self.triggers.start()
        change = self.triggers.decide_fire(await self.triggers.start())
        fired = (await self.triggers.commit(change)).trigger
        ended = await self.triggers.end(await self.triggers.save(keep_seconds=50))
        await self.store.close()
        async with self._beside() as again:
            for trigger in (waits, held, fired, ended):
                assert await again.load(trigger) == trigger
            assert (await again.commit(change)).trigger == fired
            assert await again.port.acquire_lease(held.id, "s-2") is None
            assert await again.next_seconds() == LEASE_SECONDS
            self.clock.advance(LEASE_SECONDS)
            (taken,) = (await again.claim("s-2")).records
            assert (taken.id, taken.retry_count) == (held.id, 1)
            self.clock.advance(LEASE_SECONDS)
            assert await again.prune() == 1
        await self.store.open()

    async def test_two_that_have_it_open_share_its_triggers(self) -> None:
        ids = sorted([(await self.triggers.save_due()).id for _ in range(15)])
        async with self._beside() as other:
            sides = [(side, n) for n in range(4) for side in (self.triggers, other)]
            looks = await asyncio.gather(*(side.claim_ids(f"s-{n}", limit=3) for side, n in sides))
        assert sorted(trigger_id for look in looks for trigger_id in look) == ids

    async def test_a_change_by_one_is_compared_with_that_by_the_other(self) -> None:
        held = await self.triggers.start()
        async with self._beside() as other:
            changes = [self.triggers.decide_fire(held), self.triggers.decide_fire(held)]
            outcomes = await asyncio.gather(
                self.triggers.apply(changes[0]), other.apply(changes[1])
            )
            assert sum(isinstance(outcome, Changed) for outcome in outcomes) == 1
            assert await self.triggers.load(held) == await other.load(held)
        assert len(await self.triggers.tasks()) == 1

    async def test_a_trigger_saved_by_one_wakes_those_who_wait_at_the_other(self) -> None:
        async with self._beside() as other:
            (waiter,) = await waiting(other.store, Topic.DUE, number=1)
            trigger = await self.triggers.save_due()
            async with patience():
                await waiter
            assert await other.claim_ids() == [trigger.id]
