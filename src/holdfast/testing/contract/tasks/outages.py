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
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, Hands, beat

ERROR = "holdfast.SinkUnavailable"
A_DAY = 86_400.0


async def outage(hands: Hands, task: Task, *, limit_seconds: float = A_DAY) -> Task:
    """Let the stage or the undo meet an outage."""
    failed = hands.failure(task, retry_seconds=10.0, error=ERROR)
    failed = decide.Failed(
        failure=failed.failure,
        started_at=failed.started_at,
        retry_seconds=failed.retry_seconds,
        outage_seconds=limit_seconds,
    )
    now = hands.clock.now()
    if task.status is Status.ROLLING_BACK:
        return await hands.commit(decide.undo_failed(task, failed, Retry(), now=now))
    found = await hands.store.views.checkpoint(task.id)
    return await hands.commit(decide.stage_failed(task, failed, Retry(), checkpoint=found, now=now))


async def again(hands: Hands) -> Task:
    hands.clock.advance(10)
    await hands.store.tasks.promote(limit=10)
    return await hands.take()


class Outages(Contract):
    async def test_a_row_of_outages_is_counted_apart_and_ends_with_a_commit(
        self, hands: Hands
    ) -> None:
        task, began = await hands.start(), hands.clock.now()
        for number in range(1, 6):
            task = await outage(hands, task)
            assert (task.status, task.place, task.failures) == (Status.RETRYING, Place.LATER, 0)
            assert (task.outages, task.outage_since) == (number, began)
            assert await hands.load(task.id) == task
            scheduled = await hands.last_event(task)
            assert isinstance(scheduled, ev.TaskRetryScheduled)
            assert (scheduled.failures, scheduled.outages) == (0, number)
            task = await again(hands)
            assert (task.outages, task.outage_since, task.begun) == (number, began, True)
        task = await hands.finish_stage(task)
        assert (task.outages, task.outage_since, task.failure) == (0, None, None)
        assert await hands.load(task.id) == task

    async def test_a_failure_ends_a_row_and_an_outage_is_no_failure(self, hands: Hands) -> None:
        task = await outage(hands, await hands.start())
        task = await hands.fail(await again(hands), retry_seconds=10.0)
        assert (task.failures, task.outages, task.outage_since) == (1, 0, None)
        task, now = await again(hands), hands.clock.now()
        task = await outage(hands, task)
        assert (task.failures, task.outages, task.outage_since) == (1, 1, now)
        assert await hands.load(task.id) == task

    async def test_a_lost_lease_ends_a_row(self, hands: Hands) -> None:
        await outage(hands, await hands.start())
        await again(hands)
        hands.clock.advance(LEASE_SECONDS + 1)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        task = await outage(hands, await hands.take())
        assert (task.outages, task.outage_since) == (1, hands.clock.now())

    async def test_a_row_that_lasts_too_long_suspends_with_its_own_kind(self, hands: Hands) -> None:
        task = await outage(hands, await hands.start(), limit_seconds=15)
        task = await outage(hands, await again(hands), limit_seconds=15)
        task = await outage(hands, await again(hands), limit_seconds=15)
        assert (task.status, task.place) == (Status.FAILED, Place.PARKED)
        assert (task.failures, task.outages) == (0, 3)
        assert task.failure is not None
        assert task.failure.kind is FailureKind.OUTAGE
        (group,) = await hands.store.views.error_groups(limit=10)
        assert (group.fingerprint, group.count) == (task.failure.fingerprint, 1)
        task = await hands.ask(Command.RETRY, task)
        assert (task.outages, task.outage_since) == (0, None)

    async def test_an_undo_has_a_row_too(self, hands: Hands) -> None:
        task = await hands.complete(await hands.start())
        await hands.ask(Command.ROLLBACK, task)
        task, began = await hands.take(), hands.clock.now()
        for number in range(1, 5):
            task = await outage(hands, task)
            assert (task.status, task.failures) == (Status.ROLLING_BACK, 0)
            assert (task.outages, task.outage_since) == (number, began)
            task = await again(hands)
        task = await hands.commit(hands.undone(task))
        assert (task.outages, task.outage_since) == (0, None)

    @pytest.mark.parametrize("hold", [True, False])
    async def test_a_tenants_line_is_as_behind_any_retry(self, hands: Hands, hold: bool) -> None:
        task = await hands.start(tenant="t", hold=hold)
        behind = await hands.submit(tenant="t", hold=hold)
        await outage(hands, task)
        assert await hands.claim_ids() == ([] if hold else [behind.id])

    async def test_who_waits_is_found_by_its_error(self, hands: Hands) -> None:
        task = await outage(hands, await hands.start())
        await hands.fail(await hands.start())
        assert task.failure is not None
        where = Filter(statuses=(Status.RETRYING,), error=task.failure.fingerprint)
        assert (await hands.store.views.find(where, limit=10)).tasks == (task,)

    async def test_a_beat_names_the_outages_that_its_worker_met(self, hands: Hands) -> None:
        group = OutageGroup(fingerprint="4f0c9a7d12ab", error=ERROR, stage="store", since=17.25)
        await hands.store.tasks.renew(beat("w-1", outages=(group,)), (), lease_seconds=30)
        await hands.store.tasks.renew(beat("w-2"), (), lease_seconds=30)
        found = await hands.store.views.workers(live_within_seconds=10)
        assert {one.beat.worker: one.beat.outages for one in found} == {"w-1": (group,), "w-2": ()}
