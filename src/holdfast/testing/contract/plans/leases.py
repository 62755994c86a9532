"""One instance at a time drives a plan: leased, fenced, taken over; a person may write under it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.plan.plan import PlanNext, PlanStatus
from holdfast.ports import Topic
from holdfast.testing.contract.drivers.plan_driver import (
    ADMITTED,
    PlanContract,
    PlanDriver,
    lease_id,
)
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, patience
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting


class PlanClaiming(PlanContract):
    async def test_a_plan_is_handed_out_with_a_lease_in_the_same_version(
        self, plans: PlanDriver
    ) -> None:
        ready = await plans.ready()
        plan = await plans.take("d-1")
        assert plan.lease is not None
        assert (plan.lease.owner, plan.lease.fence) == ("d-1", plan.fence)
        assert plan.fence > ready.fence
        assert replace(plan, lease=None, fence=ready.fence) == ready
        assert await plans.load(plan) == plan

    async def test_nobody_else_gets_a_plan_while_its_lease_lasts(self, plans: PlanDriver) -> None:
        plan = await plans.driven("d-1")
        plans.clock.advance(LEASE_SECONDS - 1)
        assert await plans.claim_ids("d-2") == []
        assert await plans.claim_ids("d-1") == []
        assert await plans.load(plan) == plan

    async def test_the_plan_that_waits_longest_is_handed_out_first(self, plans: PlanDriver) -> None:
        made = {delay: await plans.ready(delay_seconds=delay) for delay in (3, 1, 4, 2)}
        plans.clock.advance(3)
        ids = [made[delay].id for delay in (1, 2, 3)]
        assert await plans.claim_ids(limit=2) == ids[:2]
        assert await plans.claim_ids(limit=2) == ids[2:]
        assert await plans.claim_ids(limit=2) == []

    async def test_of_many_who_claim_at_once_one_gets_each_plan(self, plans: PlanDriver) -> None:
        ids = sorted([(await plans.ready()).id for _ in range(12)])
        claims = await asyncio.gather(*(plans.claim_ids(f"d-{n}", limit=5) for n in range(6)))
        assert sorted(plan_id for claim in claims for plan_id in claim) == ids

    async def test_a_claim_says_when_to_look_again(self, plans: PlanDriver) -> None:
        assert await plans.next_seconds() is None
        await plans.ready(delay_seconds=50)
        await plans.ready(delay_seconds=40)
        assert await plans.next_seconds() == 40
        plans.clock.advance(15)
        assert await plans.next_seconds() == 25
        await plans.ready()
        assert (await plans.look(lease_seconds=9)).next_seconds == 9

    async def test_more_plans_than_the_limit_are_a_reason_to_look_at_once(
        self, plans: PlanDriver
    ) -> None:
        await plans.ready()
        await plans.ready()
        assert (await plans.look(limit=1)).next_seconds == 0

    @pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
    async def test_a_jump_of_the_wall_clock_moves_no_plan(
        self, plans: PlanDriver, jump: float
    ) -> None:
        await plans.driven()
        await plans.ready(delay_seconds=10)
        plans.clock.jump(jump)
        assert await plans.next_seconds() == 10
        plans.clock.advance(10)
        assert len(await plans.claim_ids("d-2")) == 1
        assert await plans.next_seconds() == LEASE_SECONDS - 10


class PlanHolding(PlanContract):
    async def test_a_lease_that_is_renewed_goes_on(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        for _ in range(3):
            plans.clock.advance(LEASE_SECONDS - 1)
            assert await plans.renew(plan)
            assert await plans.claim_ids("d-2") == []
        found = await plans.load(plan)
        assert lease_id(found) == lease_id(plan)
        assert replace(found, lease=plan.lease) == plan

    async def test_a_lapsed_lease_is_taken_over_and_fences_rise(self, plans: PlanDriver) -> None:
        plan = await plans.driven("d-1")
        fences = [plan.fence]
        for owner in ("d-2", "d-3", "d-3"):
            plans.clock.advance(LEASE_SECONDS)
            taken = await plans.take(owner)
            assert taken.version == plan.version
            assert taken.lease is not None
            assert (taken.lease.owner, taken.lease.fence) == (owner, taken.fence)
            fences.append(taken.fence)
        assert fences == sorted(set(fences))

    async def test_a_zombie_driver_cannot_move_a_plan(self, plans: PlanDriver) -> None:
        zombie = await plans.driven("d-1")
        plans.clock.advance(LEASE_SECONDS)
        driver = await plans.take("d-2")
        assert not await plans.renew(zombie)
        assert await plans.refused(await plans.decided(zombie, moves={0: ADMITTED})) == driver
        await plans.drive(driver, moves={1: ADMITTED})
        await plans.refused(await plans.decided(zombie, moves={0: ADMITTED}))
        assert dict(await plans.port.members(zombie.id)) == {1: ADMITTED}

    async def test_a_driver_whose_lease_has_lapsed_goes_on_until_it_is_taken_over(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        plans.clock.advance(LEASE_SECONDS * 5)
        assert await plans.renew(plan)
        plans.clock.advance(LEASE_SECONDS * 5)
        await plans.drive(plan)
        assert await plans.claim_ids("d-2") == []

    async def test_a_lease_that_is_not_there_is_not_renewed(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        assert not await plans.port.renew(plan.id, "other", lease_seconds=30)
        assert not await plans.port.renew("unknown", lease_id(plan), lease_seconds=30)
        await plans.drive(plan, next=PlanNext.LOOK)
        assert not await plans.renew(plan)

    async def test_a_change_under_a_lease_that_goes_on_renews_it(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        plans.clock.advance(LEASE_SECONDS - 1)
        after = await plans.commit(await plans.decided(plan), lease_seconds=50)
        assert (lease_id(after), after.fence) == (lease_id(plan), plan.fence)
        assert await plans.next_seconds() == 50
        plans.clock.advance(49)
        assert await plans.claim_ids("d-2") == []

    async def test_a_plan_put_down_is_looked_at_by_anybody_after_a_while(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven("d-1")
        after = await plans.drive(plan, next=PlanNext.LOOK, delay_seconds=5)
        assert (after.lease, after.fence) == (None, plan.fence)
        assert await plans.next_seconds() == 5
        plans.clock.advance(5)
        taken = await plans.take("d-2")
        assert taken.fence > plan.fence

    @pytest.mark.parametrize(
        ("next", "status"),
        [(PlanNext.REST, PlanStatus.HALTED), (PlanNext.SETTLED, PlanStatus.COMPLETED)],
    )
    async def test_nobody_looks_at_a_plan_that_rests_or_has_settled(
        self, plans: PlanDriver, next: PlanNext, status: PlanStatus
    ) -> None:
        plan = await plans.driven()
        after = await plans.drive(plan, next=next, status=status)
        assert after.lease is None
        assert not await plans.renew(plan)
        plans.clock.advance(86_400)
        assert await plans.next_seconds() is None
        again = await plans.ask(after, status=PlanStatus.RUNNING)
        taken = await plans.take("d-2")
        assert taken.version == again.version
        assert taken.fence > plan.fence

    async def test_the_lease_on_the_record_counts_not_the_one_in_the_change(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        plans.clock.advance(10)
        await plans.renew(plan)
        renewed = await plans.load(plan)
        change = await plans.asked(replace(plan, lease=None, fence=0))
        after = await plans.commit(change)
        assert (after.lease, after.fence) == (renewed.lease, renewed.fence)
        assert await plans.load(plan) == after


class PlanRequests(PlanContract):
    """A person writes at once, also under the hands of the driver."""

    async def test_a_persons_write_leaves_the_plan_with_its_driver(self, plans: PlanDriver) -> None:
        plan = await plans.driven("d-1")
        plans.clock.advance(10)
        paused = await plans.ask(plan, status=PlanStatus.PAUSED, delay_seconds=0)
        assert (paused.lease, paused.fence) == (plan.lease, plan.fence)
        assert await plans.next_seconds() == LEASE_SECONDS - 10
        assert await plans.renew(plan)

    async def test_its_driver_finds_the_next_write_refused_and_reads_again(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        decided = await plans.decided(plan, moves={0: ADMITTED})
        paused = await plans.ask(plan, status=PlanStatus.PAUSED)
        assert await plans.refused(decided) == paused
        after = await plans.drive(paused, next=PlanNext.REST)
        assert (after.status, after.lease) == (PlanStatus.PAUSED, None)

    async def test_a_person_who_read_it_before_it_was_handed_out_may_write(
        self, plans: PlanDriver
    ) -> None:
        ready = await plans.ready()
        pause = await plans.asked(ready, status=PlanStatus.PAUSED)
        plan = await plans.take()
        assert (await plans.commit(pause)).lease == plan.lease

    async def test_a_plan_that_nobody_drives_is_looked_at_after_a_persons_write(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.create()
        await plans.ask(plan, status=PlanStatus.READY, delay_seconds=7)
        assert await plans.next_seconds() == 7
        plans.clock.advance(7)
        assert await plans.claim_ids() == [plan.id]

    async def test_a_persons_write_wins_nothing_from_a_driver_that_is_gone(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven("d-1")
        plans.clock.advance(LEASE_SECONDS)
        await plans.ask(plan, status=PlanStatus.PAUSED)
        assert await plans.claim_ids("d-2") == [plan.id]

    async def test_a_person_who_leaves_it_at_rest_takes_it_from_no_driver(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven("d-1")
        await plans.ask(plan, next=PlanNext.REST, reason="note")
        assert await plans.renew(plan)
        plans.clock.advance(LEASE_SECONDS)
        assert await plans.claim_ids("d-2") == [plan.id]

    async def test_a_plan_settled_by_a_person_is_taken_from_its_driver(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        after = await plans.ask(plan, next=PlanNext.SETTLED, status=PlanStatus.CANCELLED)
        assert after.lease is None
        assert not await plans.renew(plan)
        assert await plans.next_seconds() is None


class PlanSignals(PlanContract):
    @pytest.mark.parametrize("next", list(PlanNext))
    @pytest.mark.parametrize("by_driver", [True, False])
    async def test_what_concerns_others_wakes_who_waits_for_plans(
        self, plans: PlanDriver, next: PlanNext, by_driver: bool
    ) -> None:
        if next is PlanNext.DRIVE:
            return  # a person does not drive, and the steps of a driver concern nobody else
        plan = await plans.driven()
        status = PlanStatus.COMPLETED if next is PlanNext.SETTLED else PlanStatus.RUNNING
        decide = plans.decided if by_driver else plans.asked
        change = await decide(plan, next=next, status=status)
        ticket = plans.store.ticket(Topic.DUE)
        waiters = await waiting(plans.store, Topic.DUE, number=2)
        await plans.commit(change)
        async with patience():
            await asyncio.gather(*waiters)
            await plans.store.wait(Topic.DUE, ticket, timeout=FOREVER_SECONDS)
