"""Tasks that follow from a transition: they come into being with it, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    Existing,
    Full,
    Inserted,
    MovedOn,
    Shut,
    Submission,
    Transition,
)
from holdfast.ports import Filter, Switch, Topic
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, Hands, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchHands
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting

Decide = Callable[[Hands], Awaitable[Transition]]


async def completes(hands: Hands) -> Transition:
    return await hands.done(await hands.start(stages=("only",)))


async def goes_on(hands: Hands) -> Transition:
    return await hands.done(await hands.start())


async def leaves_nothing(hands: Hands) -> Transition:
    return await hands.done(await hands.start(stages=("only",), keep_seconds=0))


async def is_retried(hands: Hands) -> Transition:
    return await hands.failed(await hands.start())


async def is_suspended(hands: Hands) -> Transition:
    return await hands.failed(await hands.start(tenant="t"), retry_seconds=None)


async def is_cancelled(hands: Hands) -> Transition:
    return hands.asked(Command.CANCEL, await hands.submit(tenant="t"))


async def is_asked_to_pause(hands: Hands) -> Transition:
    return hands.asked(Command.PAUSE, await hands.start())


async def is_released(hands: Hands) -> Transition:
    return hands.asked(Command.RELEASE, await hands.submit(held=True))


DECISIONS: list[Decide] = [
    *(completes, goes_on, leaves_nothing, is_retried, is_suspended),
    *(is_cancelled, is_asked_to_pause, is_released),
]


def followed(hands: Hands, transition: Transition, **fields: Any) -> Transition:
    return replace(transition, follows=(hands.follower(transition.after, **fields),))


async def there(hands: Hands) -> list[str]:
    page = await hands.store.views.find(Filter(queue=FOLLOWERS), limit=100)
    return [task.id for task in page.tasks]


class Following(OperatingContract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_transition(
        self, hands: Hands, decide: Decide
    ) -> None:
        transition = followed(hands, await decide(hands), payload={"of": 1})
        (submission,) = transition.follows
        await hands.commit(transition)
        detail = await hands.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        assert await there(hands) == [submission.task.id]

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_is_handed_out_and_runs(self, hands: Hands, decide: Decide) -> None:
        transition = followed(hands, await decide(hands))
        await hands.commit(transition)
        task = await hands.take("w-2", queues=(FOLLOWERS,))
        assert task.id == transition.follows[0].task.id
        assert await hands.renew(task, worker="w-2") == [True]
        assert (await hands.complete(task)).status is Status.COMPLETED

    async def test_of_a_record_that_goes_with_the_transition_the_follower_stays(
        self, hands: Hands
    ) -> None:
        transition = followed(hands, await leaves_nothing(hands))
        await hands.commit(transition)
        assert await hands.store.views.load([transition.task_id]) == [None]
        assert await there(hands) == [transition.follows[0].task.id]

    async def test_what_follows_may_have_followers_of_its_own(self, hands: Hands) -> None:
        await hands.commit(followed(hands, await completes(hands)))
        first = await hands.take(queues=(FOLLOWERS,))
        second = hands.follower(first, "second")
        await hands.commit(replace(await hands.done(first), follows=(second,)))
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [second.task.id]

    @pytest.mark.parametrize("decide", [is_cancelled, is_asked_to_pause, leaves_nothing])
    async def test_what_follows_is_a_signal(self, hands: Hands, decide: Decide) -> None:
        transition = followed(hands, await decide(hands))
        ticket = hands.store.ticket(Topic.READY)
        waiters = await waiting(hands.store, Topic.READY, number=2)
        await hands.commit(transition)
        async with patience():
            await asyncio.gather(*waiters)
            await hands.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)

    async def test_a_full_queue_refuses_nothing_that_has_happened(self, hands: Hands) -> None:
        task = await hands.start(tenant="t", stages=("only",))
        await hands.submit(tenant="t", queue=FOLLOWERS)
        transition = followed(hands, await hands.done(task))
        await hands.commit(transition)
        assert transition.follows[0].task.id in await there(hands)
        late = hands.submission(tenant="t", queue=FOLLOWERS)
        assert await hands.insert(late, depth_limit=2) == [Full(FOLLOWERS)]
        assert await hands.insert(late, depth_limit=3) == [Inserted(late.task.id)]

    async def test_a_shut_queue_refuses_nothing_that_has_happened(
        self, hands: Hands, switches: SwitchHands
    ) -> None:
        await switches.off(Switch.INTAKE, FOLLOWERS)
        transition = followed(hands, await completes(hands))
        await hands.commit(transition)
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [transition.follows[0].task.id]
        assert await hands.insert(hands.submission(queue=FOLLOWERS)) == [Shut(FOLLOWERS)]

    async def test_a_callback_is_kept_through_all_that_happens(self, hands: Hands) -> None:
        url = "https://example.com/told"
        task = await hands.submit(callback=url)
        assert task.callback == url
        task = await hands.take()
        assert task.callback == url
        task = await hands.suspend(await hands.finish_stage(task))
        await hands.ask(Command.RETRY, task)
        task = await hands.complete(await hands.take())
        assert (task.callback, (await hands.load(task.id)).callback) == (url, url)


class NotFollowing(OperatingContract):
    async def test_nothing_follows_from_a_stale_write(self, hands: Hands) -> None:
        transition = followed(hands, await completes(hands))
        await hands.ask(Command.PAUSE, transition.before)
        await hands.refused(transition)
        forged = replace(followed(hands, await is_cancelled(hands)), lease="somebody-else")
        await hands.refused(forged)
        unknown = replace(transition.before, id=hands.submission().task.id)
        lost = replace(transition, before=unknown, after=replace(transition.after, id=unknown.id))
        lost = followed(hands, lost)
        await hands.refused(lost)
        assert await there(hands) == []
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == []

    async def test_nothing_follows_where_the_tenant_has_moved_on(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start(tenant="t", workflow=True, hold=False))
        await hands.complete(await hands.start(tenant="t"))
        transition = followed(hands, hands.asked(Command.RETRY, task))
        assert isinstance(await hands.apply(transition), MovedOn)
        assert await there(hands) == []

    async def test_nothing_follows_where_the_tenant_is_busy(self, hands: Hands) -> None:
        await hands.start(tenant="t")
        held = await hands.submit(tenant="t", held=True)
        transition = followed(hands, hands.asked(Command.RELEASE, held))
        assert isinstance(await hands.apply(replace(transition, not_if_busy=True)), Busy)
        assert await there(hands) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeat_nothing_follows_again(self, hands: Hands, decide: Decide) -> None:
        transition = followed(hands, await decide(hands))
        await hands.commit(transition)
        before = await hands.detail(transition.follows[0].task)
        await hands.commit(transition)
        await hands.commit(replace(transition, follows=(hands.follower(transition.after, "new"),)))
        assert await hands.detail(transition.follows[0].task) == before
        assert await there(hands) == [before.task.id]

    async def test_a_repeat_brings_back_nothing_that_has_run(self, hands: Hands) -> None:
        transition = followed(hands, await is_asked_to_pause(hands), keep_seconds=0)
        await hands.commit(transition)
        await hands.complete(await hands.take(queues=(FOLLOWERS,)))
        await hands.commit(transition)
        assert await there(hands) == []

    async def test_an_id_that_is_there_is_left_as_it_is(self, hands: Hands) -> None:
        transition = followed(hands, await completes(hands))
        (first,) = transition.follows
        await hands.commit(transition)
        before = await hands.detail(first.task)
        again = hands.asked(Command.ROLLBACK, await hands.load(transition.task_id), force=True)
        same = hands.follower(transition.after, payload="other")
        other = hands.follower(transition.after, "other")
        await hands.commit(replace(again, follows=(same, other, other)))
        assert await hands.detail(first.task) == before
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [first.task.id, other.task.id]

    async def test_a_key_that_is_there_is_left_to_its_task(self, hands: Hands) -> None:
        first = hands.submission(tenant="t", key="k", queue=FOLLOWERS)
        await hands.insert(first)
        transition = await is_cancelled(hands)
        same = hands.follower(None, tenant="t", key="k", payload="other")
        new = hands.follower(None, "new", tenant="t", key="l")
        await hands.commit(replace(transition, follows=(same, new)))
        assert await there(hands) == sorted([new.task.id, first.task.id], reverse=True)
        again = hands.submission(tenant="t", key="l")
        assert await hands.insert(again) == [Existing(new.task.id)]

    async def test_without_what_could_not_be_read_back_nothing_is_written(
        self, hands: Hands
    ) -> None:
        transition = followed(hands, await completes(hands))
        (good,) = transition.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await hands.detail(transition.before)
        with pytest.raises(SerialisationError):
            await hands.apply(replace(transition, follows=(good, bad)))
        assert await hands.detail(transition.before) == before
        assert await there(hands) == []
        await hands.commit(transition)


class FollowingInOrder(OperatingContract):
    async def test_a_batch_leaves_its_followers_in_its_order(self, hands: Hands) -> None:
        await hands.submit_many(30, stages=("only",))
        tasks = [claimed.task for claimed in await hands.claim()]
        batch = [
            replace(await hands.done(task), follows=self._three(hands, task)) for task in tasks
        ]
        outcomes = await hands.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied] * 30
        made = [one.task.id for transition in batch for one in transition.follows]
        loaded = [await hands.load(task_id) for task_id in made]
        assert sorted(await there(hands)) == sorted(made)
        self._check_order(loaded)
        claimed = await hands.claim_ids(queues=(FOLLOWERS,))
        assert sorted(claimed) == sorted(made)

    def _three(self, hands: Hands, task: Task) -> tuple[Submission, ...]:
        return tuple(hands.follower(task, f"{task.id}-{n}") for n in range(3))

    def _check_order(self, tasks: list[Task]) -> None:
        """Numbers rise, in each partition of its own."""
        last: dict[str, int] = {}
        for task in tasks:
            part = task.id.rpartition("-")[2][1:]
            assert task.order > last.get(part, 0)
            last[part] = task.order

    async def test_of_a_batch_only_what_was_written_is_followed(self, hands: Hands) -> None:
        await hands.submit_many(2, stages=("only",))
        one, two = [claimed.task for claimed in await hands.claim()]
        late = replace(await hands.done(one), follows=(hands.follower(one, "late"),))
        good = replace(await hands.done(two), follows=(hands.follower(two, "good"),))
        await hands.ask(Command.PAUSE, one)
        await hands.store.tasks.apply([late, good])
        assert await there(hands) == [good.follows[0].task.id]

    async def test_a_follower_of_its_tenant_goes_behind_those_that_wait(self, hands: Hands) -> None:
        task = await hands.start(tenant="t", stages=("only",))
        behind = await hands.submit(tenant="t")
        follower = hands.follower(None, tenant="t")
        await hands.commit(replace(await hands.done(task), follows=(follower,)))
        assert (await hands.load(behind.id)).place is Place.READY
        assert (await hands.load(follower.task.id)).place is Place.LINE
        assert await hands.line("t", limit=9) == [follower.task.id]
        assert await hands.claim_ids() == [behind.id]

    async def test_a_follower_of_a_tenant_that_is_gone_begins_it_anew(self, hands: Hands) -> None:
        task = await hands.start(tenant="t", stages=("only",), keep_seconds=0)
        follower = hands.follower(None, tenant="t")
        await hands.commit(replace(await hands.done(task), follows=(follower,)))
        assert (await hands.tenant("t")).active == follower.task.id
        await hands.complete(await hands.take(queues=(FOLLOWERS,)))

    async def test_a_follower_may_be_held(self, hands: Hands) -> None:
        transition = await completes(hands)
        follower = hands.follower(transition.after, held=True)
        await hands.commit(replace(transition, follows=(follower,)))
        task = await hands.load(follower.task.id)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        await hands.ask(Command.RELEASE, task)
        assert await hands.claim_ids(queues=(FOLLOWERS,)) == [task.id]
