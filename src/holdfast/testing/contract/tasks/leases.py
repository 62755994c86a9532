"""Leases: a holder renews its lease; a lapsed lease is taken back."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Lease, Progress, Task
from holdfast.ports import Renewal
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, beat


class LeaseContract(Contract):
    async def test_a_renewed_lease_lasts_longer(self, task: Task) -> None:
        for _ in range(5):
            self.clock.advance(LEASE_SECONDS - 1)
            assert await self.driver.renew(task) == [True]
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 0
        assert (await self.driver.load(task.id)).status is Status.RUNNING

    async def test_a_renewal_is_no_transition(self, task: Task) -> None:
        events = await self.driver.events(task)
        self.clock.advance(10)
        await self.driver.renew(task)
        loaded = await self.driver.load(task.id)
        assert (loaded.version, loaded.updated_at) == (task.version, task.updated_at)
        assert await self.driver.events(task) == events
        assert isinstance(loaded.lease, Lease)
        assert task.lease is not None
        assert replace(loaded.lease, until=0.0) == replace(task.lease, until=0.0)
        assert (await self.driver.finish_stage(task)).last_completed == 0

    async def test_each_renewal_of_a_batch_is_answered_alone(self) -> None:
        one, two, three = await self.driver.start_many(3)
        await self.driver.complete(two)
        assert await self.driver.renew(one, two, three) == [True, False, True]

    async def test_an_unknown_task_or_lease_is_not_renewed(self, task: Task) -> None:
        batch = [
            Renewal(task_id="unknown", lease_id="x"),
            Renewal(task_id=task.id, lease_id="another"),
        ]
        assert list(await self.store.tasks.renew(beat(), batch, lease_seconds=30)) == [False, False]

    async def test_a_lease_that_was_given_back_is_not_renewed(self, task: Task) -> None:
        await self.driver.give_back(task)
        assert await self.driver.renew(task) == [False]
        await self.driver.take("w-2")
        assert await self.driver.renew(task) == [False]

    async def test_a_lapsed_lease_that_was_taken_back_is_not_renewed(self, task: Task) -> None:
        assert await self.driver.lapse() == 1
        assert await self.driver.renew(task) == [False]

    async def test_progress_travels_with_the_renewal(self, task: Task) -> None:
        progress = Progress(fraction=0.4, message="copying", stage="one", at=self.clock.now())
        await self.driver.renew(task, progress=progress)
        assert (await self.driver.detail(task)).progress == progress
        await self.driver.renew(task)
        assert (await self.driver.detail(task)).progress == progress

    async def test_progress_of_a_lost_lease_is_not_shown(self, task: Task) -> None:
        await self.driver.give_back(task)
        await self.driver.renew(task, progress=Progress(fraction=0.9))
        assert (await self.driver.detail(task)).progress is None

    async def test_progress_ends_with_the_holding(self, task: Task) -> None:
        await self.driver.renew(task, progress=Progress(fraction=0.9))
        await self.driver.give_back(task)
        assert (await self.driver.detail(task)).progress is None

    async def test_a_lease_is_not_taken_back_before_it_has_lapsed(self, task: Task) -> None:
        self.clock.advance(LEASE_SECONDS - 0.1)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 0
        self.clock.advance(0.2)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 0
        loaded = await self.driver.load(task.id)
        assert (loaded.status, loaded.place, loaded.lease) == (Status.PENDING, Place.READY, None)

    async def test_a_lost_lease_counts_as_a_crash_and_is_an_event(self) -> None:
        task = await self.driver.start("w-7")
        await self.driver.begin(task)
        await self.driver.lapse()
        loaded = await self.driver.load(task.id)
        assert (loaded.crashes, loaded.lapses, loaded.interrupted) == (1, 1, True)
        assert loaded.failures == 0
        assert loaded.version == task.version + 1
        assert loaded.fence == task.fence
        assert await self.driver.last_event(task) == LeaseLost(
            task_id=task.id,
            version=loaded.version,
            at=self.clock.now(),
            worker="w-7",
            fence=task.fence,
            counted=True,
        )

    async def test_after_an_outage_of_the_store_nobody_is_counted_as_crashed(self) -> None:
        task = await self.driver.start()
        await self.driver.begin(task, alone=True)
        self.clock.advance(LEASE_SECONDS + 1)
        await self.store.tasks.expire(limit=10, count_crashes=False)
        loaded = await self.driver.load(task.id)
        assert (loaded.crashes, loaded.lapses, loaded.interrupted) == (0, 1, True)
        event = await self.driver.last_event(task)
        assert isinstance(event, LeaseLost)
        assert not event.counted

    async def test_crashes_in_a_row_add_up_and_a_commit_resets_them(self) -> None:
        await self.driver.submit()
        for crashes in (0, 1, 2):
            task = await self.driver.take()
            assert task.crashes == crashes
            await self.driver.crash(task, alone=crashes == 2)
        task = await self.driver.take()
        assert (task.crashes, task.lapses) == (3, 3)
        task = await self.driver.finish_stage(task)
        assert (task.crashes, task.lapses, task.interrupted) == (0, 0, False)

    async def test_what_was_claimed_and_not_begun_is_not_counted(self, task: Task) -> None:
        await self.driver.renew(task, progress=Progress(fraction=0.5, stage="one"))
        await self.driver.lapse()
        loaded = await self.driver.load(task.id)
        assert (loaded.crashes, loaded.lapses) == (0, 1)
        event = await self.driver.last_event(task)
        assert isinstance(event, LeaseLost)
        assert not event.counted

    async def test_the_stage_behind_a_commit_has_not_begun(self, task: Task) -> None:
        await self.driver.begin(task)
        task = await self.driver.finish_stage(task)
        await self.driver.lapse()
        assert (await self.driver.load(task.id)).crashes == 0
        await self.driver.crash(await self.driver.take())
        assert (await self.driver.load(task.id)).crashes == 1

    async def test_an_undo_that_had_begun_is_counted(self) -> None:
        task = await self.driver.start_past_stage()
        await self.driver.ask(Command.ROLLBACK, await self.driver.suspend(task))
        task = await self.driver.take()
        await self.driver.crash(task)
        assert (await self.driver.load(task.id)).crashes == 1
        task = await self.driver.take()
        await self.driver.begin(task)
        task = await self.driver.commit(self.driver.decide_undo(task))
        await self.driver.lapse()
        assert (await self.driver.load(task.id)).crashes == 0

    async def test_what_the_last_holder_had_begun_does_not_count_for_the_next(self) -> None:
        task = await self.driver.start()
        await self.driver.crash(task)
        await self.driver.take()
        await self.driver.lapse()
        loaded = await self.driver.load(task.id)
        assert (loaded.crashes, loaded.lapses) == (1, 2)

    async def test_a_suspects_crash_counts_only_if_it_ran_alone(self, task: Task) -> None:
        for alone, crashes in ((False, 1), (False, 2), (False, 2), (True, 3), (True, 4)):
            await self.driver.crash(task, alone=alone)
            task = await self.driver.take()
            assert task.crashes == crashes
        assert task.lapses == 5

    async def test_the_number_of_crashes_from_which_a_task_runs_alone_is_given(
        self, task: Task
    ) -> None:
        for alone_from, crashes in ((1, 1), (1, 1), (9, 2), (9, 3)):
            await self.driver.crash(task, alone_from=alone_from)
            task = await self.driver.take()
            assert task.crashes == crashes

    async def test_the_next_holder_goes_on_at_the_checkpoint_with_a_higher_fence(self) -> None:
        task = await self.driver.start_past_stage("w-1", tenant="t")
        await self.driver.lapse()
        (claimed,) = await self.driver.claim("w-2")
        assert claimed.task.id == task.id
        assert claimed.task.fence > task.fence
        assert claimed.checkpoint is not None
        assert not claimed.moved_on

    async def test_of_many_lapsed_leases_no_more_than_the_limit_are_taken_back(self) -> None:
        await self.driver.submit_many(5)
        await self.driver.claim()
        self.clock.advance(LEASE_SECONDS + 1)
        taken = [await self.store.tasks.expire(limit=2, count_crashes=True) for _ in range(4)]
        assert taken == [2, 2, 1, 0]
        assert len(await self.driver.claim()) == 5

    async def test_tasks_taken_back_come_first_the_newest_before_all(self) -> None:
        submitted = await self.driver.submit_many(5)
        for lease_seconds in (30, 10, 50, 20, 40):  # they lapse in another order
            await self.driver.take(limit=1, lease_seconds=lease_seconds)
        newer = await self.driver.submit_many(1)
        self.clock.advance(51)
        taken = [await self.store.tasks.expire(limit=2, count_crashes=True) for _ in range(3)]
        assert taken == [2, 2, 1]
        assert await self.driver.claim_ids("w-2") == submitted[::-1] + newer

    async def test_only_lapsed_leases_are_taken_back(self) -> None:
        await self.driver.submit_many(2)
        short = await self.driver.take(limit=1, lease_seconds=10)
        long = await self.driver.take(limit=1, lease_seconds=60)
        self.clock.advance(11)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await self.driver.claim_ids("w-2") == [short.id]
        assert (await self.driver.load(long.id)).lease == long.lease

    async def test_a_tenants_lock_goes_with_the_lease_and_its_line_stays(self) -> None:
        task = await self.driver.start(tenant="t")
        waiting = await self.driver.submit(tenant="t")
        await self.driver.lapse()
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (task.id, None, 1)
        assert await self.driver.claim_ids("w-2") == [task.id]
        assert (await self.driver.load(waiting.id)).place is Place.LINE

    async def test_a_rollback_whose_worker_died_is_taken_over_where_it_was(self) -> None:
        task = await self.driver.start_past_stage()
        await self.driver.ask(Command.ROLLBACK, await self.driver.suspend(task))
        task = await self.driver.commit(self.driver.decide_undo(await self.driver.take()))
        await self.driver.lapse()
        taken = await self.driver.take("w-2")
        assert (taken.status, taken.next_undo) == (Status.ROLLING_BACK, 0)

    async def test_progress_of_the_dead_is_cleared(self, task: Task) -> None:
        await self.driver.renew(task, progress=Progress(fraction=0.5))
        await self.driver.lapse()
        assert (await self.driver.detail(task)).progress is None

    async def test_a_task_taken_back_goes_before_those_that_have_not_run(self, task: Task) -> None:
        younger = await self.driver.submit_many(3)
        self.clock.advance(LEASE_SECONDS)
        await self.store.tasks.expire(limit=10, count_crashes=True)
        assert await self.driver.claim_ids("w-2", limit=4) == [task.id, *younger]
