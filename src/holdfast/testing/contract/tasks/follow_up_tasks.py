"""Follow-up tasks: they are inserted with their transition, or not at all."""

from __future__ import annotations

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
    IntakeClosed,
    MovedOn,
    Submission,
    Transition,
)
from holdfast.ports import Switch, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, StoreDriver
from holdfast.testing.contract.tasks.signals import expect_signal

Decide = Callable[[StoreDriver], Awaitable[Transition]]


async def completes(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start(stages=("only",)))


async def goes_on(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start())


async def leaves_nothing(driver: StoreDriver) -> Transition:
    return await driver.done(await driver.start(stages=("only",), keep_seconds=0))


async def is_retried(driver: StoreDriver) -> Transition:
    return await driver.decide_failure(await driver.start())


async def is_suspended(driver: StoreDriver) -> Transition:
    return await driver.decide_failure(await driver.start(tenant="t"), retry_seconds=None)


async def is_cancelled(driver: StoreDriver) -> Transition:
    return driver.request(Command.CANCEL, await driver.submit(tenant="t"))


async def is_asked_to_pause(driver: StoreDriver) -> Transition:
    return driver.request(Command.PAUSE, await driver.start())


async def is_released(driver: StoreDriver) -> Transition:
    return driver.request(Command.RELEASE, await driver.submit(held=True))


DECISIONS: list[Decide] = [
    *(completes, goes_on, leaves_nothing, is_retried, is_suspended),
    *(is_cancelled, is_asked_to_pause, is_released),
]


def with_follower(driver: StoreDriver, transition: Transition, **fields: Any) -> Transition:
    return replace(transition, follows=(driver.follower(transition.after, **fields),))


async def follower_ids(driver: StoreDriver) -> list[str]:
    return await driver.find_ids(queue=FOLLOWERS)


