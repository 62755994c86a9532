"""Group commit, and what a write may rely on."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest

from holdfast.domain.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Inserted
from holdfast.ports import Renewal, Topic
from holdfast.stores.sqlite import SqliteStore, transaction
from holdfast.stores.sqlite.file import writer
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.tasks import records
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver, beat
from tests.support.sqlite.sqlite_files import (
    PATIENCE_SECONDS,
    ask,
    is_there,
    opened,
    put_empty,
    take_away,
    take_away_alone,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(path, ManualClock()) as store:
        yield store


@pytest.fixture
def driver(store: SqliteStore) -> StoreDriver:
    return StoreDriver(store, ManualClock())


class Hold:
    """Keeps the writer busy, so that what comes meanwhile has to gather."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._begun, self._go = store, asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._store._writer.do(self._work))
        await self._begun.wait()

    def _work(self, _: transaction.Txn) -> None:
        self._loop.call_soon_threadsafe(self._begun.set)
        assert self._go.wait(PATIENCE_SECONDS)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self._go.set()
        await self._task


class Commits:
    """Counts the writer's commits, and can refuse them."""

    def __init__(self) -> None:
        self.count, self.refused_after = 0, 1_000

    async def watch(self, store: SqliteStore) -> "Commits":
        await store._writer.do(lambda txn: txn.db.set_commit_hook(self._committed))
        self.count = 0
        return self

    def _committed(self) -> bool:
        self.count += 1
        return self.count > self.refused_after


async def test_what_gathers_behind_a_commit_is_written_with_one_commit(
    store: SqliteStore, driver: StoreDriver
) -> None:
    commits = await Commits().watch(store)
    async with Hold(store):
        writes = [asyncio.ensure_future(driver.insert(driver.submission())) for _ in range(50)]
    assert [type(answer[0]) for answer in await asyncio.gather(*writes)] == [Inserted] * 50
    assert commits.count == 2  # the one that was held, and one for all of them


async def test_a_single_write_is_not_delayed_for_company(
    store: SqliteStore, driver: StoreDriver
) -> None:
    commits = await Commits().watch(store)
    for _ in range(3):
        await driver.insert(driver.submission())
    assert commits.count == 3


async def test_one_failing_write_of_a_group_spoils_no_other(
    store: SqliteStore, driver: StoreDriver
) -> None:
    def fails(txn: transaction.Txn) -> None:
        txn.run("key_put", '[["", "half", "a"]]')
        raise ValueError("no")

    async with Hold(store):
        before = asyncio.ensure_future(driver.insert(driver.submission(id="a")))
        failing = asyncio.ensure_future(store._writer.do(fails))
        after = asyncio.ensure_future(driver.insert(driver.submission(id="b")))
    with pytest.raises(ValueError, match="no"):
        await failing
    assert await before == [Inserted("a")]
    assert await after == [Inserted("b")]
    assert ask(store.path, "SELECT count(*) FROM tasks") == [(2,)]
    assert ask(store.path, "SELECT count(*) FROM keys") == [(0,)]


async def test_a_commit_that_fails_fails_for_its_whole_group_and_leaves_nothing(
    store: SqliteStore, driver: StoreDriver
) -> None:
    commits = await Commits().watch(store)
    commits.refused_after = 1  # the one that is held
    async with Hold(store):
        writes = [asyncio.ensure_future(driver.insert(driver.submission())) for _ in range(3)]
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    assert commits.count == 2
    commits.refused_after = 1_000
    assert ask(store.path, "SELECT count(*) FROM tasks") == [(0,)]
    assert (await store.views.stats()).by_status == {}
    task = await driver.submit()
    assert task.order == 1


async def test_what_is_large_is_written_in_parts(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "SIZE_LIMIT", 100)
    batch = [driver.submission(payload="x" * 90, tenant="t") for _ in range(5)]
    assert len(await driver.insert(*batch)) == 5
    for submission in batch:
        task = await driver.complete(await driver.take())
        assert (await driver.detail(task)).payload == submission.payload
    assert await driver.store.admin.doctor(fix=False, limit=10) == []


