"""Reads: pages, peeks, details, counts, audits and workers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.events import name_of
from holdfast.domain.task.operate import OperatorRequest, refusal
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.ports import Filter, Moves, Peek
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver, beat


async def found(driver: StoreDriver, *, limit: int = 100, **where: Any) -> list[str]:
    """All pages, one after the other."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await driver.store.views.find(Filter(**where), limit=limit, cursor=cursor)
        assert len(page.tasks) <= limit
        ids += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            return ids


class TaskFilters(Contract):
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_hold_every_task_once_newest_first(
        self, driver: StoreDriver, limit: int
    ) -> None:
        ids = await driver.submit_many(7)
        assert await found(driver, limit=limit) == ids[::-1]

    async def test_a_page_is_not_disturbed_by_newer_tasks(self, driver: StoreDriver) -> None:
        ids = await driver.submit_many(4)
        first = await driver.store.views.find(Filter(), limit=2)
        await driver.submit_many(3)
        second = await driver.store.views.find(Filter(), limit=2, cursor=first.cursor)
        assert [task.id for task in (*first.tasks, *second.tasks)] == ids[::-1]

    async def test_an_empty_store_has_an_empty_page(self, driver: StoreDriver) -> None:
        page = await driver.store.views.find(Filter(), limit=10)
        assert (page.tasks, page.cursor) == ((), None)

    async def test_tasks_are_found_with_their_whole_record(self, driver: StoreDriver) -> None:
        task = await driver.start(tenant="t", user={"a": 1})
        (seen,) = (await driver.store.views.find(Filter(), limit=10)).tasks
        assert seen == task

    @pytest.mark.parametrize("field", ["type", "tenant", "plan", "queue"])
    async def test_tasks_are_found_by_a_field(self, driver: StoreDriver, field: str) -> None:
        where: dict[str, Any] = {field: "mine"}
        mine = await driver.submit_many(3, **{field: "mine"})
        await driver.submit_many(3, **{field: "other"})
        await driver.submit()
        assert await found(driver, **where) == mine[::-1]
        assert await found(driver, limit=2, **where) == mine[::-1]
        assert await found(driver, **(where | {field: "unknown"})) == []

    async def test_tasks_are_found_by_status(self, driver: StoreDriver) -> None:
        failed = await driver.suspend(await driver.start())
        paused = await driver.ask(Command.PAUSE, await driver.submit())
        pending = await driver.submit()
        assert await found(driver, statuses=(Status.FAILED,)) == [failed.id]
        both = (Status.FAILED, Status.PAUSED)
        assert await found(driver, statuses=both) == [paused.id, failed.id]
        assert await found(driver, limit=1, statuses=both) == [paused.id, failed.id]
        assert await found(driver, statuses=(Status.PENDING,)) == [pending.id]
        assert await found(driver, statuses=(Status.CANCELLED,)) == []

    async def test_a_task_is_found_under_its_present_status_only(self, driver: StoreDriver) -> None:
        task = await driver.start()
        assert await found(driver, statuses=(Status.PENDING,)) == []
        assert await found(driver, statuses=(Status.RUNNING,)) == [task.id]
        await driver.complete(task)
        assert await found(driver, statuses=(Status.RUNNING,)) == []

    async def test_tasks_are_found_by_what_went_wrong(self, driver: StoreDriver) -> None:
        one = await driver.suspend(await driver.start(), error="TimeoutError")
        two = await driver.suspend(await driver.start(), error="TimeoutError")
        other = await driver.suspend(await driver.start(), error="KeyError")
        assert one.failure is not None
        assert other.failure is not None
        assert await found(driver, error=one.failure.fingerprint) == [two.id, one.id]
        assert await found(driver, error=other.failure.fingerprint) == [other.id]

    async def test_tasks_are_found_by_the_time_of_their_last_change(
        self, driver: StoreDriver
    ) -> None:
        start = driver.clock.now()
        ids = []
        for _ in range(4):
            ids.append((await driver.submit()).id)
            driver.clock.advance(10)
        assert await found(driver, updated_before=start + 15) == ids[1::-1]
        assert await found(driver, updated_after=start + 15) == ids[:1:-1]
        assert await found(driver, updated_after=start + 5, updated_before=start + 15) == [ids[1]]
        assert await found(driver, limit=1, updated_before=start + 15) == ids[1::-1]

    async def test_all_conditions_of_a_filter_must_hold(self, driver: StoreDriver) -> None:
        wanted = await driver.submit(tenant="t", type="a", queue="q", plan="p")
        await driver.submit(tenant="t", type="b", queue="q", plan="p")
        await driver.submit(tenant="u", type="a", queue="q", plan="p")
        await driver.submit(tenant="t", type="a", queue="r", plan="p")
        where: dict[str, Any] = {"tenant": "t", "type": "a", "queue": "q", "plan": "p"}
        assert await found(driver, **where) == [wanted.id]
        statuses = (Status.PENDING,)
        assert await found(driver, statuses=statuses, **where) == [wanted.id]
        assert await found(driver, statuses=(Status.FAILED,), **where) == []


