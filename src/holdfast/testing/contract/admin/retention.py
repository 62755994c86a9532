"""Retention: a settled task is deleted in its time, an unsettled one never."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import SETTLED, Command, Status
from holdfast.ports import Filter, Kept, Peek
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import beat

A_DAY = 86_400.0


class Retention(Contract):
    async def test_a_settled_task_goes_when_its_time_is_over(self) -> None:
        task = await self.driver.run(keep_seconds=100)
        self.clock.advance(99)
        assert await self.driver.prune(Kept.TASKS) == 0
        self.clock.advance(2)
        assert await self.driver.prune(Kept.TASKS) == 1
        assert await self.store.views.load([task.id]) == [None]
        assert await self.store.views.detail(task.id) is None
        assert (await self.store.views.find(Filter(), limit=10)).tasks == ()

    async def test_the_age_asked_for_may_keep_it_longer(self) -> None:
        await self.driver.run(keep_seconds=10)
        self.clock.advance(60)
        assert await self.driver.prune(Kept.TASKS, older_than_seconds=100) == 0
        self.clock.advance(60)
        assert await self.driver.prune(Kept.TASKS, older_than_seconds=100) == 1

    async def test_its_time_counts_from_its_end(self) -> None:
        running = await self.driver.start(keep_seconds=100)
        for _ in range(10):
            self.clock.advance(20)
            await self.driver.renew(running)
        await self.driver.complete(running)
        self.clock.advance(99)
        assert await self.driver.prune(Kept.TASKS) == 0

    async def test_a_dry_run_counts_and_deletes_nothing(self) -> None:
        for _ in range(3):
            await self.driver.run(keep_seconds=1)
        self.clock.advance(2)
        assert await self.driver.prune(Kept.TASKS, dry_run=True) == 3
        assert await self.driver.prune(Kept.TASKS, dry_run=True, limit=2) == 2
        assert await self.driver.prune(Kept.TASKS) == 3
        assert await self.driver.prune(Kept.TASKS, dry_run=True) == 0

    async def test_no_more_than_the_limit_goes_at_once(self) -> None:
        for _ in range(3):
            await self.driver.run(keep_seconds=1)
        self.clock.advance(2)
        assert [await self.driver.prune(Kept.TASKS, limit=2) for _ in range(3)] == [2, 1, 0]

    @pytest.mark.parametrize("kind", list(Kept))
    async def test_nothing_unsettled_is_ever_trimmed(self, kind: Kept) -> None:
        await self.driver.suspend(await self.driver.start_past_stage(keep_seconds=0, key="f"))
        await self.driver.pause(await self.driver.start_past_stage(keep_seconds=0))
        await self.driver.fail(await self.driver.start_past_stage(keep_seconds=0))
        rolling = await self.driver.suspend(await self.driver.start_past_stage(keep_seconds=0))
        await self.driver.start_past_stage(tenant="t", keep_seconds=0)
        await self.driver.ask(Command.ROLLBACK, rolling)
        await self.driver.submit_many(2, tenant="t", keep_seconds=0)
        await self.driver.submit(held=True, keep_seconds=0)
        tasks = (await self.store.views.find(Filter(), limit=100)).tasks
        assert len(tasks) == 8
        assert not any(task.settled for task in tasks)
        before = [await self.driver.detail(task) for task in tasks]
        self.clock.advance(400 * A_DAY)
        await self.driver.prune(kind)
        assert [await self.driver.detail(task) for task in tasks] == before

    async def test_a_task_brought_back_from_its_end_is_not_trimmed(self) -> None:
        task = await self.driver.run(keep_seconds=1)
        await self.driver.ask(Command.ROLLBACK, task)
        self.clock.advance(400 * A_DAY)
        assert await self.driver.prune(Kept.TASKS) == 0
        assert await self.driver.claim_ids() == [task.id]

    async def test_with_ignore_keep_its_age_alone_decides_when_it_is_deleted(self) -> None:
        old = [await self.driver.run(keep_seconds=30 * A_DAY) for _ in range(3)]
        self.clock.advance(100)
        young = await self.driver.run(keep_seconds=30 * A_DAY, tenant="t")
        self.clock.advance(60)
        terms: dict[str, Any] = {"older_than_seconds": 100.0, "ignore_keep": True}
        assert await self.driver.prune(Kept.TASKS, older_than_seconds=100) == 0
        assert await self.driver.prune(Kept.TASKS, dry_run=True, **terms) == 3
        assert await self.driver.prune(Kept.TASKS, dry_run=True, limit=2, **terms) == 2
        assert await self.driver.prune(Kept.TASKS, limit=2, **terms) == 2
        assert await self.driver.prune(Kept.TASKS, **terms) == 1
        assert await self.driver.prune(Kept.TASKS, **terms) == 0
        assert await self.store.views.load([task.id for task in old]) == [None] * 3
        assert await self.driver.load(young.id) == young
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_with_ignore_keep_nothing_unsettled_is_deleted(self) -> None:
        await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.submit_many(2, tenant="t")
        before = (await self.store.views.find(Filter(), limit=100)).tasks
        self.clock.advance(400 * A_DAY)
        for kind in (Kept.TASKS, Kept.CHECKPOINTS, Kept.PLANS, Kept.TRIGGERS):
            assert await self.driver.prune(kind, ignore_keep=True) == 0
        assert (await self.store.views.find(Filter(), limit=100)).tasks == before

    async def test_its_key_is_known_though_it_went_before_its_time(self) -> None:
        task = await self.driver.run(keep_seconds=30 * A_DAY, key="k")
        self.clock.advance(60)
        assert await self.driver.prune(Kept.TASKS, ignore_keep=True) == 1
        peek = await self.driver.peek(task)
        assert peek.status is Status.COMPLETED

    async def test_what_is_pruned_leaves_the_counts_of_the_present(self) -> None:
        await self.driver.run(keep_seconds=1)
        self.clock.advance(2)
        await self.driver.prune(Kept.TASKS)
        stats = await self.store.views.stats()
        assert not any(stats.by_status.values())
        assert sum(move.count for move in stats.moves) == 2

    async def test_the_end_of_a_task_that_has_gone_can_still_be_seen(self) -> None:
        task = await self.driver.start(stages=("only",), keep_seconds=0)
        await self.driver.finish_stage(task, {"answer": 42})
        assert await self.store.views.peek([task.id]) == [
            Peek(task_id=task.id, status=Status.COMPLETED, result=b'{"answer":42}')
        ]
        self.clock.advance(A_DAY - 1)
        assert await self.store.views.peek([task.id]) != [None]

    async def test_the_end_of_a_pruned_task_can_still_be_seen(self) -> None:
        task = await self.driver.submit(keep_seconds=1)
        await self.driver.ask(Command.CANCEL, task)
        self.clock.advance(2)
        assert await self.driver.prune(Kept.TASKS) == 1
        peek = await self.driver.peek(task)
        assert peek.status in SETTLED
        assert peek.reason == "because"

    async def test_tombstones_go_a_day_after_the_end(self) -> None:
        task = await self.driver.run(keep_seconds=0)
        self.clock.advance(A_DAY - 1)
        assert await self.driver.prune(Kept.TOMBSTONES) == 0
        self.clock.advance(2)
        assert await self.driver.prune(Kept.TOMBSTONES, dry_run=True) == 1
        assert await self.driver.prune(Kept.TOMBSTONES) == 1
        assert await self.driver.prune(Kept.TOMBSTONES) == 0
        assert await self.store.views.peek([task.id]) == [None]

    async def test_a_tombstone_holds_nothing_of_its_tenant(self) -> None:
        await self.driver.run(tenant="t", keep_seconds=0)
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (None, None, 0)
        assert (await self.driver.submit(tenant="t")).place is Place.READY

    async def test_checkpoints_of_settled_tasks_go_by_age(self) -> None:
        failed = await self.driver.suspend(await self.driver.start_past_stage())
        settled = await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.ask(Command.DISCARD, settled)
        self.clock.advance(50)
        assert await self.driver.prune(Kept.CHECKPOINTS, older_than_seconds=100) == 0
        self.clock.advance(51)
        assert await self.driver.prune(Kept.CHECKPOINTS, older_than_seconds=100, dry_run=True) == 1
        assert await self.store.views.checkpoint(settled.id) is not None
        assert await self.driver.prune(Kept.CHECKPOINTS, older_than_seconds=100) == 1
        assert await self.driver.prune(Kept.CHECKPOINTS, older_than_seconds=100) == 0
        assert await self.store.views.checkpoint(settled.id) is None
        assert await self.store.views.checkpoint(failed.id) is not None
        assert len((await self.driver.detail(settled)).stages) == 1

    async def test_what_a_pruned_checkpoint_kept_for_the_stages_is_there_for_a_rollback(
        self,
    ) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"order": "o-1"}))
        await self.driver.ask(Command.DISCARD, task)
        self.clock.advance(10)
        assert await self.driver.prune(Kept.CHECKPOINTS) == 1
        assert (await self.driver.detail(task)).data == b'{"order":"o-1"}'
        await self.driver.ask(Command.ROLLBACK, task)
        (claimed,) = await self.driver.claim()
        assert (claimed.checkpoint, claimed.data) == (None, b'{"order":"o-1"}')

    async def test_a_pruned_checkpoint_takes_the_place_of_no_newer_data(self) -> None:
        task = await self.driver.start_past_stage(data={"order": "o-1"})
        await self.driver.suspend(await self.driver.finish_stage(task, order="o-1"))
        await self.driver.ask(Command.ROLLBACK, task)
        task = await self.driver.commit(self.driver.decide_undo(await self.driver.take()))
        newer = (await self.driver.detail(task)).data
        await self.driver.fail_undo(task)
        await self.driver.ask(Command.DISCARD, task)
        self.clock.advance(10)
        assert await self.driver.prune(Kept.CHECKPOINTS) == 1
        assert newer is not None
        assert (await self.driver.detail(task)).data == newer

    async def test_audits_go_by_age_the_oldest_first(self) -> None:
        for _ in range(3):
            await self.driver.ask(Command.CANCEL, await self.driver.submit())
            self.clock.advance(10)
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=15, dry_run=True) == 2
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=15, limit=1) == 1
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=15) == 1
        (entry,) = await self.store.admin.audits(limit=10)
        assert entry.at == self.clock.now() - 10

    async def test_workers_go_when_they_were_not_seen_any_more(self) -> None:
        await self.store.tasks.renew(beat("w-1"), [], lease_seconds=30)
        self.clock.advance(100)
        await self.store.tasks.renew(beat("w-2"), [], lease_seconds=30)
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=50, dry_run=True) == 1
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=50) == 1
        (info,) = await self.store.views.workers(live_within_seconds=10)
        assert info.beat.worker == "w-2"
