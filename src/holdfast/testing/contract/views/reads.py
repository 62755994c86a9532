"""Reads: pages, peeks, details, counts, audits and workers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.events import name_of
from holdfast.domain.task.operate import OperatorRequest, refusal
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter, Moves, Peek
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER, beat
from holdfast.testing.contract.drivers.ways import CASES, walk


class TaskReads(Contract):
    # The index by status follows every move, whoever makes it (P5).

    @pytest.mark.parametrize(("status", "way"), CASES)
    async def test_a_task_is_seen_in_the_status_of_its_last_move_and_in_no_other(
        self, status: Status, way: str
    ) -> None:
        task = await walk(self.driver, way)
        assert task.status is status
        assert await self.driver.load(task.id) == task
        for other in Status:
            page = await self.store.views.find(Filter(statuses=(other,)), limit=10)
            assert page.tasks == ((task,) if other is status else ()), other
        counted = (await self.store.views.stats()).by_status
        assert {present: number for present, number in counted.items() if number} == {status: 1}
        peek = await self.driver.peek(task)
        assert peek.status is status

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_hold_every_task_once_newest_first(self, limit: int) -> None:
        ids = await self.driver.submit_many(7)
        assert await self.driver.find_ids(limit=limit) == ids[::-1]

    async def test_a_page_is_not_disturbed_by_newer_tasks(self) -> None:
        ids = await self.driver.submit_many(4)
        first = await self.store.views.find(Filter(), limit=2)
        await self.driver.submit_many(3)
        second = await self.store.views.find(Filter(), limit=2, cursor=first.cursor)
        assert [task.id for task in (*first.tasks, *second.tasks)] == ids[::-1]

    async def test_an_empty_store_has_an_empty_page(self) -> None:
        page = await self.store.views.find(Filter(), limit=10)
        assert (page.tasks, page.cursor) == ((), None)

    async def test_tasks_are_found_with_their_whole_record(self) -> None:
        task = await self.driver.start(tenant="t", user={"a": 1})
        (seen,) = (await self.store.views.find(Filter(), limit=10)).tasks
        assert seen == task

    @pytest.mark.parametrize("field", ["type", "tenant", "plan", "queue"])
    async def test_tasks_are_found_by_a_field(self, field: str) -> None:
        where: dict[str, Any] = {field: "mine"}
        mine = await self.driver.submit_many(3, **{field: "mine"})
        await self.driver.submit_many(3, **{field: "other"})
        await self.driver.submit()
        assert await self.driver.find_ids(**where) == mine[::-1]
        assert await self.driver.find_ids(limit=2, **where) == mine[::-1]
        assert await self.driver.find_ids(**(where | {field: "unknown"})) == []

    async def test_tasks_are_found_by_status(self) -> None:
        failed = await self.driver.suspend_new()
        paused = await self.driver.ask(Command.PAUSE, await self.driver.submit())
        pending = await self.driver.submit()
        assert await self.driver.find_ids(statuses=(Status.FAILED,)) == [failed.id]
        both = (Status.FAILED, Status.PAUSED)
        assert await self.driver.find_ids(statuses=both) == [paused.id, failed.id]
        assert await self.driver.find_ids(limit=1, statuses=both) == [paused.id, failed.id]
        assert await self.driver.find_ids(statuses=(Status.PENDING,)) == [pending.id]
        assert await self.driver.find_ids(statuses=(Status.CANCELLED,)) == []

    async def test_a_task_is_found_under_its_present_status_only(self, task: Task) -> None:
        assert await self.driver.find_ids(statuses=(Status.PENDING,)) == []
        assert await self.driver.find_ids(statuses=(Status.RUNNING,)) == [task.id]
        await self.driver.complete(task)
        assert await self.driver.find_ids(statuses=(Status.RUNNING,)) == []

    async def test_tasks_are_found_by_what_went_wrong(self) -> None:
        one = await self.driver.suspend_new(error="TimeoutError")
        two = await self.driver.suspend_new(error="TimeoutError")
        other = await self.driver.suspend_new(error="KeyError")
        assert one.failure is not None
        assert other.failure is not None
        assert await self.driver.find_ids(error=one.failure.fingerprint) == [two.id, one.id]
        assert await self.driver.find_ids(error=other.failure.fingerprint) == [other.id]

    async def test_tasks_are_found_by_the_time_of_their_last_change(self) -> None:
        start = self.clock.now()
        ids = []
        for _ in range(4):
            ids.append((await self.driver.submit()).id)
            self.clock.advance(10)
        assert await self.driver.find_ids(updated_before=start + 15) == ids[1::-1]
        assert await self.driver.find_ids(updated_after=start + 15) == ids[:1:-1]
        assert await self.driver.find_ids(updated_after=start + 5, updated_before=start + 15) == [
            ids[1]
        ]
        assert await self.driver.find_ids(limit=1, updated_before=start + 15) == ids[1::-1]

    async def test_all_conditions_of_a_filter_must_hold(self) -> None:
        wanted = await self.driver.submit(tenant="t", type="a", queue="q", plan="p")
        await self.driver.submit(tenant="t", type="b", queue="q", plan="p")
        await self.driver.submit(tenant="u", type="a", queue="q", plan="p")
        await self.driver.submit(tenant="t", type="a", queue="r", plan="p")
        where: dict[str, Any] = {"tenant": "t", "type": "a", "queue": "q", "plan": "p"}
        assert await self.driver.find_ids(**where) == [wanted.id]
        statuses = (Status.PENDING,)
        assert await self.driver.find_ids(statuses=statuses, **where) == [wanted.id]
        assert await self.driver.find_ids(statuses=(Status.FAILED,), **where) == []

    async def test_records_are_loaded_in_the_order_asked(self) -> None:
        one, two = await self.driver.submit(), await self.driver.submit()
        wanted = [two.id, "unknown", one.id, two.id]
        assert list(await self.store.views.load(wanted)) == [two, None, one, two]
        assert list(await self.store.views.load([])) == []

    async def test_a_peek_shows_how_a_task_stands(self) -> None:
        task = await self.driver.suspend_new()
        pending = await self.driver.submit()
        peeks = await self.store.views.peek([task.id, "unknown", pending.id])
        assert list(peeks) == [
            Peek(task_id=task.id, status=Status.FAILED, failure=task.failure),
            None,
            Peek(task_id=pending.id, status=Status.PENDING),
        ]

    async def test_a_peek_shows_the_result(self) -> None:
        task = await self.driver.start(stages=("only",))
        await self.driver.finish_stage(task, [1, 2])
        peek = await self.driver.peek(task)
        assert (peek.status, peek.result) == (Status.COMPLETED, b"[1,2]")

    async def test_the_detail_shows_all_that_belongs_to_a_task(self) -> None:
        task = await self.driver.finish_stage(
            await self.driver.start(payload={"n": 1}), "r", cursor=7
        )
        detail = await self.driver.detail(task)
        assert detail.task == task
        assert detail.payload == b'{"n":1}'
        assert (detail.result, detail.progress) == (None, None)
        assert [stage.name for stage in detail.stages] == ["one"]
        assert [name_of(event) for event in detail.events] == [
            "TaskCreated",
            "TaskStarted",
            "StageStarted",
            "StageCompleted",
        ]

    async def test_an_unknown_task_has_no_detail(self) -> None:
        assert await self.store.views.detail("unknown") is None

    async def test_tasks_are_counted_by_status(self) -> None:
        await self.driver.run()
        await self.driver.suspend_new()
        await self.driver.suspend_new()
        await self.driver.start()
        await self.driver.submit()
        by_status = (await self.store.views.stats()).by_status
        assert {status: n for status, n in by_status.items() if n} == {
            Status.COMPLETED: 1,
            Status.FAILED: 2,
            Status.RUNNING: 1,
            Status.PENDING: 1,
        }

    async def test_tasks_are_counted_by_queue_and_place(self) -> None:
        await self.driver.submit_many(3, queue="a", tenant="t")
        await self.driver.fail(await self.driver.start(queue="b"))
        await self.driver.start(queue="b")
        await self.driver.submit(queue="b", held=True)
        by_queue = (await self.store.views.stats()).by_queue
        counted = {q: {p: n for p, n in places.items() if n} for q, places in by_queue.items()}
        assert {q: places for q, places in counted.items() if places} == {
            "a": {Place.READY: 1, Place.LINE: 2},
            "b": {Place.LATER: 1, Place.LEASED: 1, Place.HELD: 1},
        }

    async def test_moves_are_counted_with_the_time_before_them(self) -> None:
        for _ in range(2):
            await self.driver.submit(stages=("only",))
            self.clock.advance(10)
            task = await self.driver.take()
            self.clock.advance(5)
            await self.driver.complete(task)
        moves = sorted((await self.store.views.stats()).moves, key=lambda move: move.before)
        whose = {"queue": "default", "type": "test.work"}
        started, completed = (Status.PENDING, Status.RUNNING), (Status.RUNNING, Status.COMPLETED)
        assert moves == [
            Moves(before=a, after=b, count=2, dwell_seconds=seconds, **whose)
            for (a, b), seconds in ((started, 20.0), (completed, 10.0))
        ]

    async def test_a_stage_within_a_status_is_no_move(self) -> None:
        await self.driver.start_past_stage()
        assert sum(move.count for move in (await self.store.views.stats()).moves) == 1

    async def test_refusals_are_counted_and_audited(self) -> None:
        task = await self.driver.submit()
        ask = OperatorRequest(by=ASKER, now=self.clock.now(), request="r")
        entry = refusal(task, Command.DISCARD, ask, "illegal-transition")
        await self.store.admin.audit(entry)
        await self.store.admin.audit(entry)
        assert (await self.store.views.stats()).refused == {f"{Status.PENDING} discard": 2}
        assert list(await self.store.admin.audits(limit=10)) == [entry, entry]

    async def test_the_head_of_each_queue_is_shown(self) -> None:
        first = await self.driver.submit()
        await self.driver.submit()
        other = await self.driver.submit(queue="other")
        heads = (await self.store.views.stats()).heads
        assert {queue: task.id for queue, task in heads.items()} == {
            "default": first.id,
            "other": other.id,
        }
        await self.driver.claim(limit=10)
        assert set((await self.store.views.stats()).heads) == {"other"}

    async def test_the_stores_clock_can_be_read(self) -> None:
        before = (await self.store.views.stats()).now
        self.clock.advance(10)
        assert round((await self.store.views.stats()).now - before, 3) == 10

    async def test_audits_come_newest_first_up_to_the_limit(self) -> None:
        ids = await self.driver.submit_many(3)
        for task_id in ids:
            self.clock.advance(1)
            await self.driver.ask(Command.CANCEL, await self.driver.load(task_id))
        entries = await self.store.admin.audits(limit=2)
        assert [entry.task_id for entry in entries] == [ids[2], ids[1]]
        assert list(await self.store.admin.audits(limit=0)) == []

    async def test_audits_go_on_behind_as_many_as_were_seen(self) -> None:
        ids = await self.driver.submit_many(5)
        for task_id in ids:
            await self.driver.ask(Command.CANCEL, await self.driver.load(task_id))
        pages = [
            await self.store.admin.audits(limit=2, cursor=cursor) for cursor in (None, "2", "4")
        ]
        assert [entry.task_id for page in pages for entry in page] == ids[::-1]
        assert list(await self.store.admin.audits(limit=2, cursor="5")) == []

    async def test_a_worker_is_known_by_its_beat(self) -> None:
        sent = beat("w-7", types=("a", "b"), slots=3, started_at=12.5, triggers=("nightly",))
        await self.store.tasks.renew(sent, [], lease_seconds=30)
        self.clock.advance(5)
        (info,) = await self.store.views.workers(live_within_seconds=10)
        assert (info.beat, info.seen_seconds_ago, info.live) == (sent, 5.0, True)

    async def test_a_worker_that_was_not_seen_for_long_is_not_live(self) -> None:
        await self.store.tasks.renew(beat("old"), [], lease_seconds=30)
        self.clock.advance(20)
        await self.store.tasks.renew(beat("new"), [], lease_seconds=30)
        workers = await self.store.views.workers(live_within_seconds=10)
        assert {info.beat.worker: info.live for info in workers} == {"old": False, "new": True}

    async def test_the_last_beat_counts(self) -> None:
        await self.store.tasks.renew(beat(running=1), [], lease_seconds=30)
        await self.store.tasks.renew(beat(running=2), [], lease_seconds=30)
        (info,) = await self.store.views.workers(live_within_seconds=10)
        assert info.beat.running == 2

    async def test_a_worker_that_left_is_gone_and_its_leases_are_not(self) -> None:
        task = await self.driver.start("w-1")
        await self.driver.renew(task)
        await self.store.tasks.leave("w-1")
        await self.store.tasks.leave("unknown")
        assert list(await self.store.views.workers(live_within_seconds=10)) == []
        assert (await self.driver.load(task.id)).lease is not None