def test_a_head_leaves_out_only_what_a_task_is_unless_told() -> None:
    """A default that changes would change every record that does not say it."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Task)}
    assert {name: defaults[name] for name in records.LEFT_OUT} == records.LEFT_OUT


async def test_an_answer_means_committed(path: Path, driver: StoreDriver) -> None:
    await driver.insert(driver.submission(id="a"))
    assert ask(path, "SELECT id FROM states") == [("a",)]


async def test_what_was_written_is_read_at_once(driver: StoreDriver) -> None:
    for n in range(50):
        submission = driver.submission()
        await driver.insert(submission)
        assert await driver.store.views.load([submission.task.id]) != [None], n


async def test_a_thread_with_its_own_loop_can_renew_leases(
    store: SqliteStore, driver: StoreDriver
) -> None:
    task = await driver.start()
    assert task.lease is not None
    renewal = Renewal(task_id=task.id, lease_id=task.lease.id)

    def elsewhere() -> list[bool]:
        return list(asyncio.run(store.tasks.renew(beat("w-1"), [renewal], lease_seconds=99)))

    assert await asyncio.to_thread(elsewhere) == [True]


async def test_the_file_is_written_for_keeps(store: SqliteStore) -> None:
    def pragmas(txn: transaction.Txn) -> list[object]:
        names = "journal_mode", "synchronous", "auto_vacuum"
        return [txn.db.pragma(name) for name in names]

    assert await store._writer.do(pragmas) == ["wal", 2, 2]


async def test_closing_waits_for_what_was_asked_before(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(path, clock)
    await store.open()
    driver = StoreDriver(store, clock)
    async with Hold(store):
        writes = [asyncio.ensure_future(driver.insert(driver.submission())) for _ in range(20)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
    await asyncio.gather(*writes)
    await closing
    assert ask(path, "SELECT count(*) FROM tasks") == [(20,)]


async def test_a_closed_store_says_so_and_can_be_opened_again(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(path, clock)
    driver = StoreDriver(store, clock)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.views.load(["a"])
    for n in range(3):
        await store.open()
        await driver.insert(driver.submission(id=f"task-{n}"))
        await store.close()
        with pytest.raises(StoreUnavailable, match="not open"):
            await driver.insert(driver.submission())
    assert ask(path, "SELECT count(*) FROM tasks") == [(3,)]


async def test_no_thread_outlives_its_store(path: Path) -> None:
    before = set(threading.enumerate())
    async with opened(path, ManualClock()) as store:
        await store.views.stats()
        assert named_since(before)
    assert named_since(before) == []


def named_since(before: set[threading.Thread]) -> list[str]:
    """Those of ours, apart from what an earlier test may have left to come to its end."""
    found = set(threading.enumerate()) - before
    return [thread.name for thread in found if thread.name.startswith("holdfast")]


async def test_a_store_opened_before_a_fork_is_refused_after_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        with pytest.raises(StoreUnusable, match="before a fork"):
            await store.views.load(["a"])


async def test_a_writer_that_gives_up_waiting_leaves_the_rest_in_order(
    store: SqliteStore, driver: StoreDriver
) -> None:
    async with Hold(store):
        dropped = asyncio.ensure_future(driver.insert(driver.submission(id="a")))
        kept = asyncio.ensure_future(driver.insert(driver.submission(id="b")))
        await asyncio.sleep(0)
        dropped.cancel()
    assert await kept == [Inserted("b")]
    assert dropped.cancelled()


async def test_no_more_than_a_bounded_number_of_writes_may_wait(
    store: SqliteStore, driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WAITING_LIMIT", 3)
    async with Hold(store):
        waiting = [asyncio.ensure_future(driver.insert(driver.submission())) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match=r"3 writes to .* are already waiting"):
            await driver.insert(driver.submission())
    assert [type(answer[0]) for answer in await asyncio.gather(*waiting)] == [Inserted] * 3
    await driver.submit()


async def test_a_write_is_answered_even_if_its_signal_goes_wrong(
    store: SqliteStore, driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Topic) -> None:
        raise RuntimeError("no signal")

    monkeypatch.setattr(store._writer, "_notify", broken)
    assert await driver.insert(driver.submission(id="a")) == [Inserted("a")]


class Stubborn:
    """A connection that will not roll back."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *values: Any) -> apsw.Cursor:
        if sql == SQL["roll_back"]:
            raise apsw.IOError("the disk is away")
        return self._db.execute(sql, *values)


