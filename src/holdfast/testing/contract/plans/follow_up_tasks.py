"""Tasks that follow from a change of a plan: they come into being with it, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import Plan, PlanChange, PlanNext, PlanStatus
from holdfast.domain.task.transition import Submission
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanDriver
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, StoreDriver, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.tasks.follow_up_tasks import there
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting

Decide = Callable[[PlanDriver], Awaitable[PlanChange]]


async def goes_on(plans: PlanDriver) -> PlanChange:
    return await plans.decided(await plans.driven(), moves={0: ADMITTED})


async def halts(plans: PlanDriver) -> PlanChange:
    plan = await plans.driven()
    return await plans.decided(plan, status=PlanStatus.HALTED, next=PlanNext.REST)


async def completes(plans: PlanDriver) -> PlanChange:
    return await plans.decided(await plans.driven(), status=PlanStatus.COMPLETED)


async def is_paused(plans: PlanDriver) -> PlanChange:
    plan = await plans.driven()
    audit = plans.audit(plan, "pause")
    return await plans.asked(plan, status=PlanStatus.PAUSED, next=PlanNext.REST, audit=audit)


DECISIONS: list[Decide] = [goes_on, halts, completes, is_paused]


def follower(driver: StoreDriver, plan: Plan, name: str = "follower", **fields: Any) -> Submission:
    submission = driver.follower(None, name, **fields)
    return driver.renamed(submission, driver.store.colocated_id(name, plan_id=plan.id))


def followed(driver: StoreDriver, change: PlanChange, **fields: Any) -> PlanChange:
    return replace(change, follows=(follower(driver, change.after, **fields),))


class PlanFollowing(OperatingContract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_change(
        self, plans: PlanDriver, driver: StoreDriver, decide: Decide
    ) -> None:
        change = followed(driver, await decide(plans), payload={"of": 1})
        (submission,) = change.follows
        plan = await plans.commit(change)
        assert await plans.load(plan) == plan
        detail = await driver.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        task = await driver.take(queues=(FOLLOWERS,))
        assert task.id == submission.task.id
        assert (await driver.complete(task)).settled

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_from_a_plan_is_a_signal(
        self, plans: PlanDriver, driver: StoreDriver, decide: Decide
    ) -> None:
        change = followed(driver, await decide(plans))
        ticket = driver.store.ticket(Topic.READY)
        waiters = await waiting(driver.store, Topic.READY, number=2)
        await plans.commit(change)
        async with patience():
            await asyncio.gather(*waiters)
            await driver.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)

    async def test_nothing_follows_from_a_stale_change(
        self, plans: PlanDriver, driver: StoreDriver
    ) -> None:
        late = followed(driver, await goes_on(plans))
        await plans.ask(await plans.load(late.before))
        await plans.refused(late)
        plan = await plans.load(late.before)
        forged = replace(await plans.asked(plan), lease="somebody-else")
        await plans.refused(followed(driver, forged))
        unknown = plans.unsaved("unknown")
        await plans.refused(followed(driver, replace(await plans.asked(plan), after=unknown)))
        assert await there(driver) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeated_change_nothing_follows_again(
        self, plans: PlanDriver, driver: StoreDriver, decide: Decide
    ) -> None:
        change = followed(driver, await decide(plans))
        plan = await plans.commit(change)
        before = await driver.detail(change.follows[0].task)
        assert await plans.commit(change) == plan
        await plans.commit(replace(change, follows=(follower(driver, plan, "new"),)))
        assert await driver.detail(change.follows[0].task) == before
        assert await there(driver) == [before.task.id]

    async def test_an_id_that_was_there_is_left_as_it_is(
        self, plans: PlanDriver, driver: StoreDriver
    ) -> None:
        change = followed(driver, await goes_on(plans))
        plan = await plans.commit(change)
        before = await driver.detail(change.follows[0].task)
        again, other = follower(driver, plan, payload="other"), follower(driver, plan, "other")
        await plans.commit(replace(await plans.decided(plan), follows=(again, other, other)))
        assert await driver.detail(change.follows[0].task) == before
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [before.task.id, other.task.id]

    async def test_a_shut_queue_keeps_nothing_back_that_a_plan_has_done(
        self, plans: PlanDriver, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(Switch.INTAKE, FOLLOWERS)
        change = followed(driver, await completes(plans))
        await plans.commit(change)
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [change.follows[0].task.id]

    async def test_without_a_task_that_could_not_be_read_back_the_plan_stays_as_it_is(
        self, plans: PlanDriver, driver: StoreDriver
    ) -> None:
        change = followed(driver, await goes_on(plans))
        (good,) = change.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await plans.all_of(change.after.id)
        with pytest.raises(SerialisationError):
            await plans.port.apply(replace(change, follows=(good, bad)))
        assert await plans.all_of(change.after.id) == before
        assert await there(driver) == []
        await plans.commit(change)
