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
from holdfast.testing.contract.drivers.store_driver import Hands

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
    async def test_a_transition_writes_the_record_that_was_decided(self, hands: Hands) -> None:
        task = await hands.start()
        transition = await hands.done(task)
        after = await hands.commit(transition)
        assert after == transition.after
        assert await hands.load(task.id) == after

    @pytest.mark.parametrize("then", [Next.PARKED, Next.READY])
    async def test_all_that_a_decision_may_change_is_written(
        self, hands: Hands, then: Next
    ) -> None:
        """A deploy may have changed the stages and the retries of a task that was submitted."""
        task = await hands.start()
        transition = await hands.failed(task)
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
            unknown_since=hands.clock.now(),
            outages=5,
            outage_since=hands.clock.now() - 17.25,
        )
        written = msgspec.structs.replace(transition, after=after, next=then)
        found = await hands.commit(written)
        kept = msgspec.structs.replace(after, place=found.place, lease=None)
        assert found == kept
        assert await hands.load(task.id) == kept
        if then is Next.READY:
            await hands.complete(await hands.take())

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_from_the_first_write_on(
        self, hands: Hands, stages: tuple[str, ...]
    ) -> None:
        """The holder's code has other stages than the task was submitted with."""
        task = await hands.start()
        newer = hands.deployed(task, stages)
        task = await hands.commit(over(task, await hands.done(newer)))
        assert (await hands.load(task.id)).stages == task.stages == stages
        task = await hands.complete(task)
        assert (await hands.load(task.id)).stages == stages
        task = await hands.roll_back(task)
        assert (task.status, task.stages) == (Status.ROLLED_BACK, stages)
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    @pytest.mark.parametrize("stages", DEPLOYS, ids="-".join)
    async def test_the_stages_of_a_deploy_are_kept_by_a_write_that_lets_the_task_go(
        self, hands: Hands, stages: tuple[str, ...]
    ) -> None:
        now = hands.clock.now()
        for lets_go in (
            hands.failed,
            partial(hands.failed, retry_seconds=None),
            partial(handed_back, now=now),
        ):
            task = await hands.start(queue="q")
            after = await hands.commit(over(task, await lets_go(hands.deployed(task, stages))))
            assert (await hands.load(task.id)).stages == after.stages == stages
            if after.place is Place.READY:
                await hands.complete(await hands.take(queues=("q",)))
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_a_deploy_made_is_kept_with_it(
        self, hands: Hands
    ) -> None:
        task = await hands.start(stages=("one", "two"))
        newer = hands.deployed(task, ("only",))
        done = await hands.commit(over(task, await hands.done(newer)))
        assert (done.status, done.stages) == (Status.COMPLETED, ("only",))
        assert await hands.load(task.id) == done
        assert (await hands.roll_back(done)).stages == ("only",)

    async def test_the_version_rises_by_one_with_each_write(self, hands: Hands) -> None:
        task = await hands.submit()
        versions = [task.version]
        task = await hands.take()
        for move in (hands.finish_stage, hands.finish_stage, hands.give_back):
            versions.append(task.version)
            task = await move(task)
        versions.append(task.version)
        assert versions == [1, 2, 3, 4, 5]

    async def test_events_follow_the_versions_without_a_gap(self, hands: Hands) -> None:
        task = await hands.start()
        task = await hands.finish_stage(task)
        task = await hands.fail(task)
        hands.clock.advance(60)
        await hands.store.tasks.promote(limit=10)
        task = await hands.take()
        hands.clock.advance(31)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        task = await hands.complete(await hands.take())
        events = (await hands.detail(task)).events
        assert sorted({event.version for event in events}) == list(range(1, task.version + 1))
        assert [event.version for event in events] == sorted(event.version for event in events)

    async def test_a_write_over_another_version_is_stale(self, hands: Hands) -> None:
        task = await hands.start()
        late = await hands.done(task)
        await hands.ask(Command.PAUSE, task)
        found = await hands.refused(late)
        assert found == await hands.load(task.id)

    async def test_two_operators_at_once_do_not_overwrite_each_other(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start())
        retry = hands.asked(Command.RETRY, task)
        discard = hands.asked(Command.DISCARD, task)
        outcomes = await hands.store.tasks.apply([retry, discard])
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale]
        assert (await hands.load(task.id)).status is Status.PENDING

    async def test_a_write_with_another_lease_is_stale(self, hands: Hands) -> None:
        task = await hands.start()
        forged = msgspec.structs.replace(await hands.done(task), lease="somebody-else")
        await hands.refused(forged)
        assert await hands.load(task.id) == task

    async def test_a_write_with_a_lease_is_stale_when_nobody_holds_the_task(
        self, hands: Hands
    ) -> None:
        task = await hands.submit()
        lease = Lease(owner="w-9", fence=99, id="made-up", until=hands.clock.now() + 99)
        held = msgspec.structs.replace(task, status=Status.RUNNING, lease=lease)
        await hands.refused(await hands.done(held))

    async def test_a_zombie_cannot_finish_a_task_that_was_taken_over(self, hands: Hands) -> None:
        zombie = await hands.start("w-1")
        hands.clock.advance(31)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        await hands.refused(await hands.done(zombie))
        holder = await hands.take("w-2")
        await hands.refused(await hands.done(zombie))
        pretended = msgspec.structs.replace(zombie, version=holder.version)
        await hands.refused(await hands.done(pretended))
        assert (await hands.complete(holder)).status is Status.COMPLETED

    async def test_an_operator_cannot_move_a_leased_task(self, hands: Hands) -> None:
        held = await hands.start(tenant="t")
        as_if_free = msgspec.structs.replace(held, status=Status.PENDING, lease=None)
        for command in (Command.CANCEL, Command.PAUSE):
            transition = hands.asked(command, as_if_free)
            assert transition.next is not Next.STAY
            found = await hands.refused(transition)
            assert found == held
        assert (await hands.store.admin.audits(limit=10)) == []

    async def test_a_write_to_an_unknown_task_is_stale(self, hands: Hands) -> None:
        unknown = hands.submission().task
        outcome = await hands.apply(hands.asked(Command.CANCEL, unknown))
        assert outcome == Stale(None)

    async def test_each_element_of_a_batch_is_judged_alone(self, hands: Hands) -> None:
        await hands.submit_many(3)
        one, two, three = [claimed.task for claimed in await hands.claim()]
        batch = [await hands.done(task) for task in (one, two, three)]
        batch[1] = msgspec.structs.replace(batch[1], lease="lost")
        outcomes = await hands.store.tasks.apply(batch)
        assert [type(outcome) for outcome in outcomes] == [Applied, Stale, Applied]
        assert outcomes[1] == Stale(two)
        loaded = await hands.store.views.load([one.id, two.id, three.id])
        assert [task.last_completed if task else None for task in loaded] == [0, -1, 0]

    async def test_a_batch_may_hold_several_steps_of_one_task(self, hands: Hands) -> None:
        task = await hands.start(stages=("one", "two"))
        first = await hands.done(task)
        second = await hands.done(first.after)
        outcomes = await hands.store.tasks.apply([first, second])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await hands.load(task.id)).status is Status.COMPLETED

    async def test_a_batch_may_hold_repeats_of_several_tasks(self, hands: Hands) -> None:
        asked = [
            hands.asked(Command.CANCEL, await hands.submit(stages=("only",))) for _ in range(2)
        ]
        outcomes = await hands.store.tasks.apply([*asked, *asked])
        assert [type(outcome) for outcome in outcomes] == [Applied] * 4
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_repeat_in_a_batch_does_not_hide_what_the_batch_has_moved(
        self, hands: Hands
    ) -> None:
        first, second, third = [await hands.submit(tenant="t") for _ in range(3)]
        one, two = (hands.asked(Command.CANCEL, task) for task in (first, second))
        outcomes = await hands.store.tasks.apply([one, one, two])
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert await hands.claim_ids() == [third.id]
        assert (await hands.tenant("t")).waiting == 0
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_task_of_one_stage_that_ran_straight_through_can_be_repeated_and_undone(
        self, hands: Hands
    ) -> None:
        done = await hands.done(await hands.start(stages=("only",)))
        (first,) = await hands.store.tasks.apply([done])
        (again,) = await hands.store.tasks.apply([done])
        assert isinstance(first, Applied)
        assert first == again
        before = (await hands.detail(first.task)).events
        back = await hands.roll_back(first.task)
        events = (await hands.detail(back)).events
        assert events[: len(before)] == before
        assert [event.version for event in events] == sorted(event.version for event in events)
        assert {event.version for event in events} == set(range(1, back.version + 1))

    async def test_what_the_last_holder_said_is_not_the_next_ones(self, hands: Hands) -> None:
        task = await hands.start()
        await hands.renew(task, progress=Progress(fraction=0.5, at=1.0))
        await hands.give_back(task)
        assert (await hands.detail(await hands.take("w-2"))).progress is None

    async def test_an_empty_batch_is_no_write(self, hands: Hands) -> None:
        assert list(await hands.store.tasks.apply([])) == []

    async def test_of_many_concurrent_writers_over_one_version_one_wins(self, hands: Hands) -> None:
        task = await hands.submit()
        asked = [hands.asked(Command.PAUSE, task) for _ in range(20)]
        outcomes = await asyncio.gather(*(hands.apply(transition) for transition in asked))
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
        assert (await hands.load(task.id)).version == task.version + 1

    async def test_the_holder_hands_a_task_back_to_its_queue(self, hands: Hands) -> None:
        task = await hands.give_back(await hands.start())
        assert (task.status, task.place, task.lease) == (Status.PENDING, Place.READY, None)
        assert await hands.claim_ids() == [task.id]

    @pytest.mark.parametrize("retry_seconds", [60.0, None])
    async def test_a_failure_puts_the_task_in_its_place(
        self, hands: Hands, retry_seconds: float | None
    ) -> None:
        task = await hands.fail(await hands.start(), retry_seconds=retry_seconds)
        assert task.lease is None
        if retry_seconds is None:
            assert (task.status, task.place, task.due) == (Status.FAILED, Place.PARKED, None)
        else:
            assert (task.status, task.place) == (Status.RETRYING, Place.LATER)
            assert task.due is not None
        assert task.failure is not None
        assert task.failure.traceback

    async def test_a_rollback_runs_under_lease_from_stage_to_stage(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start())
        task = await hands.suspend(task)
        task = await hands.ask(Command.ROLLBACK, task)
        assert (task.status, task.place, task.next_undo) == (Status.ROLLING_BACK, Place.READY, 1)
        task = await hands.take()
        assert (task.status, task.place) == (Status.ROLLING_BACK, Place.LEASED)
        task = await hands.commit(hands.undone(task))
        task = await hands.commit(hands.undone(task))
        task = await hands.commit(decide.rolled_back(task, now=hands.clock.now()))
        assert (task.status, task.place) == (Status.ROLLED_BACK, Place.SETTLED)
        assert task.settled_at == hands.clock.now()

    async def test_a_change_that_could_not_be_read_back_is_refused(self, hands: Hands) -> None:
        task = await hands.start()
        done = await hands.done(task)
        after = msgspec.structs.replace(done.after, reason="half a \ud800 pair")
        bad = msgspec.structs.replace(done, after=after)
        with pytest.raises(SerialisationError):
            await hands.apply(bad)
        assert await hands.load(task.id) == task
        await hands.commit(done)


