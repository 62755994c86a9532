"""Measures: times of stages, moves by queue and type, locks, checkpoints, groups of errors."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.domain.task import decide
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.ports import BUCKETS, ErrorGroup, Moves, Timings
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, Hands
from holdfast.testing.contract.tasks.tenant_queue import pause

SPANS = len(BUCKETS) + 1


def timed(*spans: int, total_seconds: float = 1.5, **fields: Any) -> Timings:
    """One call in each of these spans."""
    defaults: dict[str, Any] = {"type": "test.work", "stage": "one", "outcome": "done"}
    counts = tuple(spans.count(span) for span in range(SPANS))
    return Timings(counts=counts, total_seconds=total_seconds, **(defaults | fields))


async def timings(hands: Hands) -> list[Timings]:
    found = (await hands.store.views.stats()).timings
    return sorted(found, key=lambda one: (one.type, one.stage, one.outcome))


async def moved(hands: Hands, before: Status, after: Status) -> list[tuple[str, str, int]]:
    """Return the counted moves by queue and type."""
    moves = (await hands.store.views.stats()).moves
    return sorted(
        (m.queue, m.type, m.count) for m in moves if (m.before, m.after) == (before, after)
    )


class Observing(Contract):
    async def test_nothing_was_timed_in_a_new_store(self, hands: Hands) -> None:
        await hands.store.admin.observe([])
        assert await timings(hands) == []

    async def test_what_was_observed_is_read_back(self, hands: Hands) -> None:
        said = timed(0, 3, SPANS - 1, total_seconds=12.25)
        await hands.store.admin.observe([said])
        assert await timings(hands) == [said]

    async def test_what_is_observed_adds_up(self, hands: Hands) -> None:
        await hands.store.admin.observe(
            [timed(0, 1, total_seconds=0.5), timed(1, total_seconds=0.25)]
        )
        await hands.store.admin.observe([timed(1, SPANS - 1, total_seconds=8_000.0)])
        assert await timings(hands) == [timed(0, 1, 1, 1, SPANS - 1, total_seconds=8_000.75)]

    async def test_types_stages_and_outcomes_are_timed_apart(self, hands: Hands) -> None:
        said = [
            timed(0),
            timed(1, outcome="failed"),
            timed(2, stage="two"),
            timed(3, type="a", stage="b.c"),
            timed(4, type="a.b", stage="c"),
            timed(5, type="a-b", stage="c_d", outcome="undo-failed"),
        ]
        await hands.store.admin.observe(said)
        for one in said:
            await hands.store.admin.observe([one])
        found = {(one.type, one.stage, one.outcome): one for one in await timings(hands)}
        assert len(found) == len(said)
        for one in said:
            there = found[one.type, one.stage, one.outcome]
            assert there.counts == tuple(2 * n for n in one.counts)
            assert there.total_seconds == 2 * one.total_seconds

    async def test_many_who_observe_at_once_lose_nothing(self, hands: Hands) -> None:
        await asyncio.gather(*(hands.store.admin.observe([timed(2)] * 2) for _ in range(10)))
        (one,) = await timings(hands)
        assert (one.count, one.total_seconds) == (20, 30.0)


class CountingMoves(Contract):
    async def test_moves_are_counted_by_queue_and_type(self, hands: Hands) -> None:
        for queue, type_ in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
            await hands.complete(await hands.start(queue=queue, type=type_))
        wanted = [("a", "x", 2), ("a", "y", 1), ("b", "x", 1)]
        assert await moved(hands, Status.PENDING, Status.RUNNING) == wanted
        assert await moved(hands, Status.RUNNING, Status.COMPLETED) == wanted

    async def test_names_that_look_alike_when_joined_are_counted_apart(self, hands: Hands) -> None:
        for queue, type_ in (("a.b", "c"), ("a", "b.c"), ("a-b", "c"), ("a", "b-c")):
            await hands.start(queue=queue, type=type_)
        assert await moved(hands, Status.PENDING, Status.RUNNING) == [
            ("a", "b-c", 1),
            ("a", "b.c", 1),
            ("a-b", "c", 1),
            ("a.b", "c", 1),
        ]

    async def test_the_time_before_a_move_is_counted_by_queue_and_type(self, hands: Hands) -> None:
        for seconds, queue in ((10, "a"), (5, "b"), (2, "a")):
            await hands.submit(queue=queue)
            hands.clock.advance(seconds)
            await hands.take(queues=(queue,))
        moves = sorted((await hands.store.views.stats()).moves, key=lambda move: move.queue)
        started: dict[str, Any] = {
            "before": Status.PENDING,
            "after": Status.RUNNING,
            "type": "test.work",
        }
        assert moves == [
            Moves(count=2, dwell_seconds=12.0, queue="a", **started),
            Moves(count=1, dwell_seconds=5.0, queue="b", **started),
        ]

    async def test_the_stores_own_moves_are_counted_by_queue_and_type(self, hands: Hands) -> None:
        await hands.start(queue="a", type="x")
        hands.clock.advance(LEASE_SECONDS + 1)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        assert await moved(hands, Status.RUNNING, Status.PENDING) == [("a", "x", 1)]
        await hands.fail(await hands.take(queues=("a",)), retry_seconds=60)
        hands.clock.advance(60)
        await hands.store.tasks.promote(limit=10)
        assert await moved(hands, Status.RETRYING, Status.PENDING) == [("a", "x", 1)]


class CountingHeld(Contract):
    async def locks(self, hands: Hands) -> int:
        return (await hands.store.views.stats()).locks

    async def checkpoints(self, hands: Hands) -> int:
        return (await hands.store.views.stats()).checkpoints

    async def test_a_lock_is_held_while_a_task_of_a_tenant_runs(self, hands: Hands) -> None:
        assert await self.locks(hands) == 0
        first = await hands.start(tenant="a")
        second = await hands.start(tenant="b")
        await hands.submit_many(2, tenant="a")
        assert await self.locks(hands) == 2
        await hands.complete(first)
        assert await self.locks(hands) == 1
        await hands.suspend(second)
        assert await self.locks(hands) == 0

    async def test_a_task_without_a_tenant_holds_no_lock(self, hands: Hands) -> None:
        await hands.start()
        assert await self.locks(hands) == 0

    async def test_a_lost_lease_is_a_lock_given_back(self, hands: Hands) -> None:
        await hands.start(tenant="t")
        hands.clock.advance(LEASE_SECONDS + 1)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        assert await self.locks(hands) == 0
        await hands.take()
        assert await self.locks(hands) == 1

    async def test_checkpoints_of_what_has_not_settled_are_counted(self, hands: Hands) -> None:
        await hands.submit()
        await hands.take()
        assert await self.checkpoints(hands) == 0
        running = await hands.finish_stage(await hands.start(tenant="t"))
        failed = await hands.suspend(await hands.finish_stage(await hands.start()))
        await pause(hands, await hands.finish_stage(await hands.start()))
        await hands.fail(await hands.finish_stage(await hands.start()))
        assert await self.checkpoints(hands) == 4
        running = await hands.finish_stage(running)
        assert await self.checkpoints(hands) == 4
        await hands.complete(running)
        assert await self.checkpoints(hands) == 3
        await hands.ask(Command.DISCARD, failed)
        assert await self.checkpoints(hands) == 2

    async def test_a_checkpoint_given_up_is_counted_no_more(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start())
        assert await self.checkpoints(hands) == 1
        await hands.commit(decide.start_over(task, "unreadable", now=hands.clock.now()))
        assert await self.checkpoints(hands) == 0

    async def test_a_task_that_is_not_kept_leaves_no_checkpoint(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start(keep_seconds=0))
        assert await self.checkpoints(hands) == 1
        await hands.complete(task)
        assert await self.checkpoints(hands) == 0


class GroupingErrors(Contract):
    async def suspend_many(self, hands: Hands, error: str, number: int) -> list[str]:
        """Suspend so many tasks and return their ids in order."""
        tenants = (None, "a", "b", "c")
        tasks = [
            await hands.suspend(
                await hands.start(tenant=f"{error}-{tenants[n % 4]}-{n}" if n % 4 else None),
                error=error,
            )
            for n in range(number)
        ]
        return sorted(task.id for task in tasks)

    async def groups(self, hands: Hands, limit: int = 100) -> list[tuple[str, int, str]]:
        """The error of each, how many, and the newest."""
        found = await hands.store.views.error_groups(limit=limit)
        for group in found:
            assert group.newest.failure is not None
            assert group.newest.failure.fingerprint == group.fingerprint
        return [(error_of(group), group.count, group.newest.id) for group in found]

    async def test_where_nothing_is_suspended_there_are_no_groups(self, hands: Hands) -> None:
        await hands.complete(await hands.start())
        assert await self.groups(hands) == []

    async def test_suspended_tasks_are_grouped_the_most_frequent_first(self, hands: Hands) -> None:
        rare = await self.suspend_many(hands, "KeyError", 1)
        often = await self.suspend_many(hands, "TimeoutError", 5)
        some = await self.suspend_many(hands, "ValueError", 3)
        assert await self.groups(hands) == [
            ("TimeoutError", 5, often[-1]),
            ("ValueError", 3, some[-1]),
            ("KeyError", 1, rare[-1]),
        ]

    async def test_of_the_groups_no_more_than_the_limit_are_told(self, hands: Hands) -> None:
        for number, error in enumerate(("KeyError", "TimeoutError", "ValueError"), start=1):
            await self.suspend_many(hands, error, number)
        found = await self.groups(hands, limit=2)
        assert [(error, count) for error, count, _ in found] == [
            ("ValueError", 3),
            ("TimeoutError", 2),
        ]
        assert await self.groups(hands, limit=0) == []

    async def test_the_newest_is_told_with_its_whole_record(self, hands: Hands) -> None:
        await hands.suspend(await hands.start())
        task = await hands.suspend(await hands.start(tenant="t", user={"a": 1}))
        (group,) = await hands.store.views.error_groups(limit=10)
        assert task.failure is not None
        newest = await hands.load(group.newest.id)
        assert group == ErrorGroup(fingerprint=task.failure.fingerprint, count=2, newest=newest)

    async def test_the_newest_is_the_one_with_the_greatest_id_not_the_last_to_fail(
        self, hands: Hands
    ) -> None:
        older, newer = await hands.submit(id="task-a"), await hands.submit(id="task-b")
        first, second = [claimed.task for claimed in await hands.claim()]
        await hands.suspend(second)
        hands.clock.advance(10)
        await hands.suspend(first)
        (group,) = await hands.store.views.error_groups(limit=10)
        assert group.newest.id == max(older.id, newer.id)

    async def test_only_suspended_tasks_are_in_a_group(self, hands: Hands) -> None:
        await hands.fail(await hands.start(), retry_seconds=60)
        failed = await hands.suspend(await hands.start())
        settled = await hands.suspend(await hands.start())
        await hands.ask(Command.DISCARD, settled)
        assert await self.groups(hands) == [("ValueError", 1, failed.id)]

    async def test_a_rollback_that_failed_is_in_a_group(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.finish_stage(await hands.start()))
        await hands.ask(Command.ROLLBACK, task)
        assert await self.groups(hands) == []
        task = await hands.take()
        failed = hands.failure(task, retry_seconds=None, error="KeyError")
        await hands.commit(decide.undo_failed(task, failed, Retry(), now=hands.clock.now()))
        assert await self.groups(hands) == [("KeyError", 1, task.id)]

    async def test_a_task_that_is_tried_again_leaves_its_group(self, hands: Hands) -> None:
        first = await hands.suspend(await hands.start())
        second = await hands.suspend(await hands.start())
        await hands.ask(Command.RETRY, second)
        assert await self.groups(hands) == [("ValueError", 1, first.id)]
        await hands.ask(Command.RETRY, first)
        assert await self.groups(hands) == []

    async def test_a_task_that_fails_otherwise_changes_its_group(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start())
        await hands.ask(Command.RETRY, task)
        await hands.suspend(await hands.take(), error="KeyError")
        assert await self.groups(hands) == [("KeyError", 1, task.id)]

    async def test_a_failure_of_another_stage_is_another_cause(self, hands: Hands) -> None:
        await hands.suspend(await hands.start())
        await hands.suspend(await hands.finish_stage(await hands.start()))
        assert [count for _, count, _ in await self.groups(hands)] == [1, 1]

    async def test_a_task_held_back_while_it_is_suspended_stays_in_its_group(
        self, hands: Hands
    ) -> None:
        task = await hands.suspend(await hands.start())
        await hands.ask(Command.HOLD_BACK, task)
        assert await self.groups(hands) == [("ValueError", 1, task.id)]


def error_of(group: ErrorGroup) -> str:
    assert group.newest.failure is not None
    return group.newest.failure.error