def fails(_: transaction.Txn) -> None:
    raise ValueError("no")


async def test_a_connection_that_cannot_roll_back_is_opened_anew(
    store: SqliteStore, driver: StoreDriver, caplog: pytest.LogCaptureFixture
) -> None:
    store._writer._db = cast("apsw.Connection", Stubborn(store._writer._db))
    with pytest.raises(ValueError, match="no"):
        await store._writer.do(fails)
    assert "cannot be rolled back" in caplog.text
    await driver.submit()


async def test_while_no_connection_can_be_had_each_write_says_so(
    store: SqliteStore, driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> apsw.Connection:
        raise StoreUnavailable("the disk is away")

    store._writer._db = cast("apsw.Connection", Stubborn(store._writer._db))
    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "_connect", away)
        with pytest.raises(ValueError, match="no"):
            await store._writer.do(fails)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="the disk is away"):
                await driver.insert(driver.submission())
    await driver.submit()


# -- the file is taken away under a running store

MOVED = "was moved or removed while it was open"


async def test_no_write_is_accepted_into_a_file_that_was_removed(path: Path) -> None:
    async with opened(path, ManualClock()) as store:
        driver = StoreDriver(store, ManualClock())
        task = await driver.submit()
        take_away(path)
        for _ in range(2):
            with pytest.raises(StoreUnusable, match=MOVED):
                await driver.insert(driver.submission())
        with pytest.raises(StoreUnusable, match=MOVED):
            await store.views.stats()
        with pytest.raises(StoreUnusable, match=MOVED):
            await store.views.load([task.id])
    assert not is_there(path)


async def test_of_a_whole_group_none_is_accepted_into_a_removed_file(
    store: SqliteStore, driver: StoreDriver
) -> None:
    writes: list[asyncio.Future[Any]] = []

    async def write_meanwhile() -> None:
        async with Hold(store):
            writes.extend(asyncio.ensure_future(driver.insert(driver.submission())) for _ in "abc")
            take_away(store.path)

    with pytest.raises(StoreUnusable, match=MOVED):
        await write_meanwhile()
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnusable] * 3


async def test_a_file_that_was_moved_and_came_back_is_used_on(
    store: SqliteStore, driver: StoreDriver
) -> None:
    elsewhere = store.path.with_name("elsewhere.db")
    await driver.insert(driver.submission(id="a"))
    store.path.rename(elsewhere)
    with pytest.raises(StoreUnusable, match=MOVED):
        await driver.insert(driver.submission(id="refused"))
    elsewhere.rename(store.path)
    await driver.insert(driver.submission(id="b"))
    kept = await store.views.load(["a", "refused", "b"])
    assert [one is not None for one in kept] == [True, False, True]


async def test_a_file_put_in_the_place_of_ours_is_not_taken_for_it(
    store: SqliteStore, driver: StoreDriver
) -> None:
    take_away(store.path)
    async with opened(store.path, ManualClock()) as other:
        await StoreDriver(other, ManualClock()).insert(driver.submission(id="of-the-other"))
        with pytest.raises(StoreUnusable, match=MOVED):
            await driver.insert(driver.submission())
        assert (await other.views.stats()).by_status == {Status.PENDING: 1}


