"""Follow-up tasks of a plan: they are inserted with the plan's change, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import Plan, PlanChange, PlanNext, PlanStatus
from holdfast.domain.task.transition import Submission
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, StoreDriver
from holdfast.testing.contract.tasks.follow_up_tasks import follower_ids
from holdfast.testing.contract.tasks.signals import expect_signal

Decide = Callable[[PlanStoreDriver], Awaitable[PlanChange]]


async def goes_on(plans: PlanStoreDriver) -> PlanChange:
    return await plans.decide(await plans.start(), moves={0: ADMITTED})


async def halts(plans: PlanStoreDriver) -> PlanChange:
    plan = await plans.start()
    return await plans.decide(plan, status=PlanStatus.HALTED, next=PlanNext.REST)


async def completes(plans: PlanStoreDriver) -> PlanChange:
    return await plans.decide(await plans.start(), status=PlanStatus.COMPLETED)


async def is_paused(plans: PlanStoreDriver) -> PlanChange:
    plan = await plans.start()
    audit = plans.audit(plan, "pause")
    return await plans.request(plan, status=PlanStatus.PAUSED, next=PlanNext.REST, audit=audit)


DECISIONS: list[Decide] = [goes_on, halts, completes, is_paused]


def follower(driver: StoreDriver, plan: Plan, name: str = "follower", **fields: Any) -> Submission:
    submission = driver.follower(None, name, **fields)
    return driver.with_id(submission, driver.store.colocated_id(name, plan_id=plan.id))


def with_follower(driver: StoreDriver, change: PlanChange, **fields: Any) -> PlanChange:
    return replace(change, follows=(follower(driver, change.after, **fields),))


class PlanFollowUpContract(Contract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_change(self, decide: Decide) -> None:
        change = with_follower(self.driver, await decide(self.plans), payload={"of": 1})
        (submission,) = change.follows
        plan = await self.plans.commit(change)
        assert await self.plans.load(plan) == plan
        detail = await self.driver.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        task = await self.driver.take(queues=(FOLLOWERS,))
        assert task.id == submission.task.id
        assert (await self.driver.complete(task)).settled

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_from_a_plan_is_a_signal(self, decide: Decide) -> None:
        change = with_follower(self.driver, await decide(self.plans))
        async with expect_signal(self.store, Topic.READY):
            await self.plans.commit(change)

    async def test_nothing_follows_from_a_stale_change(self) -> None:
        late = with_follower(self.driver, await goes_on(self.plans))
        await self.plans.ask(await self.plans.load(late.before))
        await self.plans.expect_stale(late)
        plan = await self.plans.load(late.before)
        forged = replace(await self.plans.request(plan), lease="somebody-else")
        await self.plans.expect_stale(with_follower(self.driver, forged))
        unknown = self.plans.build("unknown")
        await self.plans.expect_stale(
            with_follower(self.driver, replace(await self.plans.request(plan), after=unknown))
        )
        assert await follower_ids(self.driver) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeated_change_nothing_follows_again(self, decide: Decide) -> None:
        change = with_follower(self.driver, await decide(self.plans))
        plan = await self.plans.commit(change)
        before = await self.driver.detail(change.follows[0].task)
        assert await self.plans.commit(change) == plan
        await self.plans.commit(replace(change, follows=(follower(self.driver, plan, "new"),)))
        assert await self.driver.detail(change.follows[0].task) == before
        assert await follower_ids(self.driver) == [before.task.id]

    async def test_an_id_that_was_there_is_left_as_it_is(self) -> None:
        change = with_follower(self.driver, await goes_on(self.plans))
        plan = await self.plans.commit(change)
        before = await self.driver.detail(change.follows[0].task)
        again, other = (
            follower(self.driver, plan, payload="other"),
            follower(self.driver, plan, "other"),
        )
        await self.plans.commit(
            replace(await self.plans.decide(plan), follows=(again, other, other))
        )
        assert await self.driver.detail(change.follows[0].task) == before
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [before.task.id, other.task.id]

    async def test_a_shut_queue_keeps_nothing_back_that_a_plan_has_done(self) -> None:
        await self.switches.off(Switch.INTAKE, FOLLOWERS)
        change = with_follower(self.driver, await completes(self.plans))
        await self.plans.commit(change)
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [change.follows[0].task.id]

    async def test_without_a_task_that_could_not_be_read_back_the_plan_stays_as_it_is(self) -> None:
        change = with_follower(self.driver, await goes_on(self.plans))
        (good,) = change.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await self.plans.all_of(change.after.id)
        with pytest.raises(SerialisationError):
            await self.plans.port.apply(replace(change, follows=(good, bad)))
        assert await self.plans.all_of(change.after.id) == before
        assert await follower_ids(self.driver) == []
        await self.plans.commit(change)
