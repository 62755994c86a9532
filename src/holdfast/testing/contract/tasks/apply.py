"""Apply: whole or not at all, only over the version and lease that were read, and once."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import decide
from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Lease, Progress, Task
from holdfast.domain.task.transition import Applied, Stale, Transition
from holdfast.ports import Kept
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

DEPLOYS = (
    ("one", "two", "three", "appended"),
    ("one", "inserted", "two", "three"),
    ("prepended", "one", "two", "three"),
    ("one", "two", "renamed"),
    ("one", "three"),
    ("all", "new"),
)


def over(task: Task, transition: Transition) -> Transition:
    """The transition over the record as it was read."""
    return msgspec.structs.replace(transition, before=task)


async def handed_back(task: Task, *, now: float) -> Transition:
    return decide.give_back(task, "stopping", now=now, interrupted=False)


class Applying(Contract):
    async def test_a_transition_writes_the_record_that_was_decided(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        transition = await driver.done(task)
        after = await driver.commit(transition)
        assert after == transition.after
        assert await driver.load(task.id) == after

    @pytest.mark.parametrize("then", [Next.PARKED, Next.READY])
    async def test_all_that_a_decision_may_change_is_written(
        self, driver: StoreDriver, then: Next
    ) -> None:
        """A deploy may have changed the stages and the retries of a task that was submitted."""
        task = await driver.start()
        transition = await driver.failed(task)
        after = msgspec.structs.replace(
            transition.after,
            status=Status.FAILED if then is Next.PARKED else Status.PENDING,
            stages=("one", "new", "two", "three"),
            retry_max=9,
            run=2,
            epoch=3,
            next_undo=1,
            pause_requested=then is Next.READY,
            cancel_requested=True,
            reason="because",
            failures=4,
            crashes=2,
            forced=True,
            interrupted=True,
            unknown_since=driver.clock.now(),
            outages=5,
            outage_since=driver.clock.now() - 17.25,
        )
        written = msgspec.structs.replace(transition, after=after, next=then)
        found = await driver.commit(written)
        kept = msgspec.structs.replace(after, place=found.place, lease=None)
        assert found == kept
        assert await driver.load(task.id) == kept
        if then is Next.READY:
            await driver.complete(await driver.take())

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_from_the_first_write_on(
        self, driver: StoreDriver, stages: tuple[str, ...]
    ) -> None:
        """The holder's code has other stages than the task was submitted with."""
        task = await driver.start()
        newer = driver.deployed(task, stages)
        task = await driver.commit(over(task, await driver.done(newer)))
        assert (await driver.load(task.id)).stages == task.stages == stages
        task = await driver.complete(task)
        assert (await driver.load(task.id)).stages == stages
        task = await driver.roll_back(task)
        assert (task.status, task.stages) == (Status.ROLLED_BACK, stages)
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_by_a_write_that_lets_the_task_go(
        self, driver: StoreDriver, stages: tuple[str, ...]
    ) -> None:
        now = driver.clock.now()
        for lets_go in (
            driver.failed,
            partial(driver.failed, retry_seconds=None),
            partial(handed_back, now=now),
        ):
            task = await driver.start(queue="q")
            after = await driver.commit(over(task, await lets_go(driver.deployed(task, stages))))
            assert (await driver.load(task.id)).stages == after.stages == stages
            if after.place is Place.READY:
                await driver.complete(await driver.take(queues=("q",)))
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_a_deploy_made_is_kept_with_it(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(stages=("one", "two"))
        newer = driver.deployed(task, ("only",))
        done = await driver.commit(over(task, await driver.done(newer)))
        assert (done.status, done.stages) == (Status.COMPLETED, ("only",))
        assert await driver.load(task.id) == done
        assert (await driver.roll_back(done)).stages == ("only",)

    async def test_the_version_rises_by_one_with_each_write(self, driver: StoreDriver) -> None:
        task = await driver.submit()
        versions = [task.version]
        task = await driver.take()
        for move in (driver.finish_stage, driver.finish_stage, driver.give_back):
            versions.append(task.version)
            task = await move(task)
        versions.append(task.version)
        assert versions == [1, 2, 3, 4, 5]

    async def test_events_follow_the_versions_without_a_gap(self, driver: StoreDriver) -> None:
        task = await driver.start()
        task = await driver.finish_stage(task)
        task = await driver.fail(task)
        driver.clock.advance(60)
        await driver.store.tasks.promote(limit=10)
        task = await driver.take()
        driver.clock.advance(31)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        task = await driver.complete(await driver.take())
        events = (await driver.detail(task)).events
        assert sorted({event.version for event in events}) == list(range(1, task.version + 1))
        assert [event.version for event in events] == sorted(event.version for event in events)

    async def test_a_write_over_another_version_is_stale(self, driver: StoreDriver) -> None:
        task = await driver.start()
        late = await driver.done(task)
        await driver.ask(Command.PAUSE, task)
        found = await driver.refused(late)
        assert found == await driver.load(task.id)

    async def test_two_operators_at_once_do_not_overwrite_each_other(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start())
        retry = driver.asked(Command.RETRY, task)
        discard = driver.asked(Command.DISCARD, task)
        outcomes = await driver.store.tasks.apply([retry, discard])
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale]
        assert (await driver.load(task.id)).status is Status.PENDING

    async def test_a_write_with_another_lease_is_stale(self, driver: StoreDriver) -> None:
        task = await driver.start()
        forged = msgspec.structs.replace(await driver.done(task), lease="somebody-else")
        await driver.refused(forged)
        assert await driver.load(task.id) == task

    async def test_a_write_with_a_lease_is_stale_when_nobody_holds_the_task(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.submit()
        lease = Lease(owner="w-9", fence=99, id="made-up", until=driver.clock.now() + 99)
        held = msgspec.structs.replace(task, status=Status.RUNNING, lease=lease)
        await driver.refused(await driver.done(held))

    async def test_a_zombie_cannot_finish_a_task_that_was_taken_over(
        self, driver: StoreDriver
    ) -> None:
        zombie = await driver.start("w-1")
        driver.clock.advance(31)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        await driver.refused(await driver.done(zombie))
        holder = await driver.take("w-2")
        await driver.refused(await driver.done(zombie))
        pretended = msgspec.structs.replace(zombie, version=holder.version)
        await driver.refused(await driver.done(pretended))
        assert (await driver.complete(holder)).status is Status.COMPLETED

    async def test_an_operator_cannot_move_a_leased_task(self, driver: StoreDriver) -> None:
        held = await driver.start(tenant="t")
        as_if_free = msgspec.structs.replace(held, status=Status.PENDING, lease=None)
        for command in (Command.CANCEL, Command.PAUSE):
            transition = driver.asked(command, as_if_free)
            assert transition.next is not Next.STAY
            found = await driver.refused(transition)
            assert found == held
        assert (await driver.store.admin.audits(limit=10)) == []

    async def test_a_write_to_an_unknown_task_is_stale(self, driver: StoreDriver) -> None:
        unknown = driver.submission().task
        outcome = await driver.apply(driver.asked(Command.CANCEL, unknown))
        assert outcome == Stale(None)

    async def test_each_element_of_a_batch_is_judged_alone(self, driver: StoreDriver) -> None:
        await driver.submit_many(3)
        one, two, three = [claimed.task for claimed in await driver.claim()]
        batch = [await driver.done(task) for task in (one, two, three)]
        batch[1] = msgspec.structs.replace(batch[1], lease="lost")
        outcomes = await driver.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale, Applied]
        assert outcomes[1] == Stale(two)
        loaded = await driver.store.views.load([one.id, two.id, three.id])
        assert [task.last_completed if task else None for task in loaded] == [0, -1, 0]

    async def test_a_batch_may_hold_several_steps_of_one_task(self, driver: StoreDriver) -> None:
        task = await driver.start(stages=("one", "two"))
        first = await driver.done(task)
        second = await driver.done(first.after)
        outcomes = await driver.store.tasks.apply([first, second])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await driver.load(task.id)).status is Status.COMPLETED

    async def test_a_batch_may_hold_repeats_of_several_tasks(self, driver: StoreDriver) -> None:
        asked = [
            driver.asked(Command.CANCEL, await driver.submit(stages=("only",))) for _ in range(2)
        ]
        outcomes = await driver.store.tasks.apply([*asked, *asked])
        assert [type(outcome) for outcome in outcomes] == [Applied] * 4
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_repeat_in_a_batch_does_not_hide_what_the_batch_has_moved(
        self, driver: StoreDriver
    ) -> None:
        first, second, third = [await driver.submit(tenant="t") for _ in range(3)]
        one, two = (driver.asked(Command.CANCEL, task) for task in (first, second))
        outcomes = await driver.store.tasks.apply([one, one, two])
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert await driver.claim_ids() == [third.id]
        assert (await driver.tenant("t")).waiting == 0
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_ran_straight_through_can_be_repeated_and_undone(
        self, driver: StoreDriver
    ) -> None:
        done = await driver.done(await driver.start(stages=("only",)))
        (first,) = await driver.store.tasks.apply([done])
        (again,) = await driver.store.tasks.apply([done])
        assert isinstance(first, Applied)
        assert first == again
        before = (await driver.detail(first.task)).events
        back = await driver.roll_back(first.task)
        events = (await driver.detail(back)).events
        assert events[: len(before)] == before
        assert [event.version for event in events] == sorted(event.version for event in events)
        assert {event.version for event in events} == set(range(1, back.version + 1))

    async def test_what_the_last_holder_said_is_not_the_next_ones(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        await driver.renew(task, progress=Progress(fraction=0.5, at=1.0))
        await driver.give_back(task)
        assert (await driver.detail(await driver.take("w-2"))).progress is None

    async def test_an_empty_batch_is_no_write(self, driver: StoreDriver) -> None:
        assert list(await driver.store.tasks.apply([])) == []

    async def test_of_many_concurrent_writers_over_one_version_one_wins(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.submit()
        asked = [driver.asked(Command.PAUSE, task) for _ in range(20)]
        outcomes = await asyncio.gather(*(driver.apply(transition) for transition in asked))
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
        assert (await driver.load(task.id)).version == task.version + 1

    async def test_the_holder_hands_a_task_back_to_its_queue(self, driver: StoreDriver) -> None:
        task = await driver.give_back(await driver.start())
        assert (task.status, task.place, task.lease) == (Status.PENDING, Place.READY, None)
        assert await driver.claim_ids() == [task.id]

    @pytest.mark.parametrize("retry_seconds", [60.0, None])
    async def test_a_failure_puts_the_task_in_its_place(
        self, driver: StoreDriver, retry_seconds: float | None
    ) -> None:
        task = await driver.fail(await driver.start(), retry_seconds=retry_seconds)
        assert task.lease is None
        if retry_seconds is None:
            assert (task.status, task.place, task.due) == (Status.FAILED, Place.PARKED, None)
        else:
            assert (task.status, task.place) == (Status.RETRYING, Place.LATER)
            assert task.due is not None
        assert task.failure is not None
        assert task.failure.traceback

    async def test_a_rollback_runs_under_lease_from_stage_to_stage(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.finish_stage(await driver.start())
        task = await driver.suspend(task)
        task = await driver.ask(Command.ROLLBACK, task)
        assert (task.status, task.place, task.next_undo) == (Status.ROLLING_BACK, Place.READY, 1)
        task = await driver.take()
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LEASED)
        task = await driver.commit(driver.undone(task))
        task = await driver.commit(driver.undone(task))
        task = await driver.commit(decide.rolled_back(task, now=driver.clock.now()))
        assert (task.status, task.place) == (Status.ROLLED_BACK, Place.SETTLED)
        assert task.settled_at == driver.clock.now()

    async def test_a_change_that_could_not_be_read_back_is_refused(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        done = await driver.done(task)
        after = msgspec.structs.replace(done.after, reason="half a \ud800 pair")
        bad = msgspec.structs.replace(done, after=after)
        with pytest.raises(SerialisationError):
            await driver.apply(bad)
        assert await driver.load(task.id) == task
        await driver.commit(done)


class Repeats(Contract):
    async def test_a_repeated_write_of_the_holder_is_answered_as_the_first(
        self, driver: StoreDriver
    ) -> None:
        transition = await driver.done(await driver.start())
        first = await driver.apply(transition)
        before = await driver.detail(transition.after)
        assert await driver.apply(transition) == first
        assert await driver.detail(transition.after) == before

    async def test_a_repeated_request_of_an_operator_has_one_effect(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.submit(tenant="t")
        await driver.submit_many(2, tenant="t")
        cancel = driver.asked(Command.CANCEL, task)
        for _ in range(3):
            assert isinstance(await driver.apply(cancel), Applied)
        assert len(await driver.store.admin.audits(limit=10)) == 1
        assert await driver.events(task) == ["TaskCreated", "TaskCancelled"]
        assert (await driver.tenant("t")).waiting == 1

    async def test_a_repeat_in_the_same_batch_has_one_effect(self, driver: StoreDriver) -> None:
        transition = await driver.done(await driver.start())
        outcomes = await driver.store.tasks.apply([transition, transition])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await driver.load(transition.task_id)).version == transition.after.version

    async def test_concurrent_repeats_have_one_effect(self, driver: StoreDriver) -> None:
        transition = await driver.done(await driver.start())
        outcomes = await asyncio.gather(*(driver.apply(transition) for _ in range(10)))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert len((await driver.detail(transition.after)).events) == 4

    async def test_a_repeat_is_known_after_further_transitions(self, driver: StoreDriver) -> None:
        task = await driver.start()
        early = await driver.done(task)
        after = await driver.complete(await driver.commit(early))
        outcome = await driver.apply(early)
        assert outcome == Applied(after)
        assert await driver.load(task.id) == after

    async def test_a_repeat_is_known_after_another_worker_has_taken_over(
        self, driver: StoreDriver
    ) -> None:
        transition = await driver.done(await driver.start("w-1"))
        await driver.commit(transition)
        driver.clock.advance(31)
        await driver.store.tasks.expire(limit=1, count_crashes=True)
        holder = await driver.take("w-2")
        assert await driver.apply(transition) == Applied(holder)

    async def test_a_repeat_of_the_write_that_let_the_task_go_is_known(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(stages=("only",), keep_seconds=0)
        transition = await driver.done(task)
        first = await driver.apply(transition)
        assert isinstance(first, Applied)
        assert await driver.store.views.load([task.id]) == [None]
        assert await driver.apply(transition) == first
        assert first.task.status is Status.COMPLETED

    async def test_a_repeat_is_known_after_the_task_was_pruned(self, driver: StoreDriver) -> None:
        task = await driver.start(stages=("only",), keep_seconds=1)
        transition = await driver.done(task)
        await driver.commit(transition)
        driver.clock.advance(2)
        await driver.store.admin.prune(Kept.TASKS, older_than_seconds=1, limit=10, dry_run=False)
        assert await driver.store.views.load([task.id]) == [None]
        assert isinstance(await driver.apply(transition), Applied)

    async def test_another_write_to_a_task_that_has_gone_is_stale(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(stages=("only",), keep_seconds=0)
        request = driver.asked(Command.CANCEL, task)
        await driver.complete(task)
        assert await driver.apply(request) == Stale(None)

    async def test_a_refused_request_may_be_decided_again_under_its_name(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.submit()
        early = driver.asked(Command.PAUSE, task, request="r-1")
        held = await driver.take()
        assert isinstance(await driver.apply(early), Stale)
        again = driver.asked(Command.PAUSE, held, request="r-1")
        assert (await driver.commit(again)).pause_requested
        assert isinstance(await driver.apply(again), Applied)
        assert len(await driver.store.admin.audits(limit=10)) == 1
