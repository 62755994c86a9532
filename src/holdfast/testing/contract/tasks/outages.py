"""Outages: counted apart from failures, and reported with the heartbeats of workers."""

from __future__ import annotations

import pytest

from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import FailureKind, Task
from holdfast.ports import Filter, OutageGroup
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver, beat

ERROR = "holdfast.SinkUnavailable"
A_DAY = 86_400.0


async def outage(driver: StoreDriver, task: Task, *, limit_seconds: float = A_DAY) -> Task:
    """Let the stage or the undo meet an outage."""
    fail = driver.fail_undo if task.status is Status.ROLLING_BACK else driver.fail
    return await fail(task, retry_seconds=10.0, error=ERROR, outage_seconds=limit_seconds)


async def again(driver: StoreDriver) -> Task:
    await driver.promote_after(10)
    return await driver.take()


class Outages(Contract):
    async def test_a_row_of_outages_is_counted_apart_and_ends_with_a_commit(self) -> None:
        task, began = await self.driver.start(), self.clock.now()
        for number in range(1, 6):
            task = await outage(self.driver, task)
            assert (task.status, task.place, task.failures) == (Status.RETRYING, Place.LATER, 0)
            assert (task.outages, task.outage_since) == (number, began)
            assert await self.driver.load(task.id) == task
            scheduled = await self.driver.last_event(task)
            assert isinstance(scheduled, ev.TaskRetryScheduled)
            assert (scheduled.failures, scheduled.outages) == (0, number)
            task = await again(self.driver)
            assert (task.outages, task.outage_since, task.begun) == (number, began, True)
        task = await self.driver.finish_stage(task)
        assert (task.outages, task.outage_since, task.failure) == (0, None, None)
        assert await self.driver.load(task.id) == task

    async def test_a_failure_ends_a_row_and_an_outage_is_no_failure(self) -> None:
        task = await outage(self.driver, await self.driver.start())
        task = await self.driver.fail(await again(self.driver), retry_seconds=10.0)
        assert (task.failures, task.outages, task.outage_since) == (1, 0, None)
        task, now = await again(self.driver), self.clock.now()
        task = await outage(self.driver, task)
        assert (task.failures, task.outages, task.outage_since) == (1, 1, now)
        assert await self.driver.load(task.id) == task

    async def test_a_lost_lease_ends_a_row(self) -> None:
        await outage(self.driver, await self.driver.start())
        await again(self.driver)
        await self.driver.lapse()
        task = await outage(self.driver, await self.driver.take())
        assert (task.outages, task.outage_since) == (1, self.clock.now())

    async def test_a_row_that_lasts_too_long_suspends_with_its_own_kind(self) -> None:
        task = await outage(self.driver, await self.driver.start(), limit_seconds=15)
        task = await outage(self.driver, await again(self.driver), limit_seconds=15)
        task = await outage(self.driver, await again(self.driver), limit_seconds=15)
        assert (task.status, task.place) == (Status.FAILED, Place.PARKED)
        assert (task.failures, task.outages) == (0, 3)
        assert task.failure is not None
        assert task.failure.kind is FailureKind.OUTAGE
        (group,) = await self.store.views.error_groups(limit=10)
        assert (group.fingerprint, group.count) == (task.failure.fingerprint, 1)
        task = await self.driver.ask(Command.RETRY, task)
        assert (task.outages, task.outage_since) == (0, None)

    async def test_an_undo_has_a_row_too(self) -> None:
        task = await self.driver.run()
        await self.driver.ask(Command.ROLLBACK, task)
        task, began = await self.driver.take(), self.clock.now()
        for number in range(1, 5):
            task = await outage(self.driver, task)
            assert (task.status, task.failures) == (Status.ROLLING_BACK, 0)
            assert (task.outages, task.outage_since) == (number, began)
            task = await again(self.driver)
        task = await self.driver.commit(self.driver.decide_undo(task))
        assert (task.outages, task.outage_since) == (0, None)

    @pytest.mark.parametrize("hold", [True, False])
    async def test_a_tenants_line_is_as_behind_any_retry(self, hold: bool) -> None:
        task = await self.driver.start(tenant="t", hold=hold)
        behind = await self.driver.submit(tenant="t", hold=hold)
        await outage(self.driver, task)
        assert await self.driver.claim_ids() == ([] if hold else [behind.id])

    async def test_who_waits_is_found_by_its_error(self) -> None:
        task = await outage(self.driver, await self.driver.start())
        await self.driver.fail(await self.driver.start())
        assert task.failure is not None
        where = Filter(statuses=(Status.RETRYING,), error=task.failure.fingerprint)
        assert (await self.store.views.find(where, limit=10)).tasks == (task,)

    async def test_a_beat_names_the_outages_that_its_worker_met(self) -> None:
        group = OutageGroup(fingerprint="4f0c9a7d12ab", error=ERROR, stage="store", since=17.25)
        await self.store.tasks.renew(beat("w-1", outages=(group,)), (), lease_seconds=30)
        await self.store.tasks.renew(beat("w-2"), (), lease_seconds=30)
        workers = await self.store.views.workers(live_within_seconds=10)
        assert {info.beat.worker: info.beat.outages for info in workers} == {
            "w-1": (group,),
            "w-2": (),
        }
