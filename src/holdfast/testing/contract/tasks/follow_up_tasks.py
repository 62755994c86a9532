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
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, StoreDriver, patience
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting

Decide = Callable[[StoreDriver], Awaitable[Transition]]


async def completes(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start(stages=("only",)))


async def goes_on(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start())


async def leaves_nothing(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start(stages=("only",), keep_seconds=0))


async def is_retried(driver: StoreDriver) -> Transition:
    return await driver.failed(await driver.start())


async def is_suspended(driver: StoreDriver) -> Transition:
    return await driver.failed(await driver.start(tenant="t"), retry_seconds=None)


async def is_cancelled(driver: StoreDriver) -> Transition:
    return driver.asked(Command.CANCEL, await driver.submit(tenant="t"))


async def is_asked_to_pause(driver: StoreDriver) -> Transition:
    return driver.asked(Command.PAUSE, await driver.start())


async def is_released(driver: StoreDriver) -> Transition:
    return driver.asked(Command.RELEASE, await driver.submit(held=True))


DECISIONS: list[Decide] = [
    *(completes, goes_on, leaves_nothing, is_retried, is_suspended),
    *(is_cancelled, is_asked_to_pause, is_released),
]


def followed(driver: StoreDriver, transition: Transition, **fields: Any) -> Transition:
    return replace(transition, follows=(driver.follower(transition.after, **fields),))


async def there(driver: StoreDriver) -> list[str]:
    page = await driver.store.views.find(Filter(queue=FOLLOWERS), limit=100)
    return [task.id for task in page.tasks]


