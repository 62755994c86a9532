"""Leases: renewed by their holder, taken back when they have lapsed."""

from __future__ import annotations

import msgspec

from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Lease, Progress
from holdfast.ports import Renewal
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver, beat


class Leasing(Contract):
    async def test_a_renewed_lease_lasts_longer(self, driver: StoreDriver) -> None:
        task = await driver.start()
        for _ in range(5):
            driver.clock.advance(LEASE_SECONDS - 1)
            assert await driver.renew(task) == [True]
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 0
        assert (await driver.load(task.id)).status is Status.RUNNING

    async def test_a_renewal_is_no_transition(self, driver: StoreDriver) -> None:
        task = await driver.start()
        events = await driver.events(task)
        driver.clock.advance(10)
        await driver.renew(task)
        found = await driver.load(task.id)
        assert (found.version, found.updated_at) == (task.version, task.updated_at)
        assert await driver.events(task) == events
        assert isinstance(found.lease, Lease)
        assert task.lease is not None
        assert msgspec.structs.replace(found.lease, until=0.0) == msgspec.structs.replace(
            task.lease, until=0.0
        )
        assert (await driver.finish_stage(task)).last_completed == 0

    async def test_each_renewal_of_a_batch_is_answered_alone(self, driver: StoreDriver) -> None:
        await driver.submit_many(3)
        one, two, three = [claimed.task for claimed in await driver.claim()]
        await driver.complete(two)
        assert await driver.renew(one, two, three) == [True, False, True]

    async def test_an_unknown_task_or_lease_is_not_renewed(self, driver: StoreDriver) -> None:
        task = await driver.start()
        batch = [
            Renewal(task_id="unknown", lease_id="x"),
            Renewal(task_id=task.id, lease_id="another"),
        ]
        assert list(await driver.store.tasks.renew(beat(), batch, lease_seconds=30)) == [
            False,
            False,
        ]

    async def test_a_lease_that_was_given_back_is_not_renewed(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.give_back(task)
        assert await driver.renew(task) == [False]
        await driver.take("w-2")
        assert await driver.renew(task) == [False]

    async def test_a_lapsed_lease_that_was_taken_back_is_not_renewed(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        driver.clock.advance(LEASE_SECONDS + 1)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await driver.renew(task) == [False]

    async def test_progress_travels_with_the_renewal(self, driver: StoreDriver) -> None:
        task = await driver.start()
        said = Progress(fraction=0.4, message="copying", stage="one", at=driver.clock.now())
        await driver.renew(task, progress=said)
        assert (await driver.detail(task)).progress == said
        await driver.renew(task)
        assert (await driver.detail(task)).progress == said

    async def test_progress_of_a_lost_lease_is_not_shown(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.give_back(task)
        await driver.renew(task, progress=Progress(fraction=0.9))
        assert (await driver.detail(task)).progress is None

    async def test_progress_ends_with_the_holding(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.renew(task, progress=Progress(fraction=0.9))
        await driver.give_back(task)
        assert (await driver.detail(task)).progress is None


class Expiring(Contract):
    async def test_a_lease_is_not_taken_back_before_it_has_lapsed(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        driver.clock.advance(LEASE_SECONDS - 0.1)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 0
        driver.clock.advance(0.2)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 0
        found = await driver.load(task.id)
        assert (found.status, found.place, found.lease) == (Status.PENDING, Place.READY, None)

    async def test_a_lost_lease_counts_as_a_crash_and_is_an_event(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start("w-7")
        await driver.begin(task)
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        found = await driver.load(task.id)
        assert (found.crashes, found.lapses, found.interrupted) == (1, 1, True)
        assert found.failures == 0
        assert found.version == task.version + 1
        assert found.fence == task.fence
        assert await driver.last_event(task) == LeaseLost(
            task_id=task.id,
            version=found.version,
            at=driver.clock.now(),
            worker="w-7",
            fence=task.fence,
            counted=True,
        )

    async def test_after_an_outage_of_the_store_nobody_is_counted_as_crashed(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        await driver.begin(task, alone=True)
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=False)
        found = await driver.load(task.id)
        assert (found.crashes, found.lapses, found.interrupted) == (0, 1, True)
        event = await driver.last_event(task)
        assert isinstance(event, LeaseLost)
        assert not event.counted

    async def test_crashes_in_a_row_add_up_and_a_commit_resets_them(
        self, driver: StoreDriver
    ) -> None:
        await driver.submit()
        for crashes in (0, 1, 2):
            task = await driver.take()
            assert task.crashes == crashes
            await driver.crash(task, alone=crashes == 2)
        task = await driver.take()
        assert (task.crashes, task.lapses) == (3, 3)
        task = await driver.finish_stage(task)
        assert (task.crashes, task.lapses, task.interrupted) == (0, 0, False)

    async def test_what_was_claimed_and_not_begun_is_not_counted(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.renew(task, progress=Progress(fraction=0.5, stage="one"))
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        found = await driver.load(task.id)
        assert (found.crashes, found.lapses) == (0, 1)
        event = await driver.last_event(task)
        assert isinstance(event, LeaseLost)
        assert not event.counted

    async def test_the_stage_behind_a_commit_has_not_begun(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.begin(task)
        task = await driver.finish_stage(task)
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert (await driver.load(task.id)).crashes == 0
        await driver.crash(await driver.take())
        assert (await driver.load(task.id)).crashes == 1

    async def test_an_undo_that_had_begun_is_counted(self, driver: StoreDriver) -> None:
        task = await driver.finish_stage(await driver.start())
        await driver.ask(Command.ROLLBACK, await driver.suspend(task))
        task = await driver.take()
        await driver.crash(task)
        assert (await driver.load(task.id)).crashes == 1
        task = await driver.take()
        await driver.begin(task)
        task = await driver.commit(driver.undone(task))
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert (await driver.load(task.id)).crashes == 0

    async def test_what_the_last_holder_had_begun_does_not_count_for_the_next(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        await driver.crash(task)
        await driver.take()
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        found = await driver.load(task.id)
        assert (found.crashes, found.lapses) == (1, 2)

    async def test_a_suspects_crash_counts_only_if_it_ran_alone(self, driver: StoreDriver) -> None:
        task = await driver.start()
        for alone, crashes in ((False, 1), (False, 2), (False, 2), (True, 3), (True, 4)):
            await driver.crash(task, alone=alone)
            task = await driver.take()
            assert task.crashes == crashes
        assert task.lapses == 5

    async def test_from_how_many_crashes_on_it_has_to_be_alone_is_told(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        for alone_from, crashes in ((1, 1), (1, 1), (9, 2), (9, 3)):
            await driver.crash(task, alone_from=alone_from)
            task = await driver.take()
            assert task.crashes == crashes

    async def test_the_next_holder_goes_on_at_the_checkpoint_with_a_higher_fence(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.finish_stage(await driver.start("w-1", tenant="t"))
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        (claimed,) = await driver.claim("w-2")
        assert claimed.task.id == task.id
        assert claimed.task.fence > task.fence
        assert claimed.checkpoint is not None
        assert not claimed.moved_on

    async def test_of_many_lapsed_leases_no_more_than_the_limit_are_taken_back(
        self, driver: StoreDriver
    ) -> None:
        await driver.submit_many(5)
        await driver.claim()
        driver.clock.advance(LEASE_SECONDS + 1)
        taken = [await driver.store.tasks.expire(limit=2, count_crashes=True) for _ in range(4)]
        assert taken == [2, 2, 1, 0]
        assert len(await driver.claim()) == 5

    async def test_only_lapsed_leases_are_taken_back(self, driver: StoreDriver) -> None:
        await driver.submit_many(2)
        short = await driver.take(limit=1, lease_seconds=10)
        long = await driver.take(limit=1, lease_seconds=60)
        driver.clock.advance(11)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await driver.claim_ids("w-2") == [short.id]
        assert (await driver.load(long.id)).lease == long.lease

    async def test_a_tenants_lock_goes_with_the_lease_and_its_line_stays(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(tenant="t")
        waiting = await driver.submit(tenant="t")
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        view = await driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (task.id, None, 1)
        assert await driver.claim_ids("w-2") == [task.id]
        assert (await driver.load(waiting.id)).place is Place.LINE

    async def test_a_rollback_whose_worker_died_is_taken_over_where_it_was(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.finish_stage(await driver.start())
        await driver.ask(Command.ROLLBACK, await driver.suspend(task))
        task = await driver.commit(driver.undone(await driver.take()))
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        found = await driver.take("w-2")
        assert (found.status, found.next_undo) == (Status.ROLLING_BACK, 0)

    async def test_progress_of_the_dead_is_cleared(self, driver: StoreDriver) -> None:
        task = await driver.start()
        await driver.renew(task, progress=Progress(fraction=0.5))
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert (await driver.detail(task)).progress is None

    async def test_a_task_taken_back_goes_before_those_that_have_not_run(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start()
        younger = await driver.submit_many(3)
        driver.clock.advance(LEASE_SECONDS)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert await driver.claim_ids("w-2", limit=4) == [task.id, *younger]
