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
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanHands
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, Hands, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchHands
from holdfast.testing.contract.tasks.follow_up_tasks import there
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting

Decide = Callable[[PlanHands], Awaitable[PlanChange]]


async def goes_on(plans: PlanHands) -> PlanChange:
    return await plans.decided(await plans.driven(), moves={0: ADMITTED})


async def halts(plans: PlanHands) -> PlanChange:
    plan = await plans.driven()
    return await plans.decided(plan, status=PlanStatus.HALTED, next=PlanNext.REST)


async def completes(plans: PlanHands) -> PlanChange:
    return await plans.decided(await plans.driven(), status=PlanStatus.COMPLETED)


async def is_paused(plans: PlanHands) -> PlanChange:
    plan = await plans.driven()
    audit = plans.audit(plan, "pause")
    return await plans.asked(plan, status=PlanStatus.PAUSED, next=PlanNext.REST, audit=audit)


DECISIONS: list[Decide] = [goes_on, halts, completes, is_paused]


def follower(hands: Hands, plan: Plan, name: str = "follower", **fields: Any) -> Submission:
    submission = hands.follower(None, name, **fields)
    return hands.renamed(submission, hands.store.colocated_id(name, plan_id=plan.id))


def followed(hands: Hands, change: PlanChange, **fields: Any) -> PlanChange:
    return replace(change, follows=(follower(hands, change.after, **fields),))


class PlanFollowing(OperatingContract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_change(
        self, plans: PlanHands, hands: Hands, decide: Decide
    ) -> None:
        change = followed(hands, await decide(plans), payload={"of": 1})
        (submission,) = change.follows
        plan = await plans.commit(change)
        assert await plans.load(plan) == plan
        detail = await hands.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        task = await hands.take(queues=(FOLLOWERS,))
        assert task.id == submission.task.id
        assert (await hands.complete(task)).settled

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_from_a_plan_is_a_signal(
        self, plans: PlanHands, hands: Hands, decide: Decide
    ) -> None:
        change = followed(hands, await decide(plans))
        ticket = hands.store.ticket(Topic.READY)
        waiters = await waiting(hands.store, Topic.READY, number=2)
        await plans.commit(change)
        async with patience():
            await asyncio.gather(*waiters)
            await hands.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)

    async def test_nothing_follows_from_a_stale_change(
        self, plans: PlanHands, hands: Hands
    ) -> None:
        late = followed(hands, await goes_on(plans))
        await plans.ask(await plans.load(late.before))
        await plans.refused(late)
        plan = await plans.load(late.before)
        forged = replace(await plans.asked(plan), lease="somebody-else")
        await plans.refused(followed(hands, forged))
        unknown = plans.unsaved("unknown")
        await plans.refused(followed(hands, replace(await plans.asked(plan), after=unknown)))
        assert await there(hands) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeated_change_nothing_follows_again(
        self, plans: PlanHands, hands: Hands, decide: Decide
    ) -> None:
        change = followed(hands, await decide(plans))
        plan = await plans.commit(change)
        before = await hands.detail(change.follows[0].task)
        assert await plans.commit(change) == plan
        await plans.commit(replace(change, follows=(follower(hands, plan, "new"),)))
        assert await hands.detail(change.follows[0].task) == before
        assert await there(hands) == [before.task.id]

    async def test_an_id_that_was_there_is_left_as_it_is(
        self, plans: PlanHands, hands: Hands
    ) -> None:
        change = followed(hands, await goes_on(plans))
        plan = await plans.commit(change)
        before = await hands.detail(change.follows[0].task)
        again, other = follower(hands, plan, payload="other"), follower(hands, plan, "other")
        await plans.commit(replace(await plans.decided(plan), follows=(again, other, other)))
        assert await hands.detail(change.follows[0].task) == before
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [before.task.id, other.task.id]

    async def test_a_shut_queue_keeps_nothing_back_that_a_plan_has_done(
        self, plans: PlanHands, hands: Hands, switches: SwitchHands
    ) -> None:
        await switches.off(Switch.INTAKE, FOLLOWERS)
        change = followed(hands, await completes(plans))
        await plans.commit(change)
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [change.follows[0].task.id]

    async def test_without_a_task_that_could_not_be_read_back_the_plan_stays_as_it_is(
        self, plans: PlanHands, hands: Hands
    ) -> None:
        change = followed(hands, await goes_on(plans))
        (good,) = change.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await plans.all_of(change.after.id)
        with pytest.raises(SerialisationError):
            await plans.port.apply(replace(change, follows=(good, bad)))
        assert await plans.all_of(change.after.id) == before
        assert await there(hands) == []
        await plans.commit(change)
