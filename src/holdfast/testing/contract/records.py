"""The common contract of plans and triggers: who claims them, how long settled ones are kept."""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from holdfast.domain.plan.plan import Plan
from holdfast.domain.trigger.trigger import Trigger
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.record_driver import A_YEAR, RecordDriver


class RecordContract(Contract):
    @property
    @abstractmethod
    def records(self) -> RecordDriver[Plan] | RecordDriver[Trigger]:
        """Return the driver of the records under test."""

    # -- claims

    async def test_no_more_than_the_limit_is_handed_out_the_earliest_first(self) -> None:
        made = {due_in: await self.records.create_due(due_in) for due_in in (3, 1, 4, 2)}
        self.clock.advance(3)
        ids = [made[due_in].id for due_in in (1, 2, 3)]
        assert await self.records.claim_ids(limit=2) == ids[:2]
        assert await self.records.claim_ids(limit=2) == ids[2:]
        assert await self.records.claim_ids(limit=2) == []

    async def test_of_many_concurrent_claims_one_gets_each_record(self) -> None:
        ids = sorted([(await self.records.create_due(0)).id for _ in range(20)])
        claims = (self.records.claim_ids(f"c-{n}", limit=7) for n in range(6))
        claimed = await asyncio.gather(*claims)
        assert sorted(record_id for claim in claimed for record_id in claim) == ids

    async def test_a_claim_returns_the_seconds_until_the_next_record_is_due(self) -> None:
        assert await self.records.next_seconds() is None
        await self.records.create_due(90)
        await self.records.create_due(60)
        assert await self.records.next_seconds() == 60
        self.clock.advance(20)
        assert await self.records.next_seconds() == 40
        await self.records.create_due(0)
        assert (await self.records.claim(lease_seconds=9)).next_seconds == 9

    async def test_a_claim_that_leaves_due_records_returns_zero_seconds(self) -> None:
        for _ in range(2):
            await self.records.create_due(0)
        assert (await self.records.claim(limit=1)).next_seconds == 0

    # -- retention

    async def test_its_time_counts_from_its_end(self) -> None:
        await self.records.create_settled(after_seconds=A_YEAR, keep_seconds=100)
        self.clock.advance(99)
        assert await self.records.prune() == 0

    async def test_the_age_asked_for_may_keep_it_longer(self) -> None:
        await self.records.create_settled(keep_seconds=10)
        self.clock.advance(60)
        assert await self.records.prune(older_than_seconds=100) == 0
        self.clock.advance(60)
        assert await self.records.prune(older_than_seconds=100) == 1

    async def test_with_ignore_keep_it_is_deleted_before_its_retention_ends(self) -> None:
        for _ in range(2):
            await self.records.create_settled(keep_seconds=A_YEAR)
        kept = await self.records.start()
        self.clock.advance(60)
        assert await self.records.prune(older_than_seconds=100, ignore_keep=True) == 0
        assert await self.records.prune(older_than_seconds=10) == 0
        assert await self.records.prune(older_than_seconds=10, ignore_keep=True, dry_run=True) == 2
        assert await self.records.prune(older_than_seconds=10, ignore_keep=True) == 2
        assert await self.records.all_ids() == [kept.id]

    async def test_a_dry_run_counts_and_the_limit_holds(self) -> None:
        for _ in range(3):
            await self.records.create_settled(keep_seconds=1)
        self.clock.advance(2)
        assert [await self.records.prune(dry_run=True, limit=n) for n in (2, 9)] == [2, 3]
        assert len(await self.records.all_ids()) == 3
        assert [await self.records.prune(limit=2) for _ in range(3)] == [2, 1, 0]

    async def test_settled_records_are_counted_before_they_are_pruned(self) -> None:
        await self.records.create_settled(keep_seconds=1)
        self.clock.advance(2)
        assert await self.records.prune(limit=9, dry_run=True) == 1
        assert await self.records.prune(limit=9) == 1
        assert await self.records.all_ids() == []
