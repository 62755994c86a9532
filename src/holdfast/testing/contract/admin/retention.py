"""Retention: what has settled goes in its time; nothing unsettled is ever trimmed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import SETTLED, Command, Status
from holdfast.ports import Filter, Kept, Peek
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver, beat
from holdfast.testing.contract.tasks.tenant_queue import pause

A_DAY = 86_400.0


async def prune(
    driver: StoreDriver,
    kind: Kept,
    *,
    older_than_seconds: float = 0.0,
    limit: int = 100,
    dry_run: bool = False,
    ignore_keep: bool = False,
) -> int:
    return await driver.store.admin.prune(
        kind,
        older_than_seconds=older_than_seconds,
        limit=limit,
        dry_run=dry_run,
        ignore_keep=ignore_keep,
    )


class Retention(Contract):
    async def test_a_settled_task_goes_when_its_time_is_over(self, driver: StoreDriver) -> None:
        task = await driver.complete(await driver.start(keep_seconds=100))
        driver.clock.advance(99)
        assert await prune(driver, Kept.TASKS) == 0
        driver.clock.advance(2)
        assert await prune(driver, Kept.TASKS) == 1
        assert await driver.store.views.load([task.id]) == [None]
        assert await driver.store.views.detail(task.id) is None
        assert (await driver.store.views.find(Filter(), limit=10)).tasks == ()

    async def test_the_age_asked_for_may_keep_it_longer(self, driver: StoreDriver) -> None:
        await driver.complete(await driver.start(keep_seconds=10))
        driver.clock.advance(60)
        assert await prune(driver, Kept.TASKS, older_than_seconds=100) == 0
        driver.clock.advance(60)
        assert await prune(driver, Kept.TASKS, older_than_seconds=100) == 1

    async def test_its_time_counts_from_its_end(self, driver: StoreDriver) -> None:
        running = await driver.start(keep_seconds=100)
        for _ in range(10):
            driver.clock.advance(20)
            await driver.renew(running)
        await driver.complete(running)
        driver.clock.advance(99)
        assert await prune(driver, Kept.TASKS) == 0

    async def test_a_dry_run_counts_and_deletes_nothing(self, driver: StoreDriver) -> None:
        for _ in range(3):
            await driver.complete(await driver.start(keep_seconds=1))
        driver.clock.advance(2)
        assert await prune(driver, Kept.TASKS, dry_run=True) == 3
        assert await prune(driver, Kept.TASKS, dry_run=True, limit=2) == 2
        assert await prune(driver, Kept.TASKS) == 3
        assert await prune(driver, Kept.TASKS, dry_run=True) == 0

    async def test_no_more_than_the_limit_goes_at_once(self, driver: StoreDriver) -> None:
        for _ in range(3):
            await driver.complete(await driver.start(keep_seconds=1))
        driver.clock.advance(2)
        assert [await prune(driver, Kept.TASKS, limit=2) for _ in range(3)] == [2, 1, 0]

    @pytest.mark.parametrize("kind", list(Kept))
    async def test_nothing_unsettled_is_ever_trimmed(self, driver: StoreDriver, kind: Kept) -> None:
        await driver.suspend(await driver.finish_stage(await driver.start(keep_seconds=0, key="f")))
        await pause(driver, await driver.finish_stage(await driver.start(keep_seconds=0)))
        await driver.fail(await driver.finish_stage(await driver.start(keep_seconds=0)))
        rolling = await driver.suspend(
            await driver.finish_stage(await driver.start(keep_seconds=0))
        )
        await driver.finish_stage(await driver.start(tenant="t", keep_seconds=0))
        await driver.ask(Command.ROLLBACK, rolling)
        await driver.submit_many(2, tenant="t", keep_seconds=0)
        await driver.submit(held=True, keep_seconds=0)
        tasks = (await driver.store.views.find(Filter(), limit=100)).tasks
        assert len(tasks) == 8
        assert not any(task.settled for task in tasks)
        before = [await driver.detail(task) for task in tasks]
        driver.clock.advance(400 * A_DAY)
        await prune(driver, kind)
        assert [await driver.detail(task) for task in tasks] == before

    async def test_a_task_brought_back_from_its_end_is_not_trimmed(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.complete(await driver.start(keep_seconds=1))
        await driver.ask(Command.ROLLBACK, task)
        driver.clock.advance(400 * A_DAY)
        assert await prune(driver, Kept.TASKS) == 0
        assert await driver.claim_ids() == [task.id]

    async def test_told_to_it_goes_before_its_time_is_over_by_age_alone(
        self, driver: StoreDriver
    ) -> None:
        old = [await driver.complete(await driver.start(keep_seconds=30 * A_DAY)) for _ in range(3)]
        driver.clock.advance(100)
        young = await driver.complete(await driver.start(keep_seconds=30 * A_DAY, tenant="t"))
        driver.clock.advance(60)
        asked: dict[str, Any] = {"older_than_seconds": 100.0, "ignore_keep": True}
        assert await prune(driver, Kept.TASKS, older_than_seconds=100) == 0
        assert await prune(driver, Kept.TASKS, dry_run=True, **asked) == 3
        assert await prune(driver, Kept.TASKS, dry_run=True, limit=2, **asked) == 2
        assert await prune(driver, Kept.TASKS, limit=2, **asked) == 2
        assert await prune(driver, Kept.TASKS, **asked) == 1
        assert await prune(driver, Kept.TASKS, **asked) == 0
        assert await driver.store.views.load([task.id for task in old]) == [None] * 3
        assert await driver.load(young.id) == young
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_told_to_nothing_unsettled_goes_all_the_same(self, driver: StoreDriver) -> None:
        await driver.suspend(await driver.finish_stage(await driver.start()))
        await driver.submit_many(2, tenant="t")
        before = (await driver.store.views.find(Filter(), limit=100)).tasks
        driver.clock.advance(400 * A_DAY)
        for kind in (Kept.TASKS, Kept.CHECKPOINTS, Kept.PLANS, Kept.TRIGGERS):
            assert await prune(driver, kind, ignore_keep=True) == 0
        assert (await driver.store.views.find(Filter(), limit=100)).tasks == before

    async def test_its_key_is_known_though_it_went_before_its_time(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.complete(await driver.start(keep_seconds=30 * A_DAY, key="k"))
        driver.clock.advance(60)
        assert await prune(driver, Kept.TASKS, ignore_keep=True) == 1
        (peek,) = await driver.store.views.peek([task.id])
        assert peek is not None
        assert peek.status is Status.COMPLETED

    async def test_what_is_pruned_leaves_the_counts_of_the_present(
        self, driver: StoreDriver
    ) -> None:
        await driver.complete(await driver.start(keep_seconds=1))
        driver.clock.advance(2)
        await prune(driver, Kept.TASKS)
        stats = await driver.store.views.stats()
        assert not any(stats.by_status.values())
        assert sum(move.count for move in stats.moves) == 2


class Tombstones(Contract):
    async def test_the_end_of_a_task_that_has_gone_can_still_be_seen(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start(stages=("only",), keep_seconds=0)
        await driver.finish_stage(task, {"answer": 42})
        assert await driver.store.views.peek([task.id]) == [
            Peek(task_id=task.id, status=Status.COMPLETED, result=b'{"answer":42}')
        ]
        driver.clock.advance(A_DAY - 1)
        assert await driver.store.views.peek([task.id]) != [None]

    async def test_the_end_of_a_pruned_task_can_still_be_seen(self, driver: StoreDriver) -> None:
        task = await driver.submit(keep_seconds=1)
        await driver.ask(Command.CANCEL, task)
        driver.clock.advance(2)
        assert await prune(driver, Kept.TASKS) == 1
        (peek,) = await driver.store.views.peek([task.id])
        assert peek is not None
        assert peek.status in SETTLED
        assert peek.reason == "because"

    async def test_tombstones_go_a_day_after_the_end(self, driver: StoreDriver) -> None:
        task = await driver.complete(await driver.start(keep_seconds=0))
        driver.clock.advance(A_DAY - 1)
        assert await prune(driver, Kept.TOMBSTONES) == 0
        driver.clock.advance(2)
        assert await prune(driver, Kept.TOMBSTONES, dry_run=True) == 1
        assert await prune(driver, Kept.TOMBSTONES) == 1
        assert await prune(driver, Kept.TOMBSTONES) == 0
        assert await driver.store.views.peek([task.id]) == [None]

    async def test_a_tombstone_holds_nothing_of_its_tenant(self, driver: StoreDriver) -> None:
        await driver.complete(await driver.start(tenant="t", keep_seconds=0))
        view = await driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (None, None, 0)
        assert (await driver.submit(tenant="t")).place == "ready"


class OtherKinds(Contract):
    async def test_checkpoints_of_settled_tasks_go_by_age(self, driver: StoreDriver) -> None:
        failed = await driver.suspend(await driver.finish_stage(await driver.start()))
        settled = await driver.suspend(await driver.finish_stage(await driver.start()))
        await driver.ask(Command.DISCARD, settled)
        driver.clock.advance(50)
        assert await prune(driver, Kept.CHECKPOINTS, older_than_seconds=100) == 0
        driver.clock.advance(51)
        assert await prune(driver, Kept.CHECKPOINTS, older_than_seconds=100, dry_run=True) == 1
        assert await driver.store.views.checkpoint(settled.id) is not None
        assert await prune(driver, Kept.CHECKPOINTS, older_than_seconds=100) == 1
        assert await prune(driver, Kept.CHECKPOINTS, older_than_seconds=100) == 0
        assert await driver.store.views.checkpoint(settled.id) is None
        assert await driver.store.views.checkpoint(failed.id) is not None
        assert len((await driver.detail(settled)).stages) == 1

    async def test_what_a_pruned_checkpoint_kept_for_the_stages_is_there_for_a_rollback(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start(), order="o-1"))
        await driver.ask(Command.DISCARD, task)
        driver.clock.advance(10)
        assert await prune(driver, Kept.CHECKPOINTS) == 1
        assert (await driver.detail(task)).data == b'{"order":"o-1"}'
        await driver.ask(Command.ROLLBACK, task)
        (claimed,) = await driver.claim()
        assert (claimed.checkpoint, claimed.data) == (None, b'{"order":"o-1"}')

    async def test_a_pruned_checkpoint_takes_the_place_of_no_newer_data(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.finish_stage(await driver.start(), order="o-1")
        await driver.suspend(await driver.finish_stage(task, order="o-1"))
        await driver.ask(Command.ROLLBACK, task)
        task = await driver.commit(driver.undone(await driver.take()))
        newer = (await driver.detail(task)).data
        failed = driver.failure(task, retry_seconds=None)
        await driver.commit(decide.undo_failed(task, failed, Retry(), now=driver.clock.now()))
        await driver.ask(Command.DISCARD, task)
        driver.clock.advance(10)
        assert await prune(driver, Kept.CHECKPOINTS) == 1
        assert newer is not None
        assert (await driver.detail(task)).data == newer

    async def test_audits_go_by_age_the_oldest_first(self, driver: StoreDriver) -> None:
        for _ in range(3):
            await driver.ask(Command.CANCEL, await driver.submit())
            driver.clock.advance(10)
        assert await prune(driver, Kept.AUDIT, older_than_seconds=15, dry_run=True) == 2
        assert await prune(driver, Kept.AUDIT, older_than_seconds=15, limit=1) == 1
        assert await prune(driver, Kept.AUDIT, older_than_seconds=15) == 1
        (entry,) = await driver.store.admin.audits(limit=10)
        assert entry.at == driver.clock.now() - 10

    async def test_workers_go_when_they_were_not_seen_any_more(self, driver: StoreDriver) -> None:
        await driver.store.tasks.renew(beat("w-1"), [], lease_seconds=30)
        driver.clock.advance(100)
        await driver.store.tasks.renew(beat("w-2"), [], lease_seconds=30)
        assert await prune(driver, Kept.WORKERS, older_than_seconds=50, dry_run=True) == 1
        assert await prune(driver, Kept.WORKERS, older_than_seconds=50) == 1
        (info,) = await driver.store.views.workers(live_within_seconds=10)
        assert info.beat.worker == "w-2"
