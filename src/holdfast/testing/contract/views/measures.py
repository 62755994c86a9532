"""Measures: times of stages, moves by queue and type, locks, checkpoints, errors, lateness."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.domain.task import decide
from holdfast.domain.task.state import Command, Status
from holdfast.ports import BUCKETS, Awaited, ErrorGroup, Moves, Store, Timings
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE

SPANS = len(BUCKETS) + 1


def build_timings(*spans: int, total_seconds: float = 1.5, **fields: Any) -> Timings:
    """Build timings with one call in each of these spans."""
    defaults: dict[str, Any] = {"type": "test.work", "stage": "one", "outcome": "done"}
    counts = tuple(spans.count(span) for span in range(SPANS))
    return Timings(counts=counts, total_seconds=total_seconds, **(defaults | fields))


async def load_timings(store: Store) -> list[Timings]:
    timings = (await store.views.stats()).timings
    return sorted(timings, key=lambda timing: (timing.type, timing.stage, timing.outcome))


async def count_moves(
    driver: StoreDriver, before: Status, after: Status
) -> list[tuple[str, str, int]]:
    """Return the counted moves by queue and type."""
    moves = (await driver.store.views.stats()).moves
    return sorted(
        (m.queue, m.type, m.count) for m in moves if (m.before, m.after) == (before, after)
    )


async def late(driver: StoreDriver) -> dict[Awaited, float]:
    late_seconds = (await driver.store.views.stats()).late_seconds
    return {kind: round(seconds, 3) for kind, seconds in late_seconds.items()}


class Measures(Contract):
    async def test_nothing_was_timed_in_a_new_store(self) -> None:
        await self.store.admin.observe([])
        assert await load_timings(self.store) == []

    async def test_what_was_observed_is_read_back(self) -> None:
        timing = build_timings(0, 3, SPANS - 1, total_seconds=12.25)
        await self.store.admin.observe([timing])
        assert await load_timings(self.store) == [timing]

    async def test_what_is_observed_adds_up(self) -> None:
        await self.store.admin.observe(
            [build_timings(0, 1, total_seconds=0.5), build_timings(1, total_seconds=0.25)]
        )
        await self.store.admin.observe([build_timings(1, SPANS - 1, total_seconds=8_000.0)])
        assert await load_timings(self.store) == [
            build_timings(0, 1, 1, 1, SPANS - 1, total_seconds=8_000.75)
        ]

    async def test_types_stages_and_outcomes_are_timed_apart(self) -> None:
        observations = [
            build_timings(0),
            build_timings(1, outcome="failed"),
            build_timings(2, stage="two"),
            build_timings(3, type="a", stage="b.c"),
            build_timings(4, type="a.b", stage="c"),
            build_timings(5, type="a-b", stage="c_d", outcome="undo-failed"),
        ]
        await self.store.admin.observe(observations)
        for timing in observations:
            await self.store.admin.observe([timing])
        observed = {(t.type, t.stage, t.outcome): t for t in await load_timings(self.store)}
        assert len(observed) == len(observations)
        for timing in observations:
            total = observed[timing.type, timing.stage, timing.outcome]
            assert total.counts == tuple(2 * n for n in timing.counts)
            assert total.total_seconds == 2 * timing.total_seconds

    async def test_many_who_observe_at_once_lose_nothing(self) -> None:
        await asyncio.gather(*(self.store.admin.observe([build_timings(2)] * 2) for _ in range(10)))
        (timing,) = await load_timings(self.store)
        assert (timing.count, timing.total_seconds) == (20, 30.0)

    async def test_moves_are_counted_by_queue_and_type(self) -> None:
        for queue, type_ in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
            await self.driver.run(queue=queue, type=type_)
        wanted = [("a", "x", 2), ("a", "y", 1), ("b", "x", 1)]
        assert await count_moves(self.driver, Status.PENDING, Status.RUNNING) == wanted
        assert await count_moves(self.driver, Status.RUNNING, Status.COMPLETED) == wanted

    async def test_names_that_look_alike_when_joined_are_counted_apart(self) -> None:
        for queue, type_ in (("a.b", "c"), ("a", "b.c"), ("a-b", "c"), ("a", "b-c")):
            await self.driver.start(queue=queue, type=type_)
        assert await count_moves(self.driver, Status.PENDING, Status.RUNNING) == [
            ("a", "b-c", 1),
            ("a", "b.c", 1),
            ("a-b", "c", 1),
            ("a.b", "c", 1),
        ]

    async def test_the_time_before_a_move_is_counted_by_queue_and_type(self) -> None:
        for seconds, queue in ((10, "a"), (5, "b"), (2, "a")):
            await self.driver.submit(queue=queue)
            self.clock.advance(seconds)
            await self.driver.take(queues=(queue,))
        moves = sorted((await self.store.views.stats()).moves, key=lambda move: move.queue)
        started: dict[str, Any] = {
            "before": Status.PENDING,
            "after": Status.RUNNING,
            "type": "test.work",
        }
        assert moves == [
            Moves(count=2, dwell_seconds=12.0, queue="a", **started),
            Moves(count=1, dwell_seconds=5.0, queue="b", **started),
        ]

    async def test_the_stores_own_moves_are_counted_by_queue_and_type(self) -> None:
        await self.driver.start(queue="a", type="x")
        await self.driver.lapse()
        assert await count_moves(self.driver, Status.RUNNING, Status.PENDING) == [("a", "x", 1)]
        await self.driver.fail(await self.driver.take(queues=("a",)), retry_seconds=60)
        await self.driver.promote_after(60)
        assert await count_moves(self.driver, Status.RETRYING, Status.PENDING) == [("a", "x", 1)]

    async def locks(self) -> int:
        return (await self.store.views.stats()).locks

    async def checkpoints(self) -> int:
        return (await self.store.views.stats()).checkpoints

    async def test_a_lock_is_held_while_a_task_of_a_tenant_runs(self) -> None:
        assert await self.locks() == 0
        first = await self.driver.start(tenant="a")
        second = await self.driver.start(tenant="b")
        await self.driver.submit_many(2, tenant="a")
        assert await self.locks() == 2
        await self.driver.complete(first)
        assert await self.locks() == 1
        await self.driver.suspend(second)
        assert await self.locks() == 0

    async def test_a_task_without_a_tenant_holds_no_lock(self) -> None:
        await self.driver.start()
        assert await self.locks() == 0

    async def test_a_lost_lease_is_a_lock_given_back(self) -> None:
        await self.driver.start(tenant="t")
        await self.driver.lapse()
        assert await self.locks() == 0
        await self.driver.take()
        assert await self.locks() == 1

    async def test_checkpoints_of_what_has_not_settled_are_counted(self) -> None:
        await self.driver.submit()
        await self.driver.take()
        assert await self.checkpoints() == 0
        running = await self.driver.start_past_stage(tenant="t")
        failed = await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.pause(await self.driver.start_past_stage())
        await self.driver.fail(await self.driver.start_past_stage())
        assert await self.checkpoints() == 4
        running = await self.driver.finish_stage(running)
        assert await self.checkpoints() == 4
        await self.driver.complete(running)
        assert await self.checkpoints() == 3
        await self.driver.ask(Command.DISCARD, failed)
        assert await self.checkpoints() == 2

    async def test_a_checkpoint_given_up_is_counted_no_more(self) -> None:
        task = await self.driver.start_past_stage()
        assert await self.checkpoints() == 1
        await self.driver.commit(decide.start_over(task, "unreadable", now=self.clock.now()))
        assert await self.checkpoints() == 0

    async def test_a_task_that_is_not_kept_leaves_no_checkpoint(self) -> None:
        task = await self.driver.start_past_stage(keep_seconds=0)
        assert await self.checkpoints() == 1
        await self.driver.complete(task)
        assert await self.checkpoints() == 0

    async def suspend_many(self, error: str, number: int) -> list[str]:
        """Suspend so many tasks and return their ids in order."""
        tenants = (None, "a", "b", "c")
        tasks = [
            await self.driver.suspend(
                await self.driver.start(tenant=f"{error}-{tenants[n % 4]}-{n}" if n % 4 else None),
                error=error,
            )
            for n in range(number)
        ]
        return sorted(task.id for task in tasks)

    async def groups(self, limit: int = 100) -> list[tuple[str, int, str]]:
        """Return the error of each group, how many tasks it has, and the newest of them."""
        groups = []
        for group in await self.store.views.error_groups(limit=limit):
            failure = group.newest.failure
            assert failure is not None
            assert failure.fingerprint == group.fingerprint
            groups.append((failure.error, group.count, group.newest.id))
        return groups

    async def test_where_nothing_is_suspended_there_are_no_groups(self) -> None:
        await self.driver.run()
        assert await self.groups() == []

    async def test_suspended_tasks_are_grouped_the_most_frequent_first(self) -> None:
        rare = await self.suspend_many("KeyError", 1)
        often = await self.suspend_many("TimeoutError", 5)
        some = await self.suspend_many("ValueError", 3)
        assert await self.groups() == [
            ("TimeoutError", 5, often[-1]),
            ("ValueError", 3, some[-1]),
            ("KeyError", 1, rare[-1]),
        ]

    async def test_no_more_groups_than_the_limit_are_returned(self) -> None:
        for number, error in enumerate(("KeyError", "TimeoutError", "ValueError"), start=1):
            await self.suspend_many(error, number)
        groups = await self.groups(limit=2)
        assert [(error, count) for error, count, _ in groups] == [
            ("ValueError", 3),
            ("TimeoutError", 2),
        ]
        assert await self.groups(limit=0) == []

    async def test_the_newest_task_of_a_group_is_returned_with_its_whole_record(self) -> None:
        await self.driver.suspend_new()
        task = await self.driver.suspend_new(tenant="t", user={"a": 1})
        (group,) = await self.store.views.error_groups(limit=10)
        assert task.failure is not None
        newest = await self.driver.load(group.newest.id)
        assert group == ErrorGroup(fingerprint=task.failure.fingerprint, count=2, newest=newest)

    async def test_the_newest_is_the_one_with_the_greatest_id_not_the_last_to_fail(self) -> None:
        older, newer = await self.driver.submit(id="task-a"), await self.driver.submit(id="task-b")
        first, second = [claimed.task for claimed in await self.driver.claim()]
        await self.driver.suspend(second)
        self.clock.advance(10)
        await self.driver.suspend(first)
        (group,) = await self.store.views.error_groups(limit=10)
        assert group.newest.id == max(older.id, newer.id)

    async def test_only_suspended_tasks_are_in_a_group(self) -> None:
        await self.driver.fail(await self.driver.start(), retry_seconds=60)
        failed = await self.driver.suspend_new()
        settled = await self.driver.suspend_new()
        await self.driver.ask(Command.DISCARD, settled)
        assert await self.groups() == [("ValueError", 1, failed.id)]

    async def test_a_rollback_that_failed_is_in_a_group(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.ask(Command.ROLLBACK, task)
        assert await self.groups() == []
        task = await self.driver.take()
        await self.driver.fail_undo(task, error="KeyError")
        assert await self.groups() == [("KeyError", 1, task.id)]

    async def test_a_task_that_is_tried_again_leaves_its_group(self) -> None:
        first = await self.driver.suspend_new()
        second = await self.driver.suspend_new()
        await self.driver.ask(Command.RETRY, second)
        assert await self.groups() == [("ValueError", 1, first.id)]
        await self.driver.ask(Command.RETRY, first)
        assert await self.groups() == []

    async def test_a_task_that_fails_otherwise_changes_its_group(self) -> None:
        task = await self.driver.suspend_new()
        await self.driver.ask(Command.RETRY, task)
        await self.driver.suspend(await self.driver.take(), error="KeyError")
        assert await self.groups() == [("KeyError", 1, task.id)]

    async def test_a_failure_of_another_stage_is_another_cause(self) -> None:
        await self.driver.suspend_new()
        await self.driver.suspend(await self.driver.start_past_stage())
        assert [count for _, count, _ in await self.groups()] == [1, 1]

    async def test_a_task_held_back_while_it_is_suspended_stays_in_its_group(self) -> None:
        task = await self.driver.suspend_new()
        await self.driver.ask(Command.HOLD_BACK, task)
        assert await self.groups() == [("ValueError", 1, task.id)]

    # A time has come, and no worker has moved its record.

    async def test_what_is_ready_or_at_rest_is_not_late(self) -> None:
        await self.driver.suspend_new()
        await self.driver.submit()
        self.clock.advance(3600)
        assert await late(self.driver) == {}

    async def test_a_lease_is_late_from_its_end_until_it_is_taken_back(self) -> None:
        await self.driver.start()
        self.clock.advance(LEASE_SECONDS - 1)
        assert await late(self.driver) == {}
        self.clock.advance(6)
        assert await late(self.driver) == {Awaited.LEASE: 5}
        await self.store.tasks.expire(limit=10, count_crashes=True)
        assert await late(self.driver) == {}

    async def test_the_first_due_task_says_how_late_tasks_are(self) -> None:
        for seconds in (60, 30, 90):
            await self.driver.fail(await self.driver.start(), retry_seconds=seconds)
        self.clock.advance(29)
        assert await late(self.driver) == {}
        self.clock.advance(11)
        assert await late(self.driver) == {Awaited.TASK: 10}
        await self.store.tasks.promote(limit=10)
        assert await late(self.driver) == {}

    async def test_a_trigger_is_late_while_nobody_fires_it(self) -> None:
        await self.triggers.save(due_in=A_MINUTE)
        assert await late(self.driver) == {}
        self.clock.advance(A_MINUTE + 7)
        assert await late(self.driver) == {Awaited.TRIGGER: 7}
        assert len(await self.triggers.claim_ids()) == 1
        assert await late(self.driver) == {}
        self.clock.advance(LEASE_SECONDS + 2)
        assert await late(self.driver) == {Awaited.TRIGGER: 2}, "whoever had it is gone"

    async def test_a_plan_is_late_while_nobody_drives_it(self) -> None:
        await self.plans.create("still-being-made")
        await self.plans.ready("soaks", delay_seconds=60)
        self.clock.advance(59)
        assert await late(self.driver) == {}
        self.clock.advance(4)
        assert await late(self.driver) == {Awaited.PLAN: 3}
        await self.plans.take_one()
        assert await late(self.driver) == {}
        self.clock.advance(LEASE_SECONDS + 2)
        assert await late(self.driver) == {Awaited.PLAN: 2}, "its driver is gone"
