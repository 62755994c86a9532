"""Leases of triggers: found when due, handed out once, taken over; measured by two clocks."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.trigger.trigger import LEASE, PENDING, Trigger, TriggerStatus
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS

RESTING = sorted(frozenset(TriggerStatus) - PENDING)


class TriggerLeaseContract(Contract):
    async def test_what_is_due_is_found_up_to_and_with_the_moment(self) -> None:
        trigger = await self.triggers.save(due_in=10)
        at = self.clock.now() + 10
        assert await self.triggers.due(at - 0.25) == []
        assert await self.triggers.due(at) == [trigger.id]
        assert await self.triggers.due(at + 1_000) == [trigger.id]

    async def test_a_trigger_is_due_at_its_very_moment(self) -> None:
        """A scheduler that sleeps until then would otherwise find nothing and poll again."""
        start, due_in = self.clock.now(), 10.000_4
        trigger = await self.triggers.save(due_in=due_in)
        self.clock.jump(10)
        assert await self.triggers.due() == []
        left = await self.triggers.next_seconds()
        assert left is not None
        assert 0 < left < 0.01
        assert await self.triggers.due(start + due_in) == [trigger.id]
        self.clock.jump(start + due_in - self.clock.now())
        assert self.clock.now() == trigger.trigger_at
        assert await self.triggers.claim_ids() == [trigger.id]

    async def test_the_earliest_is_found_first(self) -> None:
        saved = {due_in: await self.triggers.save(due_in=due_in) for due_in in (30, 10, 40, 20)}
        upto = self.clock.now() + 30
        ids = [saved[due_in].id for due_in in (10, 20, 30)]
        assert await self.triggers.due(upto) == ids
        assert await self.triggers.due(upto, limit=2) == ids[:2]

    async def test_a_read_of_due_triggers_changes_nothing(self) -> None:
        trigger = await self.triggers.save_due()
        assert list(await self.triggers.port.find_due(self.clock.now())) == [trigger]
        assert await self.triggers.load(trigger) == trigger
        assert await self.triggers.due() == [trigger.id]

    async def test_what_somebody_works_on_is_not_due(self) -> None:
        await self.triggers.start()
        other = await self.triggers.save_due()
        assert await self.triggers.due() == [other.id]

    async def test_what_a_lapsed_lease_has_left_behind_is_due_at_its_time(self) -> None:
        left = [await self.triggers.save(due_in=due_in) for due_in in (3, 1)]
        other = await self.triggers.save(due_in=2)
        early = await self.triggers.save(due_in=1_000)
        for trigger in (*left, early):
            await self.triggers.take(trigger)
        self.clock.advance(LEASE_SECONDS)
        assert await self.triggers.due() == [left[1].id, other.id, left[0].id]
        assert (await self.triggers.due(self.clock.now() + 1_000))[-1] == early.id

    async def test_a_lease_makes_a_trigger_its_owners(self) -> None:
        saved = await self.triggers.save()
        self.clock.advance(5)
        leased = await self.triggers.take(saved, "s-1")
        assert leased.status is LEASE[saved.status]
        assert (leased.owner, leased.version) == ("s-1", saved.version + 1)
        assert leased.lease_until is not None
        assert leased.updated_at == self.clock.now()
        assert (leased.trigger_at, leased.fire_time) == (saved.trigger_at, saved.fire_time)
        assert (leased.retry_count, leased.request) == (0, saved.request)
        assert await self.triggers.load(saved) == leased

    async def test_what_is_due_is_handed_out_as_if_it_had_been_asked_for(self) -> None:
        saved = await self.triggers.save_due()
        leased = await self.triggers.take_one("s-1")
        assert (leased.status, leased.owner) == (LEASE[saved.status], "s-1")
        assert (leased.version, leased.retry_count) == (saved.version + 1, 0)
        assert await self.triggers.load(saved) == leased

    async def test_nobody_else_gets_a_trigger_while_its_lease_lasts(self) -> None:
        trigger = await self.triggers.save_due()
        leased = await self.triggers.take(trigger, "s-1")
        self.clock.advance(LEASE_SECONDS - 1)
        assert await self.triggers.port.acquire_lease(trigger.id, "s-2") is None
        assert await self.triggers.claim_ids("s-2") == []
        assert await self.triggers.claim_ids("s-1") == []
        assert await self.triggers.load(trigger) == leased

    async def test_a_claim_by_id_does_not_say_when_the_next_is_due(self) -> None:
        trigger = await self.triggers.save()
        await self.triggers.save()
        due = await self.store.triggers.claim("s-1", trigger_id=trigger.id)
        assert [leased.id for leased in due.triggers] == [trigger.id]
        assert due.next_seconds is None

    async def test_a_hundred_are_leased_for_half_a_minute_by_default(self) -> None:
        for _ in range(101):
            await self.triggers.save_due()
        first = (await self.triggers.port.claim("s-1")).triggers
        assert len(first) == 100
        assert len((await self.triggers.port.claim("s-2")).triggers) == 1
        self.clock.advance(29)
        assert await self.triggers.port.acquire_lease(first[0].id, "s-3") is None
        self.clock.advance(1)
        assert await self.triggers.port.acquire_lease(first[0].id, "s-3") is not None
        self.clock.advance(29)
        assert await self.triggers.port.acquire_lease(first[0].id, "s-4") is None
        self.clock.advance(1)
        assert await self.triggers.port.acquire_lease(first[0].id, "s-4") is not None

    async def test_its_owner_gets_it_again_for_longer(self) -> None:
        trigger = await self.triggers.save_due()
        first = await self.triggers.take(trigger, "s-1")
        self.clock.advance(LEASE_SECONDS - 1)
        again = await self.triggers.take(trigger, "s-1")
        assert (again.owner, again.retry_count) == ("s-1", 0)
        assert again.version > first.version
        self.clock.advance(LEASE_SECONDS - 1)
        assert await self.triggers.claim_ids("s-2") == []
        await self.triggers.expect_stale(self.triggers.decide_fire(first))
        await self.triggers.fire(again)

    async def test_a_lapsed_lease_is_taken_over_and_counts_as_a_failed_try(self) -> None:
        leased = await self.triggers.start("s-1")
        self.clock.advance(LEASE_SECONDS)
        second = await self.triggers.take_one("s-2")
        assert (second.id, second.owner) == (leased.id, "s-2")
        assert (second.version, second.retry_count) == (leased.version + 1, 1)
        self.clock.advance(LEASE_SECONDS)
        third = await self.triggers.take(second, "s-3")
        assert (third.owner, third.retry_count) == ("s-3", 2)

    async def test_what_was_left_behind_is_handed_out_whatever_its_time(self) -> None:
        """Nobody else would ever take the trigger from a scheduler that is gone."""
        leased = await self.triggers.take(await self.triggers.save(due_in=1_000))
        self.clock.advance(LEASE_SECONDS)
        assert await self.triggers.claim_ids("s-2") == [leased.id]

    async def test_a_holder_that_was_taken_over_cannot_write(self) -> None:
        zombie = await self.triggers.start("s-1")
        self.clock.advance(LEASE_SECONDS)
        holder = await self.triggers.take_one("s-2")
        assert await self.triggers.expect_stale(self.triggers.decide_fire(zombie)) == holder
        await self.triggers.fire(holder)
        await self.triggers.expect_stale(self.triggers.decide_fire(zombie))
        assert len(await self.triggers.tasks()) == 1

    async def test_a_trigger_saved_anew_is_taken_from_its_holder(self) -> None:
        leased = await self.triggers.start("s-1", name="nightly")
        anew = await self.triggers.save("nightly", due_in=50)
        assert (anew.version, anew.owner) == (leased.version + 1, None)
        assert await self.triggers.expect_stale(self.triggers.decide_fire(leased)) == anew
        assert await self.triggers.next_seconds() == 50
        taken = await self.triggers.take(anew, "s-2")
        assert (taken.owner, taken.retry_count) == ("s-2", 0)

    async def test_a_holder_whose_lease_has_lapsed_may_write_until_it_is_taken_over(self) -> None:
        leased = await self.triggers.start()
        self.clock.advance(LEASE_SECONDS * 10)
        await self.triggers.fire(leased)
        assert await self.triggers.claim_ids("s-2") == [leased.id]  # its next time has come

    async def test_what_is_given_back_is_free_at_once(self, leased: Trigger) -> None:
        now = self.clock.now()
        put_off = self.triggers.change(
            leased, fire_time=leased.fire_time, trigger_at=now, retry_count=1
        )
        after = (await self.triggers.commit(put_off)).trigger
        assert (after.owner, after.lease_until, after.retry_count) == (None, None, 1)
        taken = await self.triggers.take_one("s-2")
        assert (taken.id, taken.retry_count) == (leased.id, 1)

    @pytest.mark.parametrize("status", RESTING)
    async def test_what_waits_for_no_time_is_nobodys(self, status: TriggerStatus) -> None:
        trigger = await self.triggers.save_due(status=status)
        assert await self.triggers.port.acquire_lease(trigger.id, "s-1") is None
        assert await self.triggers.claim_ids() == []
        assert await self.triggers.load(trigger) == trigger

    async def test_of_many_who_ask_for_one_at_once_one_gets_it(self) -> None:
        trigger = await self.triggers.save_due()
        leases = (self.triggers.port.acquire_lease(trigger.id, f"s-{n}") for n in range(8))
        answers = [answer for answer in await asyncio.gather(*leases) if answer is not None]
        assert [answer.id for answer in answers] == [trigger.id]
        assert await self.triggers.load(trigger) == answers[0]

    async def test_many_lapsed_leases_are_taken_over_once_each(self) -> None:
        ids = sorted([(await self.triggers.save_due()).id for _ in range(12)])
        await self.triggers.claim_ids("s-1")
        self.clock.advance(LEASE_SECONDS)
        claims = await asyncio.gather(
            *(self.triggers.claim_ids(f"s-{n}", limit=5) for n in range(2, 8))
        )
        assert sorted(trigger_id for claim in claims for trigger_id in claim) == ids

    async def test_the_end_of_a_lease_is_a_due_time(self) -> None:
        await self.triggers.save_due()
        await self.triggers.save(due_in=500)
        assert (await self.triggers.claim(lease_seconds=45)).next_seconds == 45
        self.clock.advance(15)
        assert await self.triggers.next_seconds() == 30

    async def test_what_rests_has_ended_or_was_removed_is_never_due(self) -> None:
        gone, ended, paused = [
            await self.triggers.take(await self.triggers.save()) for _ in range(3)
        ]
        await self.triggers.port.remove(gone.id)
        await self.triggers.settle(ended)
        await self.triggers.commit(self.triggers.change(paused, status=TriggerStatus.PAUSED))
        assert await self.triggers.next_seconds() is None
        self.clock.advance(1_000)
        assert await self.triggers.next_seconds() is None
        assert await self.triggers.due() == []

    async def test_a_read_of_due_triggers_may_go_further_than_now(self) -> None:
        soon, later = await self.triggers.save(due_in=10), await self.triggers.save(due_in=20)
        now = self.clock.now()
        assert await self.triggers.claim_ids() == []
        assert await self.triggers.claim_ids(upto=now + 10) == [soon.id]
        assert await self.triggers.claim_ids(upto=now + 20) == [later.id]

    async def test_fire_times_go_by_the_clock_on_the_wall(self) -> None:
        trigger = await self.triggers.save(due_in=3_600)
        self.clock.jump(3_000)
        assert await self.triggers.next_seconds() == 600
        self.clock.jump(600)
        assert await self.triggers.claim_ids() == [trigger.id]

    async def test_a_wall_clock_set_back_makes_a_trigger_wait_again(self) -> None:
        await self.triggers.save_due()
        self.clock.jump(-100)
        assert await self.triggers.next_seconds() == 100

    @pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
    async def test_a_jump_of_the_wall_clock_ends_no_lease(self, jump: float) -> None:
        trigger = await self.triggers.save(due_in=-100_000)
        leased = await self.triggers.take(trigger, "s-1")
        self.clock.jump(jump)
        self.clock.advance(LEASE_SECONDS - 1)
        assert await self.triggers.port.acquire_lease(trigger.id, "s-2") is None
        assert await self.triggers.next_seconds() == 1
        assert await self.triggers.load(trigger) == leased
        self.clock.advance(1)
        assert await self.triggers.claim_ids("s-2") == [trigger.id]

    @pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
    async def test_a_lease_is_as_long_after_a_jump_as_before(self, jump: float) -> None:
        trigger = await self.triggers.save(due_in=-100_000)
        self.clock.jump(jump)
        assert (await self.triggers.claim("s-1")).next_seconds == LEASE_SECONDS
        self.clock.advance(LEASE_SECONDS - 1)
        assert await self.triggers.claim_ids("s-2") == []
        self.clock.advance(1)
        assert await self.triggers.claim_ids("s-2") == [trigger.id]