class FollowUpTasks(OperatingContract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_transition(
        self, driver: StoreDriver, decide: Decide
    ) -> None:
        transition = followed(driver, await decide(driver), payload={"of": 1})
        (submission,) = transition.follows
        await driver.commit(transition)
        detail = await driver.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        assert await there(driver) == [submission.task.id]

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_is_handed_out_and_runs(
        self, driver: StoreDriver, decide: Decide
    ) -> None:
        transition = followed(driver, await decide(driver))
        await driver.commit(transition)
        task = await driver.take("w-2", queues=(FOLLOWERS,))
        assert task.id == transition.follows[0].task.id
        assert await driver.renew(task, worker="w-2") == [True]
        assert (await driver.complete(task)).status is Status.COMPLETED

    async def test_of_a_record_that_goes_with_the_transition_the_follower_stays(
        self, driver: StoreDriver
    ) -> None:
        transition = followed(driver, await leaves_nothing(driver))
        await driver.commit(transition)
        assert await driver.store.views.load([transition.task_id]) == [None]
        assert await there(driver) == [transition.follows[0].task.id]

    async def test_what_follows_may_have_followers_of_its_own(self, driver: StoreDriver) -> None:
        await driver.commit(followed(driver, await completes(driver)))
        first = await driver.take(queues=(FOLLOWERS,))
        second = driver.follower(first, "second")
        await driver.commit(replace(await driver.done(first), follows=(second,)))
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [second.task.id]

    @pytest.mark.parametrize("decide", [is_cancelled, is_asked_to_pause, leaves_nothing])
    async def test_what_follows_is_a_signal(self, driver: StoreDriver, decide: Decide) -> None:
        transition = followed(driver, await decide(driver))
        ticket = driver.store.ticket(Topic.READY)
        waiters = await waiting(driver.store, Topic.READY, number=2)
        await driver.commit(transition)
        async with patience():
            await asyncio.gather(*waiters)
            await driver.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)

    async def test_a_full_queue_refuses_nothing_that_has_happened(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(tenant="t", stages=("only",))
        await driver.submit(tenant="t", queue=FOLLOWERS)
        transition = followed(driver, await driver.done(task))
        await driver.commit(transition)
        assert transition.follows[0].task.id in await there(driver)
        late = driver.submission(tenant="t", queue=FOLLOWERS)
        assert await driver.insert(late, depth_limit=2) == [Full(FOLLOWERS)]
        assert await driver.insert(late, depth_limit=3) == [Inserted(late.task.id)]

    async def test_a_shut_queue_refuses_nothing_that_has_happened(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(Switch.INTAKE, FOLLOWERS)
        transition = followed(driver, await completes(driver))
        await driver.commit(transition)
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [transition.follows[0].task.id]
        assert await driver.insert(driver.submission(queue=FOLLOWERS)) == [Shut(FOLLOWERS)]

    async def test_a_callback_is_kept_through_all_that_happens(self, driver: StoreDriver) -> None:
        url = "https://example.com/told"
        task = await driver.submit(callback=url)
        assert task.callback == url
        task = await driver.take()
        assert task.callback == url
        task = await driver.suspend(await driver.finish_stage(task))
        await driver.ask(Command.RETRY, task)
        task = await driver.complete(await driver.take())
        assert (task.callback, (await driver.load(task.id)).callback) == (url, url)


class NotFollowing(OperatingContract):
    async def test_nothing_follows_from_a_stale_write(self, driver: StoreDriver) -> None:
        transition = followed(driver, await completes(driver))
        await driver.ask(Command.PAUSE, transition.before)
        await driver.refused(transition)
        forged = replace(followed(driver, await is_cancelled(driver)), lease="somebody-else")
        await driver.refused(forged)
        unknown = replace(transition.before, id=driver.submission().task.id)
        lost = replace(transition, before=unknown, after=replace(transition.after, id=unknown.id))
        lost = followed(driver, lost)
        await driver.refused(lost)
        assert await there(driver) == []
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == []

    async def test_nothing_follows_where_the_tenant_has_moved_on(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.start(tenant="t", workflow=True, hold=False))
        await driver.complete(await driver.start(tenant="t"))
        transition = followed(driver, driver.asked(Command.RETRY, task))
        assert isinstance(await driver.apply(transition), MovedOn)
        assert await there(driver) == []

    async def test_nothing_follows_where_the_tenant_is_busy(self, driver: StoreDriver) -> None:
        await driver.start(tenant="t")
        held = await driver.submit(tenant="t", held=True)
        transition = followed(driver, driver.asked(Command.RELEASE, held))
        assert isinstance(await driver.apply(replace(transition, not_if_busy=True)), Busy)
        assert await there(driver) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeat_nothing_follows_again(
        self, driver: StoreDriver, decide: Decide
    ) -> None:
        transition = followed(driver, await decide(driver))
        await driver.commit(transition)
        before = await driver.detail(transition.follows[0].task)
        await driver.commit(transition)
        await driver.commit(
            replace(transition, follows=(driver.follower(transition.after, "new"),))
        )
        assert await driver.detail(transition.follows[0].task) == before
        assert await there(driver) == [before.task.id]

    async def test_a_repeat_brings_back_nothing_that_has_run(self, driver: StoreDriver) -> None:
        transition = followed(driver, await is_asked_to_pause(driver), keep_seconds=0)
        await driver.commit(transition)
        await driver.complete(await driver.take(queues=(FOLLOWERS,)))
        await driver.commit(transition)
        assert await there(driver) == []

    async def test_an_id_that_is_there_is_left_as_it_is(self, driver: StoreDriver) -> None:
        transition = followed(driver, await completes(driver))
        (first,) = transition.follows
        await driver.commit(transition)
        before = await driver.detail(first.task)
        again = driver.asked(Command.ROLLBACK, await driver.load(transition.task_id), force=True)
        same = driver.follower(transition.after, payload="other")
        other = driver.follower(transition.after, "other")
        await driver.commit(replace(again, follows=(same, other, other)))
        assert await driver.detail(first.task) == before
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [first.task.id, other.task.id]

    async def test_a_key_that_is_there_is_left_to_its_task(self, driver: StoreDriver) -> None:
        first = driver.submission(tenant="t", key="k", queue=FOLLOWERS)
        await driver.insert(first)
        transition = await is_cancelled(driver)
        same = driver.follower(None, tenant="t", key="k", payload="other")
        new = driver.follower(None, "new", tenant="t", key="l")
        await driver.commit(replace(transition, follows=(same, new)))
        assert await there(driver) == sorted([new.task.id, first.task.id], reverse=True)
        again = driver.submission(tenant="t", key="l")
        assert await driver.insert(again) == [Existing(new.task.id)]

    async def test_without_what_could_not_be_read_back_nothing_is_written(
        self, driver: StoreDriver
    ) -> None:
        transition = followed(driver, await completes(driver))
        (good,) = transition.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await driver.detail(transition.before)
        with pytest.raises(SerialisationError):
            await driver.apply(replace(transition, follows=(good, bad)))
        assert await driver.detail(transition.before) == before
        assert await there(driver) == []
        await driver.commit(transition)


class FollowingInOrder(OperatingContract):
    async def test_a_batch_leaves_its_followers_in_its_order(self, driver: StoreDriver) -> None:
        await driver.submit_many(30, stages=("only",))
        tasks = [claimed.task for claimed in await driver.claim()]
        batch = [
            replace(await driver.done(task), follows=self._three(driver, task)) for task in tasks
        ]
        outcomes = await driver.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied] * 30
        made = [one.task.id for transition in batch for one in transition.follows]
        loaded = [await driver.load(task_id) for task_id in made]
        assert sorted(await there(driver)) == sorted(made)
        self._check_order(loaded)
        claimed = await driver.claim_ids(queues=(FOLLOWERS,))
        assert sorted(claimed) == sorted(made)

    def _three(self, driver: StoreDriver, task: Task) -> tuple[Submission, ...]:
        return tuple(driver.follower(task, f"{task.id}-{n}") for n in range(3))

    def _check_order(self, tasks: list[Task]) -> None:
        """Numbers rise, in each partition of its own."""
        last: dict[str, int] = {}
        for task in tasks:
            part = task.id.rpartition("-")[2][1:]
            assert task.order > last.get(part, 0)
            last[part] = task.order

    async def test_of_a_batch_only_what_was_written_is_followed(self, driver: StoreDriver) -> None:
        await driver.submit_many(2, stages=("only",))
        one, two = [claimed.task for claimed in await driver.claim()]
        late = replace(await driver.done(one), follows=(driver.follower(one, "late"),))
        good = replace(await driver.done(two), follows=(driver.follower(two, "good"),))
        await driver.ask(Command.PAUSE, one)
        await driver.store.tasks.apply([late, good])
        assert await there(driver) == [good.follows[0].task.id]

    async def test_a_follower_of_its_tenant_goes_behind_those_that_wait(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(tenant="t", stages=("only",))
        behind = await driver.submit(tenant="t")
        follower = driver.follower(None, tenant="t")
        await driver.commit(replace(await driver.done(task), follows=(follower,)))
        assert (await driver.load(behind.id)).place is Place.READY
        assert (await driver.load(follower.task.id)).place is Place.LINE
        assert await driver.line("t", limit=9) == [follower.task.id]
        assert await driver.claim_ids() == [behind.id]

    async def test_a_follower_of_a_tenant_that_is_gone_begins_it_anew(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(tenant="t", stages=("only",), keep_seconds=0)
        follower = driver.follower(None, tenant="t")
        await driver.commit(replace(await driver.done(task), follows=(follower,)))
        assert (await driver.tenant("t")).active == follower.task.id
        await driver.complete(await driver.take(queues=(FOLLOWERS,)))

    async def test_a_follower_may_be_held(self, driver: StoreDriver) -> None:
        transition = await completes(driver)
        follower = driver.follower(transition.after, held=True)
        await driver.commit(replace(transition, follows=(follower,)))
        task = await driver.load(follower.task.id)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        await driver.ask(Command.RELEASE, task)
        assert await driver.claim_ids(queues=(FOLLOWERS,)) == [task.id]
