"""Leases of plans: one instance at a time drives a plan, while a person may write and wake it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.domain.plan.plan import Plan, PlanNext, PlanStatus
from holdfast.ports import Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, lease_id
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS
from holdfast.testing.contract.tasks.signals import expect_signal


class PlanLeaseContract(Contract):
    async def test_a_plan_is_handed_out_with_a_lease_in_the_same_version(self) -> None:
        ready = await self.plans.ready()
        plan = await self.plans.take_one("d-1")
        assert plan.lease is not None
        assert (plan.lease.owner, plan.lease.fence) == ("d-1", plan.fence)
        assert plan.fence > ready.fence
        assert replace(plan, lease=None, fence=ready.fence) == ready
        assert await self.plans.load(plan) == plan

    async def test_nobody_else_gets_a_plan_while_its_lease_lasts(self, plan: Plan) -> None:
        self.clock.advance(LEASE_SECONDS - 1)
        assert await self.plans.claim_ids("d-2") == []
        assert await self.plans.claim_ids("d-1") == []
        assert await self.plans.load(plan) == plan

    @pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
    async def test_a_jump_of_the_wall_clock_moves_no_plan(self, jump: float) -> None:
        await self.plans.start()
        await self.plans.ready(delay_seconds=10)
        self.clock.jump(jump)
        assert await self.plans.next_seconds() == 10
        self.clock.advance(10)
        assert len(await self.plans.claim_ids("d-2")) == 1
        assert await self.plans.next_seconds() == LEASE_SECONDS - 10

    async def test_a_lease_that_is_renewed_goes_on(self, plan: Plan) -> None:
        for _ in range(3):
            self.clock.advance(LEASE_SECONDS - 1)
            assert await self.plans.renew(plan)
            assert await self.plans.claim_ids("d-2") == []
        loaded = await self.plans.load(plan)
        assert lease_id(loaded) == lease_id(plan)
        assert replace(loaded, lease=plan.lease) == plan

    async def test_a_lapsed_lease_is_taken_over_and_fences_rise(self, plan: Plan) -> None:
        fences = [plan.fence]
        for owner in ("d-2", "d-3", "d-3"):
            self.clock.advance(LEASE_SECONDS)
            taken = await self.plans.take_one(owner)
            assert taken.version == plan.version
            assert taken.lease is not None
            assert (taken.lease.owner, taken.lease.fence) == (owner, taken.fence)
            fences.append(taken.fence)
        assert fences == sorted(set(fences))

    async def test_a_zombie_driver_cannot_move_a_plan(self) -> None:
        zombie = await self.plans.start("d-1")
        self.clock.advance(LEASE_SECONDS)
        driver = await self.plans.take_one("d-2")
        assert not await self.plans.renew(zombie)
        assert (
            await self.plans.expect_stale(await self.plans.decide(zombie, moves={0: ADMITTED}))
            == driver
        )
        await self.plans.drive(driver, moves={1: ADMITTED})
        await self.plans.expect_stale(await self.plans.decide(zombie, moves={0: ADMITTED}))
        assert dict(await self.plans.port.members(zombie.id)) == {1: ADMITTED}

    async def test_a_driver_whose_lease_has_lapsed_goes_on_until_it_is_taken_over(self) -> None:
        plan = await self.plans.start()
        self.clock.advance(LEASE_SECONDS * 5)
        assert await self.plans.renew(plan)
        self.clock.advance(LEASE_SECONDS * 5)
        await self.plans.drive(plan)
        assert await self.plans.claim_ids("d-2") == []

    async def test_a_lease_that_is_not_there_is_not_renewed(self, plan: Plan) -> None:
        assert not await self.plans.port.renew(plan.id, "other", lease_seconds=30)
        assert not await self.plans.port.renew("unknown", lease_id(plan), lease_seconds=30)
        await self.plans.drive(plan, next=PlanNext.LOOK)
        assert not await self.plans.renew(plan)

    async def test_a_change_under_a_lease_that_goes_on_renews_it(self, plan: Plan) -> None:
        self.clock.advance(LEASE_SECONDS - 1)
        after = await self.plans.commit(await self.plans.decide(plan), lease_seconds=50)
        assert (lease_id(after), after.fence) == (lease_id(plan), plan.fence)
        assert await self.plans.next_seconds() == 50
        self.clock.advance(49)
        assert await self.plans.claim_ids("d-2") == []

    async def test_a_plan_given_back_is_due_for_anybody_after_its_delay(self, plan: Plan) -> None:
        after = await self.plans.drive(plan, next=PlanNext.LOOK, delay_seconds=5)
        assert (after.lease, after.fence) == (None, plan.fence)
        assert await self.plans.next_seconds() == 5
        self.clock.advance(5)
        taken = await self.plans.take_one("d-2")
        assert taken.fence > plan.fence

    @pytest.mark.parametrize(
        ("next", "status"),
        [(PlanNext.REST, PlanStatus.HALTED), (PlanNext.SETTLED, PlanStatus.COMPLETED)],
    )
    async def test_a_plan_that_rests_or_has_settled_is_never_due(
        self, plan: Plan, next: PlanNext, status: PlanStatus
    ) -> None:
        after = await self.plans.drive(plan, next=next, status=status)
        assert after.lease is None
        assert not await self.plans.renew(plan)
        self.clock.advance(86_400)
        assert await self.plans.next_seconds() is None
        again = await self.plans.ask(after, status=PlanStatus.RUNNING)
        taken = await self.plans.take_one("d-2")
        assert taken.version == again.version
        assert taken.fence > plan.fence

    async def test_the_lease_on_the_record_counts_not_the_one_in_the_change(self) -> None:
        plan = await self.plans.start()
        self.clock.advance(10)
        await self.plans.renew(plan)
        renewed = await self.plans.load(plan)
        change = await self.plans.request(replace(plan, lease=None, fence=0))
        after = await self.plans.commit(change)
        assert (after.lease, after.fence) == (renewed.lease, renewed.fence)
        assert await self.plans.load(plan) == after

    # A person's write is accepted at once, even while a driver has the lease.

    async def test_a_persons_write_leaves_the_plan_with_its_driver(self, plan: Plan) -> None:
        self.clock.advance(10)
        paused = await self.plans.ask(plan, status=PlanStatus.PAUSED, delay_seconds=0)
        assert (paused.lease, paused.fence) == (plan.lease, plan.fence)
        assert await self.plans.next_seconds() == LEASE_SECONDS - 10
        assert await self.plans.renew(plan)

    async def test_its_driver_finds_the_next_write_refused_and_reads_again(self) -> None:
        plan = await self.plans.start()
        decided = await self.plans.decide(plan, moves={0: ADMITTED})
        paused = await self.plans.ask(plan, status=PlanStatus.PAUSED)
        assert await self.plans.expect_stale(decided) == paused
        after = await self.plans.drive(paused, next=PlanNext.REST)
        assert (after.status, after.lease) == (PlanStatus.PAUSED, None)

    async def test_a_person_who_read_it_before_it_was_handed_out_may_write(self) -> None:
        ready = await self.plans.ready()
        pause = await self.plans.request(ready, status=PlanStatus.PAUSED)
        plan = await self.plans.take_one()
        assert (await self.plans.commit(pause)).lease == plan.lease

    async def test_a_plan_without_a_driver_is_due_after_a_persons_write(self) -> None:
        plan = await self.plans.create()
        await self.plans.ask(plan, status=PlanStatus.READY, delay_seconds=7)
        assert await self.plans.next_seconds() == 7
        self.clock.advance(7)
        assert await self.plans.claim_ids() == [plan.id]

    async def test_a_persons_write_wins_nothing_from_a_driver_that_is_gone(self) -> None:
        plan = await self.plans.start("d-1")
        self.clock.advance(LEASE_SECONDS)
        await self.plans.ask(plan, status=PlanStatus.PAUSED)
        assert await self.plans.claim_ids("d-2") == [plan.id]

    async def test_a_person_who_leaves_it_at_rest_takes_it_from_no_driver(self, plan: Plan) -> None:
        await self.plans.ask(plan, next=PlanNext.REST, reason="note")
        assert await self.plans.renew(plan)
        self.clock.advance(LEASE_SECONDS)
        assert await self.plans.claim_ids("d-2") == [plan.id]

    async def test_a_plan_settled_by_a_person_is_taken_from_its_driver(self, plan: Plan) -> None:
        after = await self.plans.ask(plan, next=PlanNext.SETTLED, status=PlanStatus.CANCELLED)
        assert after.lease is None
        assert not await self.plans.renew(plan)
        assert await self.plans.next_seconds() is None

    @pytest.mark.parametrize("next", list(PlanNext))
    @pytest.mark.parametrize("by_driver", [True, False])
    async def test_what_concerns_others_wakes_who_waits_for_plans(
        self, next: PlanNext, by_driver: bool
    ) -> None:
        if next is PlanNext.DRIVE:
            return  # a person does not drive, and the steps of a driver concern nobody else
        plan = await self.plans.start()
        status = PlanStatus.COMPLETED if next is PlanNext.SETTLED else PlanStatus.RUNNING
        decide = self.plans.decide if by_driver else self.plans.request
        change = await decide(plan, next=next, status=status)
        async with expect_signal(self.store, Topic.DUE):
            await self.plans.commit(change)

    # A person has done something to a task: a driver should look at its plan.

    async def test_a_plan_that_rests_is_handed_out_when_it_is_woken(self, plan: Plan) -> None:
        rests = await self.plans.drive(plan, next=PlanNext.REST, status=PlanStatus.HALTED)
        async with expect_signal(self.store, Topic.DUE, waiters=0):
            await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == rests
        taken = await self.plans.take_one("d-2")
        assert replace(taken, lease=None, fence=rests.fence) == rests
        await self.plans.drive(taken, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_several_plans_are_woken_at_once(self) -> None:
        ids = sorted([(await self.plans.ready(delay_seconds=50 + n)).id for n in range(5)])
        await self.plans.port.wake([*ids, "unknown"])
        assert sorted(await self.plans.claim_ids()) == ids

    async def test_a_plan_that_is_due_already_stays_so(self) -> None:
        first, second = await self.plans.ready(), await self.plans.ready(delay_seconds=1)
        self.clock.advance(2)
        await self.plans.port.wake([second.id])
        await self.plans.port.wake([first.id])
        assert await self.plans.claim_ids() == [first.id, second.id]

    async def test_a_plan_that_is_driven_stays_with_its_driver(self, plan: Plan) -> None:
        self.clock.advance(10)
        async with expect_signal(self.store, Topic.DUE, waiters=0):
            await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == plan
        assert await self.plans.next_seconds() == LEASE_SECONDS - 10
        assert await self.plans.renew(plan)

    @pytest.mark.parametrize("next", [PlanNext.REST, PlanNext.LOOK])
    async def test_a_plan_woken_under_its_driver_is_due_when_it_is_given_back(
        self, plan: Plan, next: PlanNext
    ) -> None:
        """The driver may have read the task before the person acted on it."""
        await self.plans.port.wake([plan.id])
        await self.plans.renew(plan)
        plan = await self.plans.drive(plan)
        assert await self.plans.claim_ids("d-2") == []
        await self.plans.drive(plan, next=next, delay_seconds=50)
        plan = await self.plans.take_one("d-2")
        await self.plans.drive(plan, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_a_plan_taken_over_is_not_woken_again(self, plan: Plan) -> None:
        await self.plans.port.wake([plan.id])
        self.clock.advance(LEASE_SECONDS)
        plan = await self.plans.take_one("d-2")
        await self.plans.drive(plan, next=PlanNext.REST)
        assert await self.plans.next_seconds() is None

    async def test_a_plan_that_has_settled_is_not_woken(self, plan: Plan) -> None:
        await self.plans.port.wake([plan.id])
        settled = await self.plans.drive(plan, status=PlanStatus.COMPLETED)
        assert await self.plans.next_seconds() is None
        await self.plans.port.wake([plan.id])
        assert await self.plans.load(plan) == settled
        assert await self.plans.next_seconds() is None

    async def test_a_plan_that_is_still_being_made_is_not_woken(self) -> None:
        plan = await self.plans.create()
        await self.plans.port.wake([plan.id, "unknown", "not a name!"])
        await self.plans.port.wake([])
        assert await self.plans.next_seconds() is None
        assert await self.plans.load(plan) == plan