class FollowUpTasks(Contract):
    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_a_task_that_follows_comes_with_the_transition(self, decide: Decide) -> None:
        transition = with_follower(self.driver, await decide(self.driver), payload={"of": 1})
        (submission,) = transition.follows
        await self.driver.commit(transition)
        detail = await self.driver.detail(submission.task)
        assert replace(detail.task, order=0) == submission.task
        assert (detail.payload, detail.events) == (b'{"of":1}', submission.events)
        assert await follower_ids(self.driver) == [submission.task.id]

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_what_follows_is_handed_out_and_runs(self, decide: Decide) -> None:
        transition = with_follower(self.driver, await decide(self.driver))
        await self.driver.commit(transition)
        task = await self.driver.take("w-2", queues=(FOLLOWERS,))
        assert task.id == transition.follows[0].task.id
        assert await self.driver.renew(task, worker="w-2") == [True]
        assert (await self.driver.complete(task)).status is Status.COMPLETED

    async def test_of_a_record_that_goes_with_the_transition_the_follower_stays(self) -> None:
        transition = with_follower(self.driver, await leaves_nothing(self.driver))
        await self.driver.commit(transition)
        assert await self.store.views.load([transition.task_id]) == [None]
        assert await follower_ids(self.driver) == [transition.follows[0].task.id]

    async def test_what_follows_may_have_followers_of_its_own(self) -> None:
        await self.driver.commit(with_follower(self.driver, await completes(self.driver)))
        first = await self.driver.take(queues=(FOLLOWERS,))
        second = self.driver.follower(first, "second")
        await self.driver.commit(replace(await self.driver.done(first), follows=(second,)))
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [second.task.id]

    @pytest.mark.parametrize("decide", [is_cancelled, is_asked_to_pause, leaves_nothing])
    async def test_what_follows_is_a_signal(self, decide: Decide) -> None:
        transition = with_follower(self.driver, await decide(self.driver))
        async with expect_signal(self.store, Topic.READY):
            await self.driver.commit(transition)

    async def test_a_full_queue_refuses_nothing_that_has_happened(self) -> None:
        task = await self.driver.start(tenant="t", stages=("only",))
        await self.driver.submit(tenant="t", queue=FOLLOWERS)
        transition = with_follower(self.driver, await self.driver.done(task))
        await self.driver.commit(transition)
        assert transition.follows[0].task.id in await follower_ids(self.driver)
        late = self.driver.submission(tenant="t", queue=FOLLOWERS)
        assert await self.driver.insert(late, depth_limit=2) == [Full(FOLLOWERS)]
        assert await self.driver.insert(late, depth_limit=3) == [Inserted(late.task.id)]

    async def test_a_shut_queue_refuses_nothing_that_has_happened(self) -> None:
        await self.switches.off(Switch.INTAKE, FOLLOWERS)
        transition = with_follower(self.driver, await completes(self.driver))
        await self.driver.commit(transition)
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [transition.follows[0].task.id]
        assert await self.driver.insert_new(queue=FOLLOWERS) == IntakeClosed(FOLLOWERS)

    async def test_a_callback_is_kept_through_all_that_happens(self) -> None:
        url = "https://example.com/told"
        task = await self.driver.submit(callback=url)
        assert task.callback == url
        task = await self.driver.take()
        assert task.callback == url
        task = await self.driver.suspend(await self.driver.finish_stage(task))
        await self.driver.ask(Command.RETRY, task)
        task = await self.driver.complete(await self.driver.take())
        assert (task.callback, (await self.driver.load(task.id)).callback) == (url, url)

    async def test_nothing_follows_from_a_stale_write(self) -> None:
        transition = with_follower(self.driver, await completes(self.driver))
        await self.driver.ask(Command.PAUSE, transition.before)
        await self.driver.expect_stale(transition)
        forged = replace(
            with_follower(self.driver, await is_cancelled(self.driver)), lease="somebody-else"
        )
        await self.driver.expect_stale(forged)
        unknown = replace(transition.before, id=self.driver.submission().task.id)
        lost = replace(transition, before=unknown, after=replace(transition.after, id=unknown.id))
        lost = with_follower(self.driver, lost)
        await self.driver.expect_stale(lost)
        assert await follower_ids(self.driver) == []
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == []

    async def test_nothing_follows_where_the_tenant_has_moved_on(self) -> None:
        task = await self.driver.suspend_new(tenant="t", workflow=True, hold=False)
        await self.driver.run(tenant="t")
        transition = with_follower(self.driver, self.driver.request(Command.RETRY, task))
        assert isinstance(await self.driver.apply(transition), MovedOn)
        assert await follower_ids(self.driver) == []

    async def test_nothing_follows_where_the_tenant_is_busy(self) -> None:
        await self.driver.start(tenant="t")
        held = await self.driver.submit(tenant="t", held=True)
        transition = with_follower(self.driver, self.driver.request(Command.RELEASE, held))
        assert isinstance(await self.driver.apply(replace(transition, not_if_busy=True)), Busy)
        assert await follower_ids(self.driver) == []

    @pytest.mark.parametrize("decide", DECISIONS)
    async def test_from_a_repeat_nothing_follows_again(self, decide: Decide) -> None:
        transition = with_follower(self.driver, await decide(self.driver))
        await self.driver.commit(transition)
        before = await self.driver.detail(transition.follows[0].task)
        await self.driver.commit(transition)
        await self.driver.commit(
            replace(transition, follows=(self.driver.follower(transition.after, "new"),))
        )
        assert await self.driver.detail(transition.follows[0].task) == before
        assert await follower_ids(self.driver) == [before.task.id]

    async def test_a_repeat_brings_back_nothing_that_has_run(self) -> None:
        transition = with_follower(
            self.driver, await is_asked_to_pause(self.driver), keep_seconds=0
        )
        await self.driver.commit(transition)
        await self.driver.complete(await self.driver.take(queues=(FOLLOWERS,)))
        await self.driver.commit(transition)
        assert await follower_ids(self.driver) == []

    async def test_an_id_that_is_there_is_left_as_it_is(self) -> None:
        transition = with_follower(self.driver, await completes(self.driver))
        (first,) = transition.follows
        await self.driver.commit(transition)
        before = await self.driver.detail(first.task)
        again = self.driver.request(
            Command.ROLLBACK, await self.driver.load(transition.task_id), force=True
        )
        same = self.driver.follower(transition.after, payload="other")
        other = self.driver.follower(transition.after, "other")
        await self.driver.commit(replace(again, follows=(same, other, other)))
        assert await self.driver.detail(first.task) == before
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [first.task.id, other.task.id]

    async def test_a_key_that_is_there_is_left_to_its_task(self) -> None:
        first = self.driver.submission(tenant="t", key="k", queue=FOLLOWERS)
        await self.driver.insert(first)
        transition = await is_cancelled(self.driver)
        same = self.driver.follower(None, tenant="t", key="k", payload="other")
        new = self.driver.follower(None, "new", tenant="t", key="l")
        await self.driver.commit(replace(transition, follows=(same, new)))
        assert await follower_ids(self.driver) == sorted([new.task.id, first.task.id], reverse=True)
        assert await self.driver.insert_new(tenant="t", key="l") == Existing(new.task.id)

    async def test_without_what_could_not_be_read_back_nothing_is_written(self) -> None:
        transition = with_follower(self.driver, await completes(self.driver))
        (good,) = transition.follows
        wrong: Any = object()
        bad = replace(good, task=replace(good.task, user=wrong))
        before = await self.driver.detail(transition.before)
        with pytest.raises(SerialisationError):
            await self.driver.apply(replace(transition, follows=(good, bad)))
        assert await self.driver.detail(transition.before) == before
        assert await follower_ids(self.driver) == []
        await self.driver.commit(transition)

    async def test_a_batch_leaves_its_followers_in_its_order(self) -> None:
        tasks = await self.driver.start_many(30, stages=("only",))
        batch = [replace(await self.driver.done(task), follows=self._three(task)) for task in tasks]
        outcomes = await self.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied] * 30
        made = [follower.task.id for transition in batch for follower in transition.follows]
        loaded = [await self.driver.load(task_id) for task_id in made]
        assert sorted(await follower_ids(self.driver)) == sorted(made)
        self._check_order(loaded)
        claimed = await self.driver.claim_ids(queues=(FOLLOWERS,))
        assert sorted(claimed) == sorted(made)

    def _three(self, task: Task) -> tuple[Submission, ...]:
        return tuple(self.driver.follower(task, f"{task.id}-{n}") for n in range(3))

    def _check_order(self, tasks: list[Task]) -> None:
        """Check that the order numbers rise within each partition."""
        last: dict[str, int] = {}
        for task in tasks:
            part = task.id.rpartition("-")[2][1:]
            assert task.order > last.get(part, 0)
            last[part] = task.order

    async def test_of_a_batch_only_what_was_written_is_followed(self) -> None:
        one, two = await self.driver.start_many(2, stages=("only",))
        late = replace(await self.driver.done(one), follows=(self.driver.follower(one, "late"),))
        good = replace(await self.driver.done(two), follows=(self.driver.follower(two, "good"),))
        await self.driver.ask(Command.PAUSE, one)
        await self.store.tasks.apply([late, good])
        assert await follower_ids(self.driver) == [good.follows[0].task.id]

    async def test_a_follower_of_its_tenant_goes_behind_those_that_wait(self) -> None:
        task = await self.driver.start(tenant="t", stages=("only",))
        behind = await self.driver.submit(tenant="t")
        follower = self.driver.follower(None, tenant="t")
        await self.driver.commit(replace(await self.driver.done(task), follows=(follower,)))
        assert (await self.driver.load(behind.id)).place is Place.READY
        assert (await self.driver.load(follower.task.id)).place is Place.LINE
        assert await self.driver.line("t", limit=9) == [follower.task.id]
        assert await self.driver.claim_ids() == [behind.id]

    async def test_a_follower_of_a_tenant_that_is_gone_begins_it_anew(self) -> None:
        task = await self.driver.start(tenant="t", stages=("only",), keep_seconds=0)
        follower = self.driver.follower(None, tenant="t")
        await self.driver.commit(replace(await self.driver.done(task), follows=(follower,)))
        assert (await self.driver.tenant("t")).active == follower.task.id
        await self.driver.complete(await self.driver.take(queues=(FOLLOWERS,)))

    async def test_a_follower_may_be_held(self) -> None:
        transition = await completes(self.driver)
        follower = self.driver.follower(transition.after, held=True)
        await self.driver.commit(replace(transition, follows=(follower,)))
        task = await self.driver.load(follower.task.id)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        await self.driver.ask(Command.RELEASE, task)
        assert await self.driver.claim_ids(queues=(FOLLOWERS,)) == [task.id]
