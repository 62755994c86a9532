"""Changes of triggers: a change and its tasks are one step, and a new time is a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.transition import Conflict, Existing, Inserted
from holdfast.domain.trigger.trigger import (
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerStale,
    TriggerStatus,
)
from holdfast.ports import Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import NO_LIMIT, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from holdfast.testing.contract.drivers.ways import walk
from holdfast.testing.contract.tasks.signals import expect_signal

Act = Callable[[TriggerDriver], Awaitable[object]]


class FireContract(Contract):
    async def test_firing_makes_the_task_and_moves_the_trigger_on(self) -> None:
        await self.triggers.save_due()
        leased = await self.triggers.take_one()
        change = self.triggers.decide_fire(leased)
        task_id = change.submissions[0].task.id
        assert await self.triggers.apply(change) == Changed(change.after, (Inserted(task_id),))
        assert await self.triggers.load(leased) == change.after
        assert await self.driver.claim_ids() == [task_id]
        assert await self.triggers.due() == []
        at = change.after.trigger_at
        assert at is not None
        assert await self.triggers.due(at) == [leased.id]
        assert await self.triggers.next_seconds() == 60

    async def test_a_change_without_tasks_is_a_change(self) -> None:
        saved = await self.triggers.save()
        change = self.triggers.change(saved, status=TriggerStatus.PAUSED, reason="at night")
        assert await self.triggers.apply(change) == Changed(change.after, ())
        assert await self.triggers.load(saved) == change.after
        assert await self.triggers.tasks() == []

    async def test_a_fired_task_is_like_any_other(self) -> None:
        driver = self.driver
        leased = await self.triggers.start(tenant="t")
        submission = self.triggers.submission(leased, payload={"n": 1}, queue="slow")
        await self.triggers.commit(self.triggers.change(leased, submission))
        task = await driver.load(submission.task.id)
        assert (task.place, task.status) == (Place.READY, Status.PENDING)
        assert (task.tenant, task.queue, task.key) == ("t", "slow", submission.task.key)
        assert await driver.events(task) == ["TaskCreated"]
        (claimed,) = await driver.claim(queues=("slow",))
        assert (claimed.task.id, claimed.payload) == (task.id, b'{"n":1}')
        assert (await driver.complete(claimed.task)).status is Status.COMPLETED
        assert (await driver.store.views.stats()).by_status[Status.COMPLETED] == 1

    async def test_a_fired_task_waits_in_its_tenants_line(self) -> None:
        running = await self.driver.start(tenant="t")
        leased = await self.triggers.start(tenant="t")
        (fired,) = (await self.triggers.fire(leased)).tasks
        assert (await self.driver.load(fired_id(fired))).place is Place.LINE
        assert await self.driver.claim_ids() == []
        await self.driver.complete(running)
        assert await self.driver.claim_ids() == [fired_id(fired)]

    async def test_one_change_makes_the_tasks_of_several_times(self, leased: Trigger) -> None:
        batch = [self.triggers.submission(leased, key=f"{leased.id}@{n}") for n in range(3)]
        changed = await self.triggers.commit(self.triggers.change(leased, *batch))
        ids = [submission.task.id for submission in batch]
        assert changed.tasks == tuple(Inserted(task_id) for task_id in ids)
        assert await self.driver.claim_ids() == ids

    async def test_changes_of_one_batch_stand_for_themselves(self) -> None:
        leased = [await self.triggers.start() for _ in range(3)]
        stale = self.triggers.decide_fire(replace(leased[1], version=leased[1].version - 1))
        batch = [self.triggers.decide_fire(leased[0]), stale, self.triggers.decide_fire(leased[2])]
        outcomes = await self.triggers.port.apply(batch, depth_limit=NO_LIMIT)
        assert [type(outcome) for outcome in outcomes] == [Changed, TriggerStale, Changed]
        assert len(await self.triggers.tasks()) == 2
        assert list(await self.triggers.port.apply([], depth_limit=NO_LIMIT)) == []

    async def test_a_key_used_before_is_no_hindrance(self, leased: Trigger) -> None:
        first = self.triggers.submission(leased)
        await self.driver.insert(first)
        changed = await self.triggers.fire(leased)
        assert changed.tasks == (Existing(first.task.id),)
        assert await self.triggers.load(leased) == changed.trigger
        again = await self.triggers.take(leased)
        other = self.triggers.submission(leased, payload="other")
        changed = await self.triggers.commit(self.triggers.change(again, other))
        assert changed.tasks == (Conflict(first.task.id),)
        assert await self.triggers.tasks() == [first.task.id]

    async def test_its_last_task_is_the_one_that_has_the_key(self, leased: Trigger) -> None:
        first = self.triggers.submission(leased)
        await self.driver.insert(first)
        for payload in ({}, {"payload": "other"}):
            again = self.triggers.submission(leased, key=first.task.key, **payload)
            change = self.triggers.change(leased, again, last_task=again.task.id)
            changed = await self.triggers.commit(change)
            assert changed.trigger.last_task == first.task.id
            assert await self.triggers.load(leased) == changed.trigger
            leased = await self.triggers.take(leased)
        named = self.triggers.change(
            leased, self.triggers.submission(leased), last_task="task-older"
        )
        assert (await self.triggers.commit(named)).trigger.last_task == "task-older"

    async def test_a_change_to_another_version_is_refused(self, leased: Trigger) -> None:
        for version in (leased.version - 1, leased.version + 1, 0):
            change = self.triggers.decide_fire(replace(leased, version=version))
            assert await self.triggers.expect_stale(change) == leased

    async def test_a_change_to_a_trigger_that_is_not_there_is_refused(self) -> None:
        change = self.triggers.decide_fire(self.triggers.build(version=1))
        assert await self.triggers.expect_untouched(change) == TriggerStale(None)

    async def test_a_pause_under_a_holder_makes_its_write_stale(self, leased: Trigger) -> None:
        pause = self.triggers.change(leased, status=TriggerStatus.PAUSED)
        paused = (await self.triggers.commit(pause)).trigger
        assert await self.triggers.expect_stale(self.triggers.decide_fire(leased)) == paused
        self.clock.advance(3_600)
        assert await self.triggers.claim_ids("s-2") == []

    async def test_a_trigger_set_going_again_is_due_again(self) -> None:
        paused = await self.triggers.save_due(status=TriggerStatus.PAUSED)
        at = self.clock.now() + 5
        resume = self.triggers.change(paused, fire_time=at, trigger_at=at)
        await self.triggers.commit(resume)
        assert await self.triggers.next_seconds() == 5
        assert await self.triggers.due(at) == [paused.id]

    async def test_of_two_changes_to_one_version_one_is_written(self, leased: Trigger) -> None:
        changes = [self.triggers.decide_fire(leased) for _ in range(6)]
        outcomes = await asyncio.gather(*(self.triggers.apply(change) for change in changes))
        (written,) = [outcome for outcome in outcomes if isinstance(outcome, Changed)]
        assert await self.triggers.load(leased) == written.trigger
        assert len(await self.triggers.tasks()) == 1

    async def test_what_is_done_is_audited_with_the_change(self) -> None:
        saved = await self.triggers.save()
        entry = self.triggers.audit(saved, "pause")
        change = self.triggers.change(saved, audit=entry, status=TriggerStatus.PAUSED)
        await self.triggers.commit(change)
        await self.triggers.expect_stale(self.triggers.change(saved, audit=entry))
        await self.triggers.commit(change)  # a repeat
        assert list(await self.store.admin.audits(limit=10)) == [entry]

    async def test_a_repeat_is_answered_as_the_first_was(self, leased: Trigger) -> None:
        change = self.triggers.decide_fire(leased)
        first = await self.triggers.commit(change)
        tasks = await self.triggers.tasks()
        assert (await self.triggers.commit(change)).trigger == first.trigger
        assert await self.triggers.load(leased) == first.trigger
        assert await self.triggers.tasks() == tasks

    async def test_a_repeat_makes_no_second_task_when_the_first_has_ended(self) -> None:
        leased = await self.triggers.start()
        change = self.triggers.decide_fire(leased)
        await self.triggers.commit(change)
        await self.driver.complete(await self.driver.take())
        await self.triggers.commit(change)
        assert await self.driver.claim_ids() == []
        assert len(await self.triggers.tasks()) == 1

    async def test_a_repeat_that_comes_too_late_is_stale(self, leased: Trigger) -> None:
        change = self.triggers.decide_fire(leased)
        await self.triggers.commit(change)
        later = await self.triggers.take(leased, "s-2")
        assert await self.triggers.expect_stale(change) == later

    async def test_another_change_to_the_same_version_is_no_repeat(self, leased: Trigger) -> None:
        await self.triggers.fire(leased)
        await self.triggers.expect_stale(self.triggers.decide_fire(leased))

    # A refused change makes neither a task nor a new version.

    @pytest.mark.parametrize(
        "place", [Place.HELD, Place.READY, Place.LINE, Place.LATER, Place.LEASED]
    )
    async def test_a_change_is_refused_while_the_last_task_waits_or_runs(
        self, leased: Trigger, place: Place
    ) -> None:
        last = await place_task(self.driver, place)
        assert (await self.driver.load(last)).place is place
        change = self.triggers.decide_fire(leased, unless_unfinished=last)
        assert await self.triggers.expect_untouched(change) == Overlapping(last)

    @pytest.mark.parametrize("place", [Place.PARKED, Place.SETTLED, None])
    async def test_a_change_is_written_when_the_last_task_rests_or_is_gone(
        self, leased: Trigger, place: Place | None
    ) -> None:
        last = await place_task(self.driver, place)
        changed = await self.triggers.fire(leased, unless_unfinished=last)
        assert isinstance(changed.tasks[0], Inserted)

    async def test_a_task_that_was_never_there_hinders_nobody(self, leased: Trigger) -> None:
        unknown = self.triggers.submission(leased).task.id
        await self.triggers.fire(leased, unless_unfinished=unknown)

    async def test_a_full_queue_takes_neither_the_task_nor_the_change(self) -> None:
        await self.driver.submit()
        leased = await self.triggers.start()
        change = self.triggers.decide_fire(leased)
        assert await self.triggers.expect_untouched(change, depth_limit=1) == NoRoom("default")
        await self.triggers.commit(change, depth_limit=2)

    async def test_another_queue_that_is_full_hinders_nobody(self, leased: Trigger) -> None:
        await self.driver.submit(queue="other")
        await self.triggers.fire(leased, depth_limit=1)

    async def test_a_key_used_before_needs_no_room(self, leased: Trigger) -> None:
        await self.driver.insert(self.triggers.submission(leased))
        await self.triggers.fire(leased, depth_limit=1)

    async def test_a_change_without_tasks_needs_no_room(self) -> None:
        await self.driver.submit()
        saved = await self.triggers.save()
        await self.triggers.commit(self.triggers.change(saved), depth_limit=0)

    async def test_the_version_is_compared_first(self, leased: Trigger) -> None:
        last = (await self.driver.submit()).id
        old = replace(leased, version=leased.version - 1)
        change = self.triggers.decide_fire(old, unless_unfinished=last)
        assert isinstance(await self.triggers.expect_untouched(change, depth_limit=0), TriggerStale)

    async def test_the_last_task_is_checked_before_the_queue(self, leased: Trigger) -> None:
        last = (await self.driver.submit()).id
        change = self.triggers.decide_fire(leased, unless_unfinished=last)
        assert isinstance(await self.triggers.expect_untouched(change, depth_limit=0), Overlapping)

    async def test_a_fired_task_wakes_who_waits_for_tasks(self, leased: Trigger) -> None:
        async with expect_signal(self.store, Topic.READY):
            await self.triggers.fire(leased)

    @pytest.mark.parametrize("number", range(3))
    async def test_a_new_time_wakes_who_waits_for_times(self, number: int) -> None:
        act = await ACTS[number](self.triggers)
        async with expect_signal(self.store, Topic.DUE):
            await act


class OneStepFireContract(Contract):
    """The contract of stores that keep triggers and tasks in one database."""

    async def test_the_tasks_of_a_change_are_made_all_or_none(self, leased: Trigger) -> None:
        batch = [self.triggers.submission(leased, key=f"{leased.id}@{n}") for n in range(3)]
        change = self.triggers.change(leased, *batch)
        assert await self.triggers.expect_untouched(change, depth_limit=2) == NoRoom("default")
        await self.triggers.commit(change, depth_limit=3)

    async def test_one_full_queue_of_two_takes_nothing(self, leased: Trigger) -> None:
        await self.driver.submit(queue="full")
        batch = [
            self.triggers.submission(leased, key=f"{leased.id}@{q}", queue=q)
            for q in ("free", "full")
        ]
        change = self.triggers.change(leased, *batch)
        assert await self.triggers.expect_untouched(change, depth_limit=1) == NoRoom("full")

    async def test_a_change_that_cannot_be_written_makes_no_task(self, leased: Trigger) -> None:
        with pytest.raises(SerialisationError):
            await self.triggers.apply(self.triggers.decide_fire(leased, user=object()))
        assert await self.triggers.tasks() == []
        assert await self.triggers.load(leased) == leased

    async def test_the_loser_of_a_race_makes_no_task(self, leased: Trigger) -> None:
        changes = [
            self.triggers.change(leased, self.triggers.submission(leased, key=f"{leased.id}@{n}"))
            for n in range(6)
        ]
        outcomes = await asyncio.gather(*(self.triggers.apply(change) for change in changes))
        (written,) = [outcome for outcome in outcomes if isinstance(outcome, Changed)]
        assert await self.triggers.tasks() == [fired_id(written.tasks[0])]


def fired_id(insertion: object) -> str:
    assert isinstance(insertion, Inserted), insertion
    return insertion.task_id


PLACED = {
    Place.HELD: "held",
    Place.READY: "submitted",
    Place.LATER: "retrying",
    Place.LEASED: "running",
    Place.PARKED: "failed",
    Place.SETTLED: "withdrawn",
}


async def place_task(driver: StoreDriver, place: Place | None) -> str:
    """Make a task in this place, or one that has gone, and return its id."""
    if place is None:
        return (await driver.run(keep_seconds=0)).id
    if place is Place.LINE:
        await driver.submit(tenant="busy")
        return (await driver.submit(tenant="busy")).id
    return (await walk(driver, PLACED[place])).id


# Each prepares a trigger, and returns the write of a new time.


async def save(triggers: TriggerDriver) -> Awaitable[object]:
    return triggers.save(due_in=500)


async def save_earlier(triggers: TriggerDriver) -> Awaitable[object]:
    await triggers.save("nightly", due_in=500)
    return triggers.save("nightly", due_in=5)


async def move_on(triggers: TriggerDriver) -> Awaitable[object]:
    return triggers.fire(await triggers.start())


ACTS: list[Callable[[TriggerDriver], Awaitable[Awaitable[object]]]] = [save, save_earlier, move_on]
