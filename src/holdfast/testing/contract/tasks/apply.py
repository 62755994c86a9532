"""Apply: a transition is written completely, once, over the version and lease it expects."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import decide
from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Lease, Progress, Task
from holdfast.domain.task.transition import Applied, Stale, Transition
from holdfast.ports import Kept
from holdfast.testing.contract.base import Contract

DEPLOYS = (
    ("one", "two", "three", "appended"),
    ("one", "inserted", "two", "three"),
    ("prepended", "one", "two", "three"),
    ("one", "two", "renamed"),
    ("one", "three"),
    ("all", "new"),
)


def over(task: Task, transition: Transition) -> Transition:
    """Return the transition with ``task`` as the record that it expects."""
    return replace(transition, before=task)


async def handed_back(task: Task, *, now: float) -> Transition:
    return decide.give_back(task, "stopping", now=now, interrupted=False)


class ApplyContract(Contract):
    async def test_a_transition_writes_the_record_that_was_decided(self, task: Task) -> None:
        transition = await self.driver.done(task)
        after = await self.driver.commit(transition)
        assert after == transition.after
        assert await self.driver.load(task.id) == after

    @pytest.mark.parametrize("then", [Next.PARKED, Next.READY])
    async def test_all_that_a_decision_may_change_is_written(self, then: Next) -> None:
        """A deploy may have changed the stages and the retries of a task that was submitted."""
        task = await self.driver.start()
        transition = await self.driver.decide_failure(task)
        after = replace(
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
            unknown_since=self.clock.now(),
            outages=5,
            outage_since=self.clock.now() - 17.25,
        )
        written = replace(transition, after=after, next=then)
        committed = await self.driver.commit(written)
        kept = replace(after, place=committed.place, lease=None)
        assert committed == kept
        assert await self.driver.load(task.id) == kept
        if then is Next.READY:
            await self.driver.complete(await self.driver.take())

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_from_the_first_write_on(
        self, task: Task, stages: tuple[str, ...]
    ) -> None:
        """The holder's code has other stages than the task was submitted with."""
        newer = replace(task, stages=stages)
        task = await self.driver.commit(over(task, await self.driver.done(newer)))
        assert (await self.driver.load(task.id)).stages == task.stages == stages
        task = await self.driver.complete(task)
        assert (await self.driver.load(task.id)).stages == stages
        task = await self.driver.roll_back(task)
        assert (task.status, task.stages) == (Status.ROLLED_BACK, stages)
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_by_a_write_that_lets_the_task_go(
        self, stages: tuple[str, ...]
    ) -> None:
        now = self.clock.now()
        for lets_go in (
            self.driver.decide_failure,
            partial(self.driver.decide_failure, retry_seconds=None),
            partial(handed_back, now=now),
        ):
            task = await self.driver.start(queue="q")
            after = await self.driver.commit(
                over(task, await lets_go(replace(task, stages=stages)))
            )
            assert (await self.driver.load(task.id)).stages == after.stages == stages
            if after.place is Place.READY:
                await self.driver.complete(await self.driver.take(queues=("q",)))
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_a_deploy_made_is_kept_with_it(self) -> None:
        task = await self.driver.start(stages=("one", "two"))
        newer = replace(task, stages=("only",))
        done = await self.driver.commit(over(task, await self.driver.done(newer)))
        assert (done.status, done.stages) == (Status.COMPLETED, ("only",))
        assert await self.driver.load(task.id) == done
        assert (await self.driver.roll_back(done)).stages == ("only",)

    async def test_the_version_rises_by_one_with_each_write(self) -> None:
        task = await self.driver.submit()
        versions = [task.version]
        task = await self.driver.take()
        for move in (self.driver.finish_stage, self.driver.finish_stage, self.driver.give_back):
            versions.append(task.version)
            task = await move(task)
        versions.append(task.version)
        assert versions == [1, 2, 3, 4, 5]

    async def test_events_follow_the_versions_without_a_gap(self, task: Task) -> None:
        task = await self.driver.finish_stage(task)
        task = await self.driver.fail(task)
        await self.driver.promote_after(60)
        task = await self.driver.take()
        await self.driver.lapse()
        task = await self.driver.complete(await self.driver.take())
        events = (await self.driver.detail(task)).events
        assert sorted({event.version for event in events}) == list(range(1, task.version + 1))
        assert [event.version for event in events] == sorted(event.version for event in events)

    async def test_a_write_over_another_version_is_stale(self, task: Task) -> None:
        late = await self.driver.done(task)
        await self.driver.ask(Command.PAUSE, task)
        present = await self.driver.expect_stale(late)
        assert present == await self.driver.load(task.id)

    async def test_two_operators_at_once_do_not_overwrite_each_other(self) -> None:
        task = await self.driver.suspend_new()
        retry = self.driver.request(Command.RETRY, task)
        discard = self.driver.request(Command.DISCARD, task)
        outcomes = await self.store.tasks.apply([retry, discard])
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale]
        assert (await self.driver.load(task.id)).status is Status.PENDING

    async def test_a_write_with_another_lease_is_stale(self, task: Task) -> None:
        forged = replace(await self.driver.done(task), lease="somebody-else")
        await self.driver.expect_stale(forged)
        assert await self.driver.load(task.id) == task

    async def test_a_write_with_a_lease_is_stale_when_nobody_holds_the_task(self) -> None:
        task = await self.driver.submit()
        lease = Lease(owner="w-9", fence=99, id="made-up", until=self.clock.now() + 99)
        held = replace(task, status=Status.RUNNING, lease=lease)
        await self.driver.expect_stale(await self.driver.done(held))

    async def test_a_zombie_cannot_finish_a_task_that_was_taken_over(self) -> None:
        zombie = await self.driver.start("w-1")
        await self.driver.lapse()
        await self.driver.expect_stale(await self.driver.done(zombie))
        holder = await self.driver.take("w-2")
        await self.driver.expect_stale(await self.driver.done(zombie))
        pretended = replace(zombie, version=holder.version)
        await self.driver.expect_stale(await self.driver.done(pretended))
        assert (await self.driver.complete(holder)).status is Status.COMPLETED

    async def test_an_operator_cannot_move_a_leased_task(self) -> None:
        held = await self.driver.start(tenant="t")
        as_if_free = replace(held, status=Status.PENDING, lease=None)
        for command in (Command.CANCEL, Command.PAUSE):
            transition = self.driver.request(command, as_if_free)
            assert transition.next is not Next.STAY
            present = await self.driver.expect_stale(transition)
            assert present == held
        assert (await self.store.admin.audits(limit=10)) == []

    async def test_a_write_to_an_unknown_task_is_stale(self) -> None:
        unknown = self.driver.submission().task
        outcome = await self.driver.apply_request(Command.CANCEL, unknown)
        assert outcome == Stale(None)

    async def test_each_element_of_a_batch_is_judged_alone(self) -> None:
        one, two, three = await self.driver.start_many(3)
        batch = [await self.driver.done(task) for task in (one, two, three)]
        batch[1] = replace(batch[1], lease="lost")
        outcomes = await self.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale, Applied]
        assert outcomes[1] == Stale(two)
        loaded = await self.store.views.load([one.id, two.id, three.id])
        assert [task.last_completed if task else None for task in loaded] == [0, -1, 0]

    async def test_a_batch_may_hold_several_steps_of_one_task(self) -> None:
        task = await self.driver.start(stages=("one", "two"))
        first = await self.driver.done(task)
        second = await self.driver.done(first.after)
        outcomes = await self.store.tasks.apply([first, second])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await self.driver.load(task.id)).status is Status.COMPLETED

    async def test_a_batch_may_hold_repeats_of_several_tasks(self) -> None:
        requests = [
            self.driver.request(Command.CANCEL, await self.driver.submit(stages=("only",)))
            for _ in range(2)
        ]
        outcomes = await self.store.tasks.apply([*requests, *requests])
        assert [type(outcome) for outcome in outcomes] == [Applied] * 4
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_repeat_in_a_batch_does_not_hide_what_the_batch_has_moved(self) -> None:
        first, second, third = [await self.driver.submit(tenant="t") for _ in range(3)]
        one, two = (self.driver.request(Command.CANCEL, task) for task in (first, second))
        outcomes = await self.store.tasks.apply([one, one, two])
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert await self.driver.claim_ids() == [third.id]
        assert (await self.driver.tenant("t")).waiting == 0
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_ran_straight_through_can_be_repeated_and_undone(
        self,
    ) -> None:
        done = await self.driver.done(await self.driver.start(stages=("only",)))
        (first,) = await self.store.tasks.apply([done])
        (again,) = await self.store.tasks.apply([done])
        assert isinstance(first, Applied)
        assert first == again
        before = (await self.driver.detail(first.task)).events
        back = await self.driver.roll_back(first.task)
        events = (await self.driver.detail(back)).events
        assert events[: len(before)] == before
        assert [event.version for event in events] == sorted(event.version for event in events)
        assert {event.version for event in events} == set(range(1, back.version + 1))

    async def test_the_progress_of_the_last_holder_is_not_the_next_ones(self, task: Task) -> None:
        await self.driver.renew(task, progress=Progress(fraction=0.5, at=1.0))
        await self.driver.give_back(task)
        assert (await self.driver.detail(await self.driver.take("w-2"))).progress is None

    async def test_an_empty_batch_is_no_write(self) -> None:
        assert list(await self.store.tasks.apply([])) == []

    async def test_of_many_concurrent_writers_over_one_version_one_wins(self) -> None:
        task = await self.driver.submit()
        requests = [self.driver.request(Command.PAUSE, task) for _ in range(20)]
        outcomes = await asyncio.gather(*(self.driver.apply(transition) for transition in requests))
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
        assert (await self.driver.load(task.id)).version == task.version + 1

    async def test_the_holder_hands_a_task_back_to_its_queue(self) -> None:
        task = await self.driver.give_back(await self.driver.start())
        assert (task.status, task.place, task.lease) == (Status.PENDING, Place.READY, None)
        assert await self.driver.claim_ids() == [task.id]

    @pytest.mark.parametrize("retry_seconds", [60.0, None])
    async def test_a_failure_puts_the_task_in_its_place(self, retry_seconds: float | None) -> None:
        task = await self.driver.fail(await self.driver.start(), retry_seconds=retry_seconds)
        assert task.lease is None
        if retry_seconds is None:
            assert (task.status, task.place, task.due) == (Status.FAILED, Place.PARKED, None)
        else:
            assert (task.status, task.place) == (Status.RETRYING, Place.LATER)
            assert task.due is not None
        assert task.failure is not None
        assert task.failure.traceback

    async def test_a_rollback_runs_under_lease_from_stage_to_stage(self) -> None:
        task = await self.driver.start_past_stage()
        task = await self.driver.suspend(task)
        task = await self.driver.ask(Command.ROLLBACK, task)
        assert (task.status, task.place, task.next_undo) == (Status.ROLLING_BACK, Place.READY, 1)
        task = await self.driver.take()
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LEASED)
        task = await self.driver.commit(self.driver.decide_undo(task))
        task = await self.driver.commit(self.driver.decide_undo(task))
        task = await self.driver.commit(decide.rolled_back(task, now=self.clock.now()))
        assert (task.status, task.place) == (Status.ROLLED_BACK, Place.SETTLED)
        assert task.settled_at == self.clock.now()

    async def test_a_change_that_could_not_be_read_back_is_refused(self, task: Task) -> None:
        done = await self.driver.done(task)
        after = replace(done.after, reason="half a \ud800 pair")
        bad = replace(done, after=after)
        with pytest.raises(SerialisationError):
            await self.driver.apply(bad)
        assert await self.driver.load(task.id) == task
        await self.driver.commit(done)

    async def test_a_repeated_write_of_the_holder_is_answered_as_the_first(self) -> None:
        transition = await self.driver.done(await self.driver.start())
        first = await self.driver.apply(transition)
        before = await self.driver.detail(transition.after)
        assert await self.driver.apply(transition) == first
        assert await self.driver.detail(transition.after) == before

    async def test_a_repeated_request_of_an_operator_has_one_effect(self) -> None:
        task = await self.driver.submit(tenant="t")
        await self.driver.submit_many(2, tenant="t")
        cancel = self.driver.request(Command.CANCEL, task)
        for _ in range(3):
            assert isinstance(await self.driver.apply(cancel), Applied)
        assert len(await self.store.admin.audits(limit=10)) == 1
        assert await self.driver.events(task) == ["TaskCreated", "TaskCancelled"]
        assert (await self.driver.tenant("t")).waiting == 1

    async def test_a_repeat_in_the_same_batch_has_one_effect(self) -> None:
        transition = await self.driver.done(await self.driver.start())
        outcomes = await self.store.tasks.apply([transition, transition])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await self.driver.load(transition.task_id)).version == transition.after.version

    async def test_concurrent_repeats_have_one_effect(self) -> None:
        transition = await self.driver.done(await self.driver.start())
        outcomes = await asyncio.gather(*(self.driver.apply(transition) for _ in range(10)))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert len((await self.driver.detail(transition.after)).events) == 4

    async def test_a_repeat_is_known_after_further_transitions(self, task: Task) -> None:
        early = await self.driver.done(task)
        after = await self.driver.complete(await self.driver.commit(early))
        outcome = await self.driver.apply(early)
        assert outcome == Applied(after)
        assert await self.driver.load(task.id) == after

    async def test_a_repeat_is_known_after_another_worker_has_taken_over(self) -> None:
        transition = await self.driver.done(await self.driver.start("w-1"))
        await self.driver.commit(transition)
        await self.driver.lapse()
        holder = await self.driver.take("w-2")
        assert await self.driver.apply(transition) == Applied(holder)

    async def test_a_repeat_of_the_write_that_let_the_task_go_is_known(self) -> None:
        task = await self.driver.start(stages=("only",), keep_seconds=0)
        transition = await self.driver.done(task)
        first = await self.driver.apply(transition)
        assert isinstance(first, Applied)
        assert await self.store.views.load([task.id]) == [None]
        assert await self.driver.apply(transition) == first
        assert first.task.status is Status.COMPLETED

    async def test_a_repeat_is_known_after_the_task_was_pruned(self) -> None:
        task = await self.driver.start(stages=("only",), keep_seconds=1)
        transition = await self.driver.done(task)
        await self.driver.commit(transition)
        self.clock.advance(2)
        await self.driver.prune(Kept.TASKS, older_than_seconds=1, limit=10)
        assert await self.store.views.load([task.id]) == [None]
        assert isinstance(await self.driver.apply(transition), Applied)

    async def test_another_write_to_a_task_that_has_gone_is_stale(self) -> None:
        task = await self.driver.start(stages=("only",), keep_seconds=0)
        request = self.driver.request(Command.CANCEL, task)
        await self.driver.complete(task)
        assert await self.driver.apply(request) == Stale(None)

    async def test_a_refused_request_may_be_decided_again_under_its_name(self) -> None:
        task = await self.driver.submit()
        early = self.driver.request(Command.PAUSE, task, request="r-1")
        held = await self.driver.take()
        assert isinstance(await self.driver.apply(early), Stale)
        again = self.driver.request(Command.PAUSE, held, request="r-1")
        assert (await self.driver.commit(again)).pause_requested
        assert isinstance(await self.driver.apply(again), Applied)
        assert len(await self.store.admin.audits(limit=10)) == 1
