"""A full disk refuses; it loses nothing, and work goes on when there is room."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.errors import StoreFull
from holdfast.domain.task.state import Status
from holdfast.ports import Kept
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.transaction import Txn
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import end, opened, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def set_room(store: SqliteStore, pages: int) -> None:
    """As many pages more than there are now."""

    def limit(txn: Txn) -> None:
        txn.db.pragma("max_page_count", txn.db.pragma("page_count") + pages)

    await store._writer.do(limit)


async def pages_of(store: SqliteStore) -> int:
    def count(txn: Txn) -> int:
        return int(txn.db.pragma("page_count"))

    return await store._writer.do(count)


async def test_a_full_file_refuses_submits_and_loses_nothing(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        running = await driver.start(stages=("only",))
        await set_room(store, 20)
        accepted: list[str] = []

        async def submit_without_end() -> None:
            for _ in range(1_000):
                submission = driver.submission(payload="x" * 3_000)
                await driver.insert(submission)
                accepted.append(submission.task.id)

        with pytest.raises(StoreFull, match=str(path)):
            await submit_without_end()
        assert accepted
        assert None not in await store.views.load(accepted)
        assert await store.admin.doctor(fix=False, limit=10) == []

        await set_room(store, 1_000)
        assert (await driver.complete(running)).status is Status.COMPLETED
        await driver.insert(driver.submission(payload="x" * 3_000))


async def test_a_file_that_may_not_grow_is_full(path: Path) -> None:
    said = end(start("fill", path, 2_000_000)).splitlines()
    assert said[0].startswith("full after ")
    assert said[0].endswith(": store-full")
    assert said[1:] == ["True", "True"]


async def test_pruning_what_is_still_kept_makes_room_and_gives_it_back(path: Path) -> None:
    """As the runbook says for a full store: with some room for the moment, as to delete takes room,
    too. Then the file is smaller, not only emptier."""
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        for _ in range(50):
            await driver.complete(await driver.start(payload="x" * 20_000))
        await set_room(store, 1)
        with pytest.raises(StoreFull):
            await driver.submit(payload="x" * 20_000)
        full_pages = await pages_of(store)
        clock.advance(60)
        asked: dict[str, Any] = {"older_than_seconds": 1.0, "limit": 100, "dry_run": False}
        assert await store.admin.prune(Kept.TASKS, **asked) == 0
        await set_room(store, 100)
        assert await store.admin.prune(Kept.TASKS, **asked, ignore_keep=True) == 50
        assert await pages_of(store) < full_pages / 2
        await driver.submit(payload="x" * 20_000)
        assert await store.admin.doctor(fix=False, limit=10) == []
