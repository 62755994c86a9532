"""What is cleaned up leaves nothing behind, and the file gets small again."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.decide import Snoozed
from holdfast.ports import Kept
from holdfast.stores.sqlite.admin import prune as prune_module
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import ask, opened

PER_TASK = "tasks states ready leases checkpoints journal keys tombstones tenants".split()
DAY = 86_400.0


@pytest.mark.parametrize("keep_seconds", [0.0, 60.0])
async def test_everything_that_belongs_to_a_task_goes_with_it(
    tmp_path: Path, keep_seconds: float
) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        baseline = ask(path, "PRAGMA page_count")[0][0]
        for n in range(60):
            await driver.submit(
                tenant=f"t-{n}",
                key=f"k-{n}",
                payload="x" * 4_000,
                stages=("one", "two"),
                keep_seconds=keep_seconds,
            )
        for claimed in await driver.claim(limit=60):
            task = await driver.finish_stage(claimed.task)
            await driver.commit(await driver.done(task))
        assert ask(path, "PRAGMA page_count")[0][0] > baseline + 60
        clock.advance(3 * DAY)
        for kind in (Kept.TASKS, Kept.TOMBSTONES):
            await store.admin.prune(kind, older_than_seconds=0, limit=1_000, dry_run=False)
        left = {table: ask(path, f"SELECT count(*) FROM {table}")[0][0] for table in PER_TASK}
        assert left == dict.fromkeys(PER_TASK, 0)
        assert (await store.views.stats()).by_status == {}
        assert ask(path, "PRAGMA page_count")[0][0] <= baseline + 5
        assert await store.admin.doctor(fix=False, limit=10) == []


async def test_a_tenant_is_forgotten_with_its_last_task_only(tmp_path: Path) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.complete(await driver.start(tenant="t", keep_seconds=1))
        running = await driver.start(tenant="t")
        clock.advance(3 * DAY)
        await store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=10, dry_run=False)
        assert (await driver.tenant("t")).active == running.id


async def test_a_large_clean_up_is_done_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "BATCH", 10)
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit_many(60, stages=("only",), keep_seconds=1)
        for claimed in await driver.claim(limit=60):
            await driver.complete(claimed.task)
        clock.advance(3 * DAY)

        async def prune(*, limit: int, dry_run: bool) -> int:
            return await store.admin.prune(
                Kept.TASKS, older_than_seconds=0, limit=limit, dry_run=dry_run
            )

        assert await prune(limit=500, dry_run=True) == 60
        assert await prune(limit=35, dry_run=False) == 35
        assert await prune(limit=500, dry_run=False) == 25
        assert ask(path, "SELECT count(*) FROM journal") == [(0,)]


async def test_unreadable_rows_do_not_stop_the_clean_up_and_are_not_deleted(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit_many(6, stages=("only",), keep_seconds=1)
        for claimed in await driver.claim():
            await driver.complete(claimed.task)
        ask(path, "UPDATE tasks SET head = '{' WHERE n <= 3")
        clock.advance(3 * DAY)
        assert (
            await store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=2, dry_run=False) == 2
        )
        assert (
            await store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=2, dry_run=False) == 1
        )
        assert ask(path, "SELECT n FROM tasks") == [(1,), (2,), (3,)]
        found = await store.admin.doctor(fix=False, limit=10)
        assert [finding.invariant for finding in found] == ["I11"] * 3


async def test_of_the_data_that_snoozes_leave_the_last_is_kept_only(tmp_path: Path) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        other, task = await driver.submit(), await driver.submit()
        for number in range(20):
            held = {one.task.id: one for one in await driver.claim()}
            data = held[task.id].data
            assert data == (f'{{"n":{number - 1}}}'.encode() if number else None)
            for claimed in held.values():
                snoozed = Snoozed(data={"n": number}, started_at=clock.now(), delay_seconds=0.0)
                before, now = claimed.task, clock.now()
                await driver.commit(decide.snooze(before, snoozed, checkpoint=None, now=now))
            await store.tasks.promote(limit=10)
        kept = ask(path, "SELECT n, data FROM journal WHERE data IS NOT NULL ORDER BY n")
        assert [data for _, data in kept] == ['{"n":19}'] * 2
        assert len({n for n, _ in kept}) == 2
        for one in (other, task):
            detail = await store.views.detail(one.id)
            assert detail is not None
            assert detail.data == b'{"n":19}'


def copy_by_pages(path: Path, copy: Path) -> None:
    """What `.backup` of the sqlite3 command line does."""
    source, target = apsw.Connection(str(path)), apsw.Connection(str(copy))
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(-1)
    target.close()
    source.close()


def copy_by_vacuum(path: Path, copy: Path) -> None:
    ask(path, "VACUUM INTO ?", str(copy))


@pytest.mark.parametrize("copy_to", [copy_by_pages, copy_by_vacuum])
async def test_a_backup_made_while_the_store_is_open_is_the_store_as_it_was_then(
    tmp_path: Path, copy_to: Callable[[Path, Path], None]
) -> None:
    path, copy, clock = tmp_path / "holdfast.db", tmp_path / "copy.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        running = await driver.start(tenant="t", stages=("one", "two"))
        waiting = await driver.submit(tenant="t", payload="of the second")
        copy_to(path, copy)
        later = await driver.submit()
    async with opened(copy, clock) as store:
        kept = await store.views.load([running.id, waiting.id, later.id])
        assert [one is not None for one in kept] == [True, True, False]
        assert await store.admin.doctor(fix=False, limit=10) == []
        clock.advance(DAY)
        assert await store.tasks.expire(limit=10, count_crashes=False) == 1
        [again] = await StoreDriver(store, clock).claim("w-2")
        assert again.task.id == running.id