class TaskReads(Contract):
    async def test_records_are_loaded_in_the_order_asked(self, driver: StoreDriver) -> None:
        one, two = await driver.submit(), await driver.submit()
        asked = [two.id, "unknown", one.id, two.id]
        assert list(await driver.store.views.load(asked)) == [two, None, one, two]
        assert list(await driver.store.views.load([])) == []

    async def test_a_peek_shows_how_a_task_stands(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.start())
        pending = await driver.submit()
        peeks = await driver.store.views.peek([task.id, "unknown", pending.id])
        assert list(peeks) == [
            Peek(task_id=task.id, status=Status.FAILED, failure=task.failure),
            None,
            Peek(task_id=pending.id, status=Status.PENDING),
        ]

    async def test_a_peek_shows_the_result(self, driver: StoreDriver) -> None:
        task = await driver.start(stages=("only",))
        await driver.finish_stage(task, [1, 2])
        (peek,) = await driver.store.views.peek([task.id])
        assert peek is not None
        assert (peek.status, peek.result) == (Status.COMPLETED, b"[1,2]")

    async def test_the_detail_shows_all_that_belongs_to_a_task(self, driver: StoreDriver) -> None:
        task = await driver.finish_stage(await driver.start(payload={"n": 1}), "r", cursor=7)
        detail = await driver.detail(task)
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

    async def test_an_unknown_task_has_no_detail(self, driver: StoreDriver) -> None:
        assert await driver.store.views.detail("unknown") is None


