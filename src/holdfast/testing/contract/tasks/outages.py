"""Rows of outages: kept apart from failures, and known by the beats of workers."""

from __future__ import annotations

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import FailureKind, Task
from holdfast.ports import Filter, OutageGroup
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver, beat

ERROR = "holdfast.SinkUnavailable"
A_DAY = 86_400.0


async def outage(driver: StoreDriver, task: Task, *, limit_seconds: float = A_DAY) -> Task:
    """Let the stage or the undo meet an outage."""
    failed = driver.failure(task, retry_seconds=10.0, error=ERROR)
    failed = decide.Failed(
        failure=failed.failure,
        started_at=failed.started_at,
        retry_seconds=failed.retry_seconds,
        outage_seconds=limit_seconds,
    )
    now = driver.clock.now()
    if task.status is Status.ROLLING_BACK:
        return await driver.commit(decide.undo_failed(task, failed, Retry(), now=now))
    found = await driver.store.views.checkpoint(task.id)
    return await driver.commit(
        decide.stage_failed(task, failed, Retry(), checkpoint=found, now=now)
    )


async def again(driver: StoreDriver) -> Task:
    driver.clock.advance(10)
    await driver.store.tasks.promote(limit=10)
    return await driver.take()


class Outages(Contract):
    async def test_a_row_of_outages_is_counted_apart_and_ends_with_a_commit(
        self, driver: StoreDriver
    ) -> None:
        task, began = await driver.start(), driver.clock.now()
        for number in range(1, 6):
            task = await outage(driver, task)
            assert (task.status, task.place, task.failures) == (Status.RETRYING, Place.LATER, 0)
            assert (task.outages, task.outage_since) == (number, began)
            assert await driver.load(task.id) == task
            scheduled = await driver.last_event(task)
            assert isinstance(scheduled, ev.TaskRetryScheduled)
            assert (scheduled.failures, scheduled.outages) == (0, number)
            task = await again(driver)
            assert (task.outages, task.outage_since, task.begun) == (number, began, True)
        task = await driver.finish_stage(task)
        assert (task.outages, task.outage_since, task.failure) == (0, None, None)
        assert await driver.load(task.id) == task

    async def test_a_failure_ends_a_row_and_an_outage_is_no_failure(
        self, driver: StoreDriver
    ) -> None:
        task = await outage(driver, await driver.start())
        task = await driver.fail(await again(driver), retry_seconds=10.0)
        assert (task.failures, task.outages, task.outage_since) == (1, 0, None)
        task, now = await again(driver), driver.clock.now()
        task = await outage(driver, task)
        assert (task.failures, task.outages, task.outage_since) == (1, 1, now)
        assert await driver.load(task.id) == task

    async def test_a_lost_lease_ends_a_row(self, driver: StoreDriver) -> None:
        await outage(driver, await driver.start())
        await again(driver)
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        task = await outage(driver, await driver.take())
        assert (task.outages, task.outage_since) == (1, driver.clock.now())

    async def test_a_row_that_lasts_too_long_suspends_with_its_own_kind(
        self, driver: StoreDriver
    ) -> None:
        task = await outage(driver, await driver.start(), limit_seconds=15)
        task = await outage(driver, await again(driver), limit_seconds=15)
        task = await outage(driver, await again(driver), limit_seconds=15)
        assert (task.status, task.place) == (Status.FAILED, Place.PARKED)
        assert (task.failures, task.outages) == (0, 3)
        assert task.failure is not None
        assert task.failure.kind is FailureKind.OUTAGE
        (group,) = await driver.store.views.error_groups(limit=10)
        assert (group.fingerprint, group.count) == (task.failure.fingerprint, 1)
        task = await driver.ask(Command.RETRY, task)
        assert (task.outages, task.outage_since) == (0, None)

    async def test_an_undo_has_a_row_too(self, driver: StoreDriver) -> None:
        task = await driver.complete(await driver.start())
        await driver.ask(Command.ROLLBACK, task)
        task, began = await driver.take(), driver.clock.now()
        for number in range(1, 5):
            task = await outage(driver, task)
            assert (task.status, task.failures) == (Status.ROLLING_BACK, 0)
            assert (task.outages, task.outage_since) == (number, began)
            task = await again(driver)
        task = await driver.commit(driver.undone(task))
        assert (task.outages, task.outage_since) == (0, None)

    @pytest.mark.parametrize("hold", [True, False])
    async def test_a_tenants_line_is_as_behind_any_retry(
        self, driver: StoreDriver, hold: bool
    ) -> None:
        task = await driver.start(tenant="t", hold=hold)
        behind = await driver.submit(tenant="t", hold=hold)
        await outage(driver, task)
        assert await driver.claim_ids() == ([] if hold else [behind.id])

    async def test_who_waits_is_found_by_its_error(self, driver: StoreDriver) -> None:
        task = await outage(driver, await driver.start())
        await driver.fail(await driver.start())
        assert task.failure is not None
        where = Filter(statuses=(Status.RETRYING,), error=task.failure.fingerprint)
        assert (await driver.store.views.find(where, limit=10)).tasks == (task,)

    async def test_a_beat_names_the_outages_that_its_worker_met(self, driver: StoreDriver) -> None:
        group = OutageGroup(fingerprint="4f0c9a7d12ab", error=ERROR, stage="store", since=17.25)
        await driver.store.tasks.renew(beat("w-1", outages=(group,)), (), lease_seconds=30)
        await driver.store.tasks.renew(beat("w-2"), (), lease_seconds=30)
        found = await driver.store.views.workers(live_within_seconds=10)
        assert {one.beat.worker: one.beat.outages for one in found} == {"w-1": (group,), "w-2": ()}