class Repeats(Contract):
    async def test_a_repeated_write_of_the_holder_is_answered_as_the_first(
        self, hands: Hands
    ) -> None:
        transition = await hands.done(await hands.start())
        first = await hands.apply(transition)
        before = await hands.detail(transition.after)
        assert await hands.apply(transition) == first
        assert await hands.detail(transition.after) == before

    async def test_a_repeated_request_of_an_operator_has_one_effect(self, hands: Hands) -> None:
        task = await hands.submit(tenant="t")
        await hands.submit_many(2, tenant="t")
        cancel = hands.asked(Command.CANCEL, task)
        for _ in range(3):
            assert isinstance(await hands.apply(cancel), Applied)
        assert len(await hands.store.admin.audits(limit=10)) == 1
        assert await hands.events(task) == ["TaskCreated", "TaskCancelled"]
        assert (await hands.tenant("t")).waiting == 1

    async def test_a_repeat_in_the_same_batch_has_one_effect(self, hands: Hands) -> None:
        transition = await hands.done(await hands.start())
        outcomes = await hands.store.tasks.apply([transition, transition])
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert (await hands.load(transition.task_id)).version == transition.after.version

    async def test_concurrent_repeats_have_one_effect(self, hands: Hands) -> None:
        transition = await hands.done(await hands.start())
        outcomes = await asyncio.gather(*(hands.apply(transition) for _ in range(10)))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert len((await hands.detail(transition.after)).events) == 4

    async def test_a_repeat_is_known_after_further_transitions(self, hands: Hands) -> None:
        task = await hands.start()
        early = await hands.done(task)
        after = await hands.complete(await hands.commit(early))
        outcome = await hands.apply(early)
        assert outcome == Applied(after)
        assert await hands.load(task.id) == after

    async def test_a_repeat_is_known_after_another_worker_has_taken_over(
        self, hands: Hands
    ) -> None:
        transition = await hands.done(await hands.start("w-1"))
        await hands.commit(transition)
        hands.clock.advance(31)
        await hands.store.tasks.expire(limit=1, count_crashes=True)
        holder = await hands.take("w-2")
        assert await hands.apply(transition) == Applied(holder)

    async def test_a_repeat_of_the_write_that_let_the_task_go_is_known(self, hands: Hands) -> None:
        task = await hands.start(stages=("only",), keep_seconds=0)
        transition = await hands.done(task)
        first = await hands.apply(transition)
        assert isinstance(first, Applied)
        assert await hands.store.views.load([task.id]) == [None]
        assert await hands.apply(transition) == first
        assert first.task.status is Status.COMPLETED

    async def test_a_repeat_is_known_after_the_task_was_pruned(self, hands: Hands) -> None:
        task = await hands.start(stages=("only",), keep_seconds=1)
        transition = await hands.done(task)
        await hands.commit(transition)
        hands.clock.advance(2)
        await hands.store.admin.prune(Kept.TASKS, older_than_seconds=1, limit=10, dry_run=False)
        assert await hands.store.views.load([task.id]) == [None]
        assert isinstance(await hands.apply(transition), Applied)

    async def test_another_write_to_a_task_that_has_gone_is_stale(self, hands: Hands) -> None:
        task = await hands.start(stages=("only",), keep_seconds=0)
        request = hands.asked(Command.CANCEL, task)
        await hands.complete(task)
        assert await hands.apply(request) == Stale(None)

    async def test_a_refused_request_may_be_decided_again_under_its_name(
        self, hands: Hands
    ) -> None:
        task = await hands.submit()
        early = hands.asked(Command.PAUSE, task, request="r-1")
        held = await hands.take()
        assert isinstance(await hands.apply(early), Stale)
        again = hands.asked(Command.PAUSE, held, request="r-1")
        assert (await hands.commit(again)).pause_requested
        assert isinstance(await hands.apply(again), Applied)
        assert len(await hands.store.admin.audits(limit=10)) == 1