async def test_a_connection_opened_anew_makes_no_empty_file_in_the_place_of_ours(
    store: SqliteStore, driver: StoreDriver
) -> None:
    store._writer._db = cast("apsw.Connection", Stubborn(store._writer._db))
    take_away(store.path)
    with pytest.raises(ValueError, match="no"):
        await store._writer.do(fails)
    with pytest.raises(StoreUnusable, match=MOVED):
        await driver.insert(driver.submission())
    assert not is_there(store.path)


async def test_a_link_to_the_file_is_as_good_as_its_name(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "file.db")
    async with opened(link, ManualClock()) as store:
        await StoreDriver(store, ManualClock()).submit()
        (tmp_path / "file.db").unlink()
        with pytest.raises(StoreUnusable, match=MOVED):
            await store.views.stats()


GONE = "was removed while it was open"


@pytest.mark.parametrize("suffixes", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids="".join)
async def test_no_write_is_accepted_once_the_log_or_its_index_was_removed(
    path: Path, suffixes: list[str]
) -> None:
    async with opened(path, ManualClock()) as store:
        driver = StoreDriver(store, ManualClock())
        await driver.insert(driver.submission(id="kept"))
        for suffix in suffixes:
            take_away_alone(path, suffix)
        for _ in range(2):
            with pytest.raises(StoreUnusable, match=GONE):
                await driver.insert(driver.submission(id="refused"))
        with pytest.raises(StoreUnusable, match=GONE):
            await store.views.stats()
    assert ask(path, "SELECT id FROM states") == [("kept",)]  # an orderly end keeps what was there


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_a_log_that_another_process_has_made_anew_is_not_taken_for_ours(
    store: SqliteStore, driver: StoreDriver, suffix: str
) -> None:
    take_away_alone(store.path, suffix)
    put_empty(store.path, suffix)
    with pytest.raises(StoreUnusable, match=GONE):
        await driver.insert(driver.submission())


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_a_commit_into_a_file_that_went_meanwhile_is_not_answered_as_kept(
    store: SqliteStore, suffix: str
) -> None:
    """After the look before the commit, before the answer."""

    def go() -> bool:
        Path(f"{store.path}{suffix}").unlink()
        return False

    with pytest.raises(StoreUnusable, match=r"the last commit to .* may be lost"):
        await store._writer.do(lambda txn: txn.db.set_commit_hook(go))


async def test_the_log_beside_the_target_of_a_link_is_watched(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "file.db")
    async with opened(link, ManualClock()) as store:
        driver = StoreDriver(store, ManualClock())
        await driver.submit()
        (tmp_path / "file.db-wal").unlink()
        with pytest.raises(StoreUnusable, match=GONE):
            await driver.insert(driver.submission())


# -- the true error


async def test_a_disk_error_at_opening_is_told_as_it_is(
    store: SqliteStore, driver: StoreDriver
) -> None:
    """The index tells of a log that is not there: SQLite ends the transaction by itself."""
    await driver.submit()
    take_away_alone(store.path, "-wal")
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await SqliteStore(store.path, ManualClock()).open()


class NoRoom(Stubborn):
    """A connection whose disk is full at the commit; it forgets that with its next statement."""

    system_errno = 0

    def execute(self, sql: str, *values: Any) -> apsw.Cursor:
        self.system_errno = errno.ENOSPC if sql == SQL["commit"] else 0
        if sql == SQL["commit"]:
            raise apsw.IOError("disk I/O error")
        return self._db.execute(sql, *values)


async def test_a_full_disk_at_the_commit_is_told_as_full(
    store: SqliteStore, driver: StoreDriver
) -> None:
    """To roll back is one more call to SQLite, after which it does not know the reason any more."""
    store._writer._db = cast("apsw.Connection", NoRoom(store._writer._db))
    with pytest.raises(StoreFull):
        await driver.insert(driver.submission())