class QueueCounts(Contract):
    async def test_tasks_are_counted_by_status(self, driver: StoreDriver) -> None:
        await driver.complete(await driver.start())
        await driver.suspend(await driver.start())
        await driver.suspend(await driver.start())
        await driver.start()
        await driver.submit()
        by_status = (await driver.store.views.stats()).by_status
        assert {status: n for status, n in by_status.items() if n} == {
            Status.COMPLETED: 1,
            Status.FAILED: 2,
            Status.RUNNING: 1,
            Status.PENDING: 1,
        }

    async def test_tasks_are_counted_by_queue_and_place(self, driver: StoreDriver) -> None:
        await driver.submit_many(3, queue="a", tenant="t")
        await driver.fail(await driver.start(queue="b"))
        await driver.start(queue="b")
        await driver.submit(queue="b", held=True)
        by_queue = (await driver.store.views.stats()).by_queue
        counted = {q: {p: n for p, n in places.items() if n} for q, places in by_queue.items()}
        assert {q: places for q, places in counted.items() if places} == {
            "a": {Place.READY: 1, Place.LINE: 2},
            "b": {Place.LATER: 1, Place.LEASED: 1, Place.HELD: 1},
        }

    async def test_moves_are_counted_with_the_time_before_them(self, driver: StoreDriver) -> None:
        for _ in range(2):
            await driver.submit(stages=("only",))
            driver.clock.advance(10)
            task = await driver.take()
            driver.clock.advance(5)
            await driver.complete(task)
        moves = sorted((await driver.store.views.stats()).moves, key=lambda move: move.before)
        whose = {"queue": "default", "type": "test.work"}
        started, completed = (Status.PENDING, Status.RUNNING), (Status.RUNNING, Status.COMPLETED)
        assert moves == [
            Moves(before=a, after=b, count=2, dwell_seconds=seconds, **whose)
            for (a, b), seconds in ((started, 20.0), (completed, 10.0))
        ]

    async def test_a_stage_within_a_status_is_no_move(self, driver: StoreDriver) -> None:
        await driver.finish_stage(await driver.start())
        assert sum(move.count for move in (await driver.store.views.stats()).moves) == 1

    async def test_refusals_are_counted_and_audited(self, driver: StoreDriver) -> None:
        task = await driver.submit()
        ask = OperatorRequest(by=ASKER, now=driver.clock.now(), request="r")
        entry = refusal(task, Command.DISCARD, ask, "illegal-transition")
        await driver.store.admin.audit(entry)
        await driver.store.admin.audit(entry)
        assert (await driver.store.views.stats()).refused == {f"{Status.PENDING} discard": 2}
        assert list(await driver.store.admin.audits(limit=10)) == [entry, entry]

    async def test_the_head_of_each_queue_is_shown(self, driver: StoreDriver) -> None:
        first = await driver.submit()
        await driver.submit()
        other = await driver.submit(queue="other")
        heads = (await driver.store.views.stats()).heads
        assert {queue: task.id for queue, task in heads.items()} == {
            "default": first.id,
            "other": other.id,
        }
        await driver.claim(limit=10)
        assert set((await driver.store.views.stats()).heads) == {"other"}

    async def test_the_stores_clock_can_be_read(self, driver: StoreDriver) -> None:
        before = (await driver.store.views.stats()).now
        driver.clock.advance(10)
        assert round((await driver.store.views.stats()).now - before, 3) == 10

    async def test_audits_come_newest_first_up_to_the_limit(self, driver: StoreDriver) -> None:
        ids = await driver.submit_many(3)
        for task_id in ids:
            driver.clock.advance(1)
            await driver.ask(Command.CANCEL, await driver.load(task_id))
        entries = await driver.store.admin.audits(limit=2)
        assert [entry.task_id for entry in entries] == [ids[2], ids[1]]
        assert list(await driver.store.admin.audits(limit=0)) == []

    async def test_audits_go_on_behind_as_many_as_were_seen(self, driver: StoreDriver) -> None:
        ids = await driver.submit_many(5)
        for task_id in ids:
            await driver.ask(Command.CANCEL, await driver.load(task_id))
        pages = [
            await driver.store.admin.audits(limit=2, cursor=cursor) for cursor in (None, "2", "4")
        ]
        assert [entry.task_id for page in pages for entry in page] == ids[::-1]
        assert list(await driver.store.admin.audits(limit=2, cursor="5")) == []


class Workers(Contract):
    async def test_a_worker_is_known_by_its_beat(self, driver: StoreDriver) -> None:
        said = beat("w-7", types=("a", "b"), slots=3, started_at=12.5, triggers=("nightly",))
        await driver.store.tasks.renew(said, [], lease_seconds=30)
        driver.clock.advance(5)
        (info,) = await driver.store.views.workers(live_within_seconds=10)
        assert (info.beat, info.seen_seconds_ago, info.live) == (said, 5.0, True)

    async def test_a_worker_that_was_not_seen_for_long_is_not_live(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.tasks.renew(beat("old"), [], lease_seconds=30)
        driver.clock.advance(20)
        await driver.store.tasks.renew(beat("new"), [], lease_seconds=30)
        workers = await driver.store.views.workers(live_within_seconds=10)
        assert {info.beat.worker: info.live for info in workers} == {"old": False, "new": True}

    async def test_the_last_beat_counts(self, driver: StoreDriver) -> None:
        await driver.store.tasks.renew(beat(running=1), [], lease_seconds=30)
        await driver.store.tasks.renew(beat(running=2), [], lease_seconds=30)
        (info,) = await driver.store.views.workers(live_within_seconds=10)
        assert info.beat.running == 2

    async def test_a_worker_that_left_is_gone_and_its_leases_are_not(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.start("w-1")
        await driver.renew(task)
        await driver.store.tasks.leave("w-1")
        await driver.store.tasks.leave("unknown")
        assert list(await driver.store.views.workers(live_within_seconds=10)) == []
        assert (await driver.load(task.id)).lease is not None
