"""Measures: times of stages, moves by queue and type, locks, checkpoints, groups of errors."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.domain.task import decide
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.ports import BUCKETS, ErrorGroup, Moves, Timings
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.tasks.tenant_queue import pause

SPANS = len(BUCKETS) + 1


def timed(*spans: int, total_seconds: float = 1.5, **fields: Any) -> Timings:
    """One call in each of these spans."""
    defaults: dict[str, Any] = {"type": "test.work", "stage": "one", "outcome": "done"}
    counts = tuple(spans.count(span) for span in range(SPANS))
    return Timings(counts=counts, total_seconds=total_seconds, **(defaults | fields))


async def timings(driver: StoreDriver) -> list[Timings]:
    found = (await driver.store.views.stats()).timings
    return sorted(found, key=lambda one: (one.type, one.stage, one.outcome))


async def moved(driver: StoreDriver, before: Status, after: Status) -> list[tuple[str, str, int]]:
    """Return the counted moves by queue and type."""
    moves = (await driver.store.views.stats()).moves
    return sorted(
        (m.queue, m.type, m.count) for m in moves if (m.before, m.after) == (before, after)
    )


class Observing(Contract):
    async def test_nothing_was_timed_in_a_new_store(self, driver: StoreDriver) -> None:
        await driver.store.admin.observe([])
        assert await timings(driver) == []

    async def test_what_was_observed_is_read_back(self, driver: StoreDriver) -> None:
        said = timed(0, 3, SPANS - 1, total_seconds=12.25)
        await driver.store.admin.observe([said])
        assert await timings(driver) == [said]

    async def test_what_is_observed_adds_up(self, driver: StoreDriver) -> None:
        await driver.store.admin.observe(
            [timed(0, 1, total_seconds=0.5), timed(1, total_seconds=0.25)]
        )
        await driver.store.admin.observe([timed(1, SPANS - 1, total_seconds=8_000.0)])
        assert await timings(driver) == [timed(0, 1, 1, 1, SPANS - 1, total_seconds=8_000.75)]

    async def test_types_stages_and_outcomes_are_timed_apart(self, driver: StoreDriver) -> None:
        said = [
            timed(0),
            timed(1, outcome="failed"),
            timed(2, stage="two"),
            timed(3, type="a", stage="b.c"),
            timed(4, type="a.b", stage="c"),
            timed(5, type="a-b", stage="c_d", outcome="undo-failed"),
        ]
        await driver.store.admin.observe(said)
        for one in said:
            await driver.store.admin.observe([one])
        found = {(one.type, one.stage, one.outcome): one for one in await timings(driver)}
        assert len(found) == len(said)
        for one in said:
            there = found[one.type, one.stage, one.outcome]
            assert there.counts == tuple(2 * n for n in one.counts)
            assert there.total_seconds == 2 * one.total_seconds

    async def test_many_who_observe_at_once_lose_nothing(self, driver: StoreDriver) -> None:
        await asyncio.gather(*(driver.store.admin.observe([timed(2)] * 2) for _ in range(10)))
        (one,) = await timings(driver)
        assert (one.count, one.total_seconds) == (20, 30.0)


class CountingMoves(Contract):
    async def test_moves_are_counted_by_queue_and_type(self, driver: StoreDriver) -> None:
        for queue, type_ in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
            await driver.complete(await driver.start(queue=queue, type=type_))
        wanted = [("a", "x", 2), ("a", "y", 1), ("b", "x", 1)]
        assert await moved(driver, Status.PENDING, Status.RUNNING) == wanted
        assert await moved(driver, Status.RUNNING, Status.COMPLETED) == wanted

    async def test_names_that_look_alike_when_joined_are_counted_apart(
        self, driver: StoreDriver
    ) -> None:
        for queue, type_ in (("a.b", "c"), ("a", "b.c"), ("a-b", "c"), ("a", "b-c")):
            await driver.start(queue=queue, type=type_)
        assert await moved(driver, Status.PENDING, Status.RUNNING) == [
            ("a", "b-c", 1),
            ("a", "b.c", 1),
            ("a-b", "c", 1),
            ("a.b", "c", 1),
        ]

    async def test_the_time_before_a_move_is_counted_by_queue_and_type(
        self, driver: StoreDriver
    ) -> None:
        for seconds, queue in ((10, "a"), (5, "b"), (2, "a")):
            await driver.submit(queue=queue)
            driver.clock.advance(seconds)
            await driver.take(queues=(queue,))
        moves = sorted((await driver.store.views.stats()).moves, key=lambda move: move.queue)
        started: dict[str, Any] = {
            "before": Status.PENDING,
            "after": Status.RUNNING,
            "type": "test.work",
        }
        assert moves == [
            Moves(count=2, dwell_seconds=12.0, queue="a", **started),
            Moves(count=1, dwell_seconds=5.0, queue="b", **started),
        ]

    async def test_the_stores_own_moves_are_counted_by_queue_and_type(
        self, driver: StoreDriver
    ) -> None:
        await driver.start(queue="a", type="x")
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert await moved(driver, Status.RUNNING, Status.PENDING) == [("a", "x", 1)]
        await driver.fail(await driver.take(queues=("a",)), retry_seconds=60)
        driver.clock.advance(60)
        await driver.store.tasks.promote(limit=10)
        assert await moved(driver, Status.RETRYING, Status.PENDING) == [("a", "x", 1)]


class CountingHeld(Contract):
    async def locks(self, driver: StoreDriver) -> int:
        return (await driver.store.views.stats()).locks

    async def checkpoints(self, driver: StoreDriver) -> int:
        return (await driver.store.views.stats()).checkpoints

    async def test_a_lock_is_held_while_a_task_of_a_tenant_runs(self, driver: StoreDriver) -> None:
        assert await self.locks(driver) == 0
        first = await driver.start(tenant="a")
        second = await driver.start(tenant="b")
        await driver.submit_many(2, tenant="a")
        assert await self.locks(driver) == 2
        await driver.complete(first)
        assert await self.locks(driver) == 1
        await driver.suspend(second)
        assert await self.locks(driver) == 0

    async def test_a_task_without_a_tenant_holds_no_lock(self, driver: StoreDriver) -> None:
        await driver.start()
        assert await self.locks(driver) == 0

    async def test_a_lost_lease_is_a_lock_given_back(self, driver: StoreDriver) -> None:
        await driver.start(tenant="t")
        driver.clock.advance(LEASE_SECONDS + 1)
        await driver.store.tasks.expire(limit=10, count_crashes=True)
        assert await self.locks(driver) == 0
        await driver.take()
        assert await self.locks(driver) == 1

    async def test_checkpoints_of_what_has_not_settled_are_counted(
        self, driver: StoreDriver
    ) -> None:
        await driver.submit()
        await driver.take()
        assert await self.checkpoints(driver) == 0
        running = await driver.finish_stage(await driver.start(tenant="t"))
        failed = await driver.suspend(await driver.finish_stage(await driver.start()))
        await pause(driver, await driver.finish_stage(await driver.start()))
        await driver.fail(await driver.finish_stage(await driver.start()))
        assert await self.checkpoints(driver) == 4
        running = await driver.finish_stage(running)
        assert await self.checkpoints(driver) == 4
        await driver.complete(running)
        assert await self.checkpoints(driver) == 3
        await driver.ask(Command.DISCARD, failed)
        assert await self.checkpoints(driver) == 2

    async def test_a_checkpoint_given_up_is_counted_no_more(self, driver: StoreDriver) -> None:
        task = await driver.finish_stage(await driver.start())
        assert await self.checkpoints(driver) == 1
        await driver.commit(decide.start_over(task, "unreadable", now=driver.clock.now()))
        assert await self.checkpoints(driver) == 0

    async def test_a_task_that_is_not_kept_leaves_no_checkpoint(self, driver: StoreDriver) -> None:
        task = await driver.finish_stage(await driver.start(keep_seconds=0))
        assert await self.checkpoints(driver) == 1
        await driver.complete(task)
        assert await self.checkpoints(driver) == 0


class GroupingErrors(Contract):
    async def suspend_many(self, driver: StoreDriver, error: str, number: int) -> list[str]:
        """Suspend so many tasks and return their ids in order."""
        tenants = (None, "a", "b", "c")
        tasks = [
            await driver.suspend(
                await driver.start(tenant=f"{error}-{tenants[n % 4]}-{n}" if n % 4 else None),
                error=error,
            )
            for n in range(number)
        ]
        return sorted(task.id for task in tasks)

    async def groups(self, driver: StoreDriver, limit: int = 100) -> list[tuple[str, int, str]]:
        """The error of each, how many, and the newest."""
        found = await driver.store.views.error_groups(limit=limit)
        for group in found:
            assert group.newest.failure is not None
            assert group.newest.failure.fingerprint == group.fingerprint
        return [(error_of(group), group.count, group.newest.id) for group in found]

    async def test_where_nothing_is_suspended_there_are_no_groups(
        self, driver: StoreDriver
    ) -> None:
        await driver.complete(await driver.start())
        assert await self.groups(driver) == []

    async def test_suspended_tasks_are_grouped_the_most_frequent_first(
        self, driver: StoreDriver
    ) -> None:
        rare = await self.suspend_many(driver, "KeyError", 1)
        often = await self.suspend_many(driver, "TimeoutError", 5)
        some = await self.suspend_many(driver, "ValueError", 3)
        assert await self.groups(driver) == [
            ("TimeoutError", 5, often[-1]),
            ("ValueError", 3, some[-1]),
            ("KeyError", 1, rare[-1]),
        ]

    async def test_of_the_groups_no_more_than_the_limit_are_told(self, driver: StoreDriver) -> None:
        for number, error in enumerate(("KeyError", "TimeoutError", "ValueError"), start=1):
            await self.suspend_many(driver, error, number)
        found = await self.groups(driver, limit=2)
        assert [(error, count) for error, count, _ in found] == [
            ("ValueError", 3),
            ("TimeoutError", 2),
        ]
        assert await self.groups(driver, limit=0) == []

    async def test_the_newest_is_told_with_its_whole_record(self, driver: StoreDriver) -> None:
        await driver.suspend(await driver.start())
        task = await driver.suspend(await driver.start(tenant="t", user={"a": 1}))
        (group,) = await driver.store.views.error_groups(limit=10)
        assert task.failure is not None
        newest = await driver.load(group.newest.id)
        assert group == ErrorGroup(fingerprint=task.failure.fingerprint, count=2, newest=newest)

    async def test_the_newest_is_the_one_with_the_greatest_id_not_the_last_to_fail(
        self, driver: StoreDriver
    ) -> None:
        older, newer = await driver.submit(id="task-a"), await driver.submit(id="task-b")
        first, second = [claimed.task for claimed in await driver.claim()]
        await driver.suspend(second)
        driver.clock.advance(10)
        await driver.suspend(first)
        (group,) = await driver.store.views.error_groups(limit=10)
        assert group.newest.id == max(older.id, newer.id)

    async def test_only_suspended_tasks_are_in_a_group(self, driver: StoreDriver) -> None:
        await driver.fail(await driver.start(), retry_seconds=60)
        failed = await driver.suspend(await driver.start())
        settled = await driver.suspend(await driver.start())
        await driver.ask(Command.DISCARD, settled)
        assert await self.groups(driver) == [("ValueError", 1, failed.id)]

    async def test_a_rollback_that_failed_is_in_a_group(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start()))
        await driver.ask(Command.ROLLBACK, task)
        assert await self.groups(driver) == []
        task = await driver.take()
        failed = driver.failure(task, retry_seconds=None, error="KeyError")
        await driver.commit(decide.undo_failed(task, failed, Retry(), now=driver.clock.now()))
        assert await self.groups(driver) == [("KeyError", 1, task.id)]

    async def test_a_task_that_is_tried_again_leaves_its_group(self, driver: StoreDriver) -> None:
        first = await driver.suspend(await driver.start())
        second = await driver.suspend(await driver.start())
        await driver.ask(Command.RETRY, second)
        assert await self.groups(driver) == [("ValueError", 1, first.id)]
        await driver.ask(Command.RETRY, first)
        assert await self.groups(driver) == []

    async def test_a_task_that_fails_otherwise_changes_its_group(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.start())
        await driver.ask(Command.RETRY, task)
        await driver.suspend(await driver.take(), error="KeyError")
        assert await self.groups(driver) == [("KeyError", 1, task.id)]

    async def test_a_failure_of_another_stage_is_another_cause(self, driver: StoreDriver) -> None:
        await driver.suspend(await driver.start())
        await driver.suspend(await driver.finish_stage(await driver.start()))
        assert [count for _, count, _ in await self.groups(driver)] == [1, 1]

    async def test_a_task_held_back_while_it_is_suspended_stays_in_its_group(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start())
        await driver.ask(Command.HOLD_BACK, task)
        assert await self.groups(driver) == [("ValueError", 1, task.id)]


def error_of(group: ErrorGroup) -> str:
    assert group.newest.failure is not None
    return group.newest.failure.error
