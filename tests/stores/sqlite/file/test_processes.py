"""Several processes on one file, and the sudden end of one."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from holdfast.domain.task.state import SETTLED
from holdfast.ports import Filter, Topic
from holdfast.stores.sqlite.admin.doctor import PAGE
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import ask, end, kill, line_from, opened, start

FOREVER = 240.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def test_processes_that_create_the_file_at_once_agree(path: Path) -> None:
    processes = [start("submit", path, f"p{n}", 20) for n in range(3)]
    for process in processes:
        assert end(process) == "submitted"
    async with opened(path) as store:
        assert sum((await store.views.stats()).by_status.values()) == 60
        assert await store.admin.doctor(fix=False, limit=10) == []


async def test_each_task_is_handed_to_one_process(path: Path) -> None:
    assert end(start("submit", path, "a", 200)) == "submitted"
    processes = [start("work", path, f"w-{n}") for n in range(3)]
    done = Counter(line for process in processes for line in end(process).splitlines())
    assert done == Counter(f"a-{n:06d}" for n in range(200))
    async with opened(path) as store:
        assert set((await store.views.stats()).by_status) <= SETTLED
        assert await store.admin.doctor(fix=False, limit=10) == []


async def test_a_commit_of_another_process_wakes_who_waits_here(path: Path) -> None:
    async with opened(path) as store:
        ticket = store.ticket(Topic.READY)
        waiting = asyncio.ensure_future(store.wait(Topic.READY, ticket, timeout=FOREVER))
        await asyncio.sleep(0)
        other = start("submit", path, "a", 1)
        await asyncio.wait_for(waiting, FOREVER / 2)
        assert await asyncio.to_thread(end, other) == "submitted"
        found = await store.views.find(Filter(), limit=10)
        assert [task.id for task in found.tasks] == ["a-000000"]


async def test_a_commit_before_the_wait_is_not_missed(path: Path) -> None:
    async with opened(path) as store:
        ticket = store.ticket(Topic.RESTED)
        await asyncio.to_thread(lambda: end(start("submit", path, "a", 1)))
        await asyncio.wait_for(
            store.wait(Topic.RESTED, ticket, timeout=FOREVER), timeout=FOREVER / 2
        )


async def test_nobody_looks_for_other_processes_while_nobody_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, loop, looked = ManualClock(), asyncio.get_running_loop(), asyncio.Event()
    async with opened(path, clock) as store:
        signal = partial(loop.call_soon_threadsafe, looked.set)
        monkeypatch.setattr(store._writer, "_poll_commits", signal)
        driver = StoreDriver(store, clock)
        await driver.insert(driver.submission())
        assert not looked.is_set()
        ticket = store.ticket(Topic.READY)
        waiting = asyncio.ensure_future(store.wait(Topic.READY, ticket, timeout=FOREVER))
        await asyncio.wait_for(looked.wait(), FOREVER)
        waiting.cancel()


async def test_a_killed_writer_leaves_what_it_was_answered_and_nothing_half_done(
    path: Path,
) -> None:
    answered: list[str] = []
    for round_ in range(3):
        process = start("flood", path, f"r{round_}")
        answered += [await asyncio.to_thread(line_from, process) for _ in range(50)]
        answered += kill(process).splitlines()[:-1]  # the last line may be cut
    async with opened(path) as store:
        assert None not in await store.views.load(answered)
        assert await store.admin.doctor(fix=False, limit=PAGE) == []
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
    assert ask(path, "SELECT count(*) FROM tasks") == ask(path, "SELECT count(*) FROM states")
