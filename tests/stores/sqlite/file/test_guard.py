"""No second SQLite, and no plain `open`, gets at the file of a store that is open."""

import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Holdfast, Retry
from holdfast.errors import StoreFileInUse, TaskFailed
from holdfast.runtime.context import Context
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.file.guard import GUARD
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import PATIENCE_SECONDS, ask, opened

Way = Callable[[Path], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(path, ManualClock()) as store:
        yield store


def put(path: Path) -> None:
    path.write_text("no database at all, only text")


def connect(name: object, **options: bool) -> None:
    sqlite3.connect(name, **options).close()  # type: ignore[call-overload]


def by_symlink(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    connect(link)


def by_hard_link(path: Path) -> None:
    other = path.with_name("other-name")
    os.link(path, other)
    connect(str(other))


def by_relative_name(path: Path) -> None:
    connect(os.path.relpath(path))


def by_plain_open(path: Path) -> None:
    with open(path, "rb"):
        pass


def by_opener(path: Path) -> None:
    with open("x", opener=lambda _, flags: os.open(path, flags)):
        pass


def by_os_open(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


def in_child(do: Callable[[], None]) -> int:
    """The exit code of a forked child that did it: 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        try:
            do()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


WAYS: dict[str, Way] = {
    "text": lambda path: connect(str(path)),
    "path": connect,
    "bytes": lambda path: connect(os.fsencode(path)),
    "uri": lambda path: connect(f"file:{path}?mode=ro", uri=True),
    "uri with slashes": lambda path: connect(f"file://{path}#part", uri=True),
    "uri with a host": lambda path: connect(f"file://localhost{path}", uri=True),
    "uri, escaped": lambda path: connect(f"file:{str(path).replace('d', '%64')}", uri=True),
    "uri, immutable": lambda path: connect(f"file:{path}?immutable=1", uri=True),
    "symbolic link": by_symlink,
    "hard link": by_hard_link,
    "relative": by_relative_name,
    "open": by_plain_open,
    "os.open": by_os_open,
    "read_bytes": Path.read_bytes,
    "copy": lambda path: shutil.copy(path, path.with_name("copy")),
    "opener": by_opener,
    "log": lambda path: by_plain_open(path.with_name(f"{path.name}-wal")),
    "index": lambda path: by_plain_open(path.with_name(f"{path.name}-shm")),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_every_way_past_the_store_is_refused(store: SqliteStore, way: Way) -> None:
    with pytest.raises(StoreFileInUse, match=r"app\.backup\(\) or `holdfast backup`"):
        way(store.path)
    await StoreDriver(store, ManualClock()).submit()


@pytest.mark.parametrize("way", [connect, by_plain_open])
async def test_a_closed_store_is_open_to_all(path: Path, way: Way) -> None:
    async with opened(path, ManualClock()), opened(path, ManualClock()):
        pass
    way(path)


@pytest.mark.parametrize("way", [connect, by_plain_open])
async def test_a_file_stays_guarded_until_its_last_store_is_closed(path: Path, way: Way) -> None:
    async with opened(path, ManualClock()):
        async with opened(path, ManualClock()):
            pass
        with pytest.raises(StoreFileInUse):
            way(path)


async def test_each_of_two_stores_is_guarded(store: SqliteStore, tmp_path: Path) -> None:
    async with opened(tmp_path / "second.db", ManualClock()) as second:
        for one in (store, second):
            with pytest.raises(StoreFileInUse, match=one.path.name):
                connect(one.path)
    connect(second.path)


async def test_whatever_is_no_file_of_a_store_passes(store: SqliteStore, tmp_path: Path) -> None:
    put(tmp_path / "holdfast.db.txt")
    connect(tmp_path / "of-mine.db")
    connect(":memory:")
    connect(f"file:{tmp_path}/new.db", uri=True)
    with pytest.raises(FileNotFoundError):
        by_plain_open(tmp_path / "missing")
    with pytest.raises(ValueError, match="null"):
        by_plain_open(Path("a\0b"))
    for odd in (None, sys.stdout.fileno(), object(), 3.5, "", b"\xff", "x" * 100_000):
        sys.audit("open", odd, "r", 0)
        sys.audit("sqlite3.connect", odd)


async def test_a_failed_opening_guards_nothing(path: Path, tmp_path: Path) -> None:
    put(path)
    before = dict(GUARD.guarded)
    with pytest.raises(Exception, match="not an SQLite file"):
        await SqliteStore(path, ManualClock()).open()
    assert GUARD.guarded == before
    by_plain_open(path)


async def test_a_forked_child_may_open_the_file_as_any_other_process(store: SqliteStore) -> None:
    assert in_child(lambda: connect(store.path)) == 0
    with pytest.raises(StoreFileInUse):
        connect(store.path)


async def test_a_thread_is_refused_as_well(store: SqliteStore) -> None:
    met: list[BaseException] = []

    def look() -> None:
        try:
            connect(store.path)
        except StoreFileInUse as error:
            met.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert [type(error) for error in met] == [StoreFileInUse]


async def test_a_task_that_looks_into_the_file_fails_and_harms_nothing(path: Path) -> None:
    app = Holdfast(f"sqlite:///{path}")

    @app.task("peek", retry=Retry(max=1))
    async def peek(ctx: Context, n: int) -> int:
        with closing(sqlite3.connect(path)) as db:
            return int(db.execute("SELECT count(*) FROM tasks").fetchone()[0])

    @app.task("work")
    async def work(ctx: Context, n: int) -> int:
        return n

    async with app.running():
        with pytest.raises(TaskFailed, match="belongs to the store"):
            await (await peek.submit(1)).result(PATIENCE_SECONDS)
        done = [await (await work.submit(n)).result(PATIENCE_SECONDS) for n in range(5)]
    assert done == [*range(5)]
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
