"""A copy of the store while it is at work."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from holdfast import Holdfast
from holdfast.domain.task.state import Status
from holdfast.errors import BackupRefused, StoreFull, StoreUnusable
from holdfast.runtime.context import Context
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.file import backup
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import PATIENCE_SECONDS, ask, end, opened, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies" / "copy.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(path, ManualClock()) as store:
        yield store


def put(path: Path) -> None:
    path.write_text("precious")


def text_in(path: Path) -> str:
    return path.read_text()


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


async def test_the_copy_is_a_store_with_all_that_was_accepted(
    store: SqliteStore, target: Path
) -> None:
    await StoreDriver(store, ManualClock()).insert(
        StoreDriver(store, ManualClock()).submission(id="kept")
    )
    copy = await store.backup(target)
    assert copy.path == str(target)
    found = os.stat(target)
    assert (copy.size_bytes, stat.S_IMODE(found.st_mode)) == (found.st_size, 0o600)
    assert names(target.parent) == ["copy.db"]  # one file, and whole
    async with opened(target, ManualClock()) as copied:
        assert await StoreDriver(copied, ManualClock()).claim_ids() == ["kept"]
        assert await copied.admin.doctor(fix=False, limit=10) == []


async def test_a_copy_made_under_load_is_of_one_moment(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits are made between its pages, by another process and by this one."""
    driver, loop = StoreDriver(store, ManualClock()), asyncio.get_running_loop()
    for _ in range(20):
        await driver.insert(*(driver.submission(payload="x" * 2_000) for _ in range(20)))
    looks: list[int] = []

    async def write() -> None:
        await driver.insert(*(driver.submission(tenant=f"t-{n}") for n in range(7)))
        await driver.complete(await driver.take(limit=1))

    def write_meanwhile(_: backup.Copying) -> None:
        if not looks:
            end(start("submit", store.path, "other", 20))
        looks.append(1)
        asyncio.run_coroutine_threadsafe(write(), loop).result(PATIENCE_SECONDS)

    monkeypatch.setattr(backup, "PAGES", 20)
    monkeypatch.setattr(backup.Copying, "_check_wanted", write_meanwhile)
    await store.backup(target)
    assert len(looks) > 5
    async with opened(target, ManualClock()) as copied:
        assert (await copied.views.stats()).by_status == {Status.PENDING: 400}
        assert await copied.admin.doctor(fix=False, limit=10) == []
    assert ask(store.path, "PRAGMA integrity_check") == [("ok",)]
    assert await store.admin.doctor(fix=False, limit=10) == []


async def test_a_copy_replaces_nothing(store: SqliteStore, target: Path) -> None:
    put(target)
    with pytest.raises(BackupRefused, match="exists already"):
        await store.backup(target)
    assert text_in(target) == "precious"
    with pytest.raises(BackupRefused, match="exists already"):
        await store.backup(store.path)
    beside = target.with_name("other.db")
    put(beside.with_name("other.db-wal"))
    with pytest.raises(BackupRefused, match=r"other\.db-wal exists already"):
        await store.backup(beside)
    await StoreDriver(store, ManualClock()).submit()


async def test_a_file_that_appears_meanwhile_is_not_replaced(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = backup._sync

    def sync_late(path: Path) -> None:
        target.write_text("precious")
        sync(path)

    monkeypatch.setattr(backup, "_sync", sync_late)
    with pytest.raises(BackupRefused, match="exists already"):
        await store.backup(target)
    assert text_in(target) == "precious"
    assert names(target.parent) == ["copy.db"]


async def test_where_there_are_no_hard_links_the_copy_is_renamed(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    await store.backup(target)
    assert names(target.parent) == ["copy.db"]


async def test_a_missing_folder_is_named(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="no directory"):
        await store.backup(tmp_path / "nowhere" / "copy.db")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800"])
async def test_a_name_that_no_file_can_have_is_refused(
    store: SqliteStore, tmp_path: Path, name: str
) -> None:
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(BackupRefused, match="cannot be written"):
        await store.backup(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before


async def test_a_name_may_be_as_long_as_the_file_system_lets_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    name = "x" * 245  # with `-journal` behind it, still a name
    assert (await store.backup(tmp_path / name)).path == str(tmp_path / name)


async def test_no_room_is_told_and_leaves_nothing(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(path: Path) -> apsw.Connection:
        db = new(path)
        db.execute("PRAGMA max_page_count = 3").fetchall()
        return db

    new = backup._new
    monkeypatch.setattr(backup, "_new", small)
    with pytest.raises(StoreFull):
        await store.backup(target)
    assert names(target.parent) == []


async def test_a_damaged_copy_gets_no_name(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(self: backup.Copying) -> None:
        whole(self)
        with open(self._part, "r+b") as part:
            part.seek(8192)
            part.write(b"\xff" * 4096)

    whole = backup.Copying._copy
    monkeypatch.setattr(backup.Copying, "_copy", copy)
    with pytest.raises(StoreUnusable):
        await store.backup(target)
    assert names(target.parent) == []


async def test_a_backup_given_up_leaves_nothing(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait(self: backup.Copying) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert self._unwanted.wait(PATIENCE_SECONDS)
        check(self)

    check = backup.Copying._check_wanted
    monkeypatch.setattr(backup.Copying, "_check_wanted", wait)
    task = asyncio.ensure_future(store.backup(target))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names(target.parent) == []


async def test_the_app_makes_one_and_writes_it_down(path: Path, target: Path) -> None:
    app = Holdfast(f"sqlite:///{path}")

    @app.task("work")
    async def work(ctx: Context, n: int) -> int:
        await app.backup(target.with_name(f"{n}.db"))  # from inside a task, as well
        return n

    async with app.running():
        assert await (await work.submit(7)).result(PATIENCE_SECONDS) == 7
        entries = await app.store.admin.audits(limit=5)
    assert [(one.command, one.by.actor) for one in entries] == [("backup", "app")]
    assert "7.db" in entries[0].after
    async with opened(target.with_name("7.db")) as copied:
        assert (await copied.views.stats()).by_status == {Status.RUNNING: 1}


def test_code_without_a_loop_makes_one(path: Path, target: Path) -> None:
    app = Holdfast(f"sqlite:///{path}")
    with app.blocking:
        assert app.blocking.backup(target).path == str(target)


async def test_a_store_in_memory_says_that_it_has_none(target: Path) -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(BackupRefused, match="kept nowhere"):
            await app.backup(target)
