"""Writes into SQLite files that others lock, that are full, that are none."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
import pytest_asyncio

from holdfast.domain.errors import SinkUnavailable
from holdfast.errors import InvalidInput
from holdfast.sinks.sql import Sqlite
from tests.stores.sqlite.file.test_open_file import no_privileges
from tests.support.sinks.contract import (
    BOUND_SECONDS,
    HASTE_SECONDS,
    KEY,
    PATIENT_SECONDS,
    TABLE,
    Outage,
    OutageContract,
    hasty,
)
from tests.support.sinks.sql_worlds import DDL, SqliteWorld, made
from verify.servers import until


class Locked(Outage):
    """Another process writes to the file and does not come to an end."""

    world: SqliteWorld

    def __init__(self, path: Path) -> None:
        self.world = SqliteWorld(path)
        self.other = apsw.Connection(str(path))

    def begin(self) -> None:
        self.other.set_busy_timeout(60_000)
        self.other.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        let_go(self.world)
        self.other.execute("ROLLBACK")


class TestSqliteLocked(OutageContract):
    @pytest_asyncio.fixture
    async def outage(self, tmp_path: Path) -> AsyncIterator[Locked]:
        outage = Locked(tmp_path / "reports.db")
        async with made(outage.world):
            yield outage
        outage.other.close()


async def test_a_full_file_is_an_outage_until_there_is_room(sqlite_world: SqliteWorld) -> None:
    await sqlite_world.write(1)
    sink = sqlite_world.sink
    assert isinstance(sink, Sqlite)
    connection = sink._connect()
    connection.pragma("max_page_count", connection.pragma("page_count"))
    with pytest.raises(SinkUnavailable, match="FullError"):
        await sink.write_once(TABLE, {"number": 2, "text": "x" * 100_000}, key="big", fence=3)
    assert await sink.write_once(TABLE, {"number": 2, "text": "x" * 100_000}, key="big", fence=2)
    assert await sqlite_world.kept() == {KEY: 1, "big": 2}


async def test_a_folder_that_is_not_there_is_refused_until_it_is(tmp_path: Path) -> None:
    sink = Sqlite(tmp_path / "mount" / "reports.db", timeout_seconds=PATIENT_SECONDS)
    with pytest.raises(InvalidInput, match="mount"):
        await sink.open()
    (tmp_path / "mount").mkdir()
    async with sink:
        await sink.create_fences()


@pytest.mark.parametrize("value", [{"a": 1}, [1], object(), 2**70])
async def test_a_value_that_sqlite_does_not_know_is_refused(
    sqlite_world: SqliteWorld, value: Any
) -> None:
    with pytest.raises(InvalidInput, match="'number'"):
        await sqlite_world.sink.write_once(TABLE, {"number": value}, key=KEY)
    assert await sqlite_world.kept() == {}


async def test_a_file_that_is_no_database_is_no_outage(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader, " * 100)
    sink = Sqlite(tmp_path / "letter.txt", timeout_seconds=PATIENT_SECONDS)
    with pytest.raises(InvalidInput, match=r"letter\.txt") as refused:
        await sink.write_once(TABLE, {"number": 1}, key=KEY)
    assert isinstance(refused.value.__cause__, apsw.NotADBError)
    await sink.close()


async def test_two_processes_worth_of_sinks_write_a_key_once(tmp_path: Path) -> None:
    worlds = [SqliteWorld(tmp_path / "reports.db") for _ in range(4)]
    async with made(worlds[0]):
        writes = (world.write(n) for n, world in enumerate(worlds * 5))
        assert (await asyncio.gather(*writes)).count(True) == 1
        assert len(await worlds[0].kept()) == 1
        for world in worlds:
            await world.sink.close()


@pytest.mark.parametrize("column", ["INTEGER PRIMARY KEY", "INTEGER"])
async def test_a_value_that_does_not_fit_a_strict_column_is_refused(
    sqlite_world: SqliteWorld, column: str
) -> None:
    await sqlite_world.rows(f"CREATE TABLE s (n {column}, idempotency_key TEXT UNIQUE) STRICT")
    with pytest.raises(InvalidInput, match=r"s\.n|mismatch"):
        await sqlite_world.sink.write_once("s", {"n": "x"}, key=KEY)


@pytest.fixture
def everybodys_folder() -> Iterator[Path]:
    """Those of `tmp_path` are their owner's alone."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


async def test_a_file_that_was_read_only_is_written_once_it_is_mended(
    everybodys_folder: Path,
) -> None:
    world = SqliteWorld(everybodys_folder / "reports.db")
    with no_privileges():
        async with made(world):
            await world.sink.close()
            set_mode(everybodys_folder, 0o444)
            with pytest.raises(InvalidInput, match="ReadOnlyError"):
                await world.write(1)
            set_mode(everybodys_folder, 0o644)
            assert await world.write(2)
            assert await world.kept() == {KEY: 2}


# -- a file that is replaced


async def test_what_is_written_after_a_backup_was_restored_is_in_it(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "reports.db")
    async with made(world):
        await backed_up(world)
        assert await world.write(1)
        restore(world)
        assert await world.write(2)
        assert await world.kept() == {KEY: 2}


async def test_a_file_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "reports.db")
    async with made(world):
        assert await world.write(1)
        for _ in range(2):  # the second one was created by the sink
            remove(world)
            with pytest.raises(InvalidInput, match="no such table"):
                await world.write(2)
        remove(world)
        await world.sink.create_fences()
        for statement in DDL:
            await world.rows(statement)
        assert await world.write(3, fence=1)
        assert await world.kept() == {KEY: 3}


async def test_a_write_is_not_acknowledged_if_its_file_was_replaced_while_it_waited(
    tmp_path: Path,
) -> None:
    outage = Locked(tmp_path / "reports.db")
    world = outage.world
    async with made(world):
        await backed_up(world)
        outage.begin()
        waiting = asyncio.create_task(until_it_waits(world))
        write = asyncio.create_task(world.write(1))
        async with asyncio.timeout(BOUND_SECONDS):
            await waiting
            restore(world)
            outage.other.execute("ROLLBACK")
            with pytest.raises(SinkUnavailable, match="moved or replaced"):
                await write
        assert await world.write(2)
        assert await world.kept() == {KEY: 2}
    outage.other.close()


async def test_a_change_of_folder_is_no_change_of_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SqliteWorld(tmp_path / "reports.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    world.sink = Sqlite("reports.db", timeout_seconds=PATIENT_SECONDS)
    async with made(world):
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await world.write(1)
        await world.sink.close()
        assert not await world.write(2)
    assert not names_in(tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["", ":memory:"])
async def test_a_database_without_a_file_is_never_taken_for_a_replaced_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Sqlite(name, timeout_seconds=PATIENT_SECONDS) as sink:
        await sink._in_thread(lambda connection: connection.execute(DDL[0]).fetchall())
        assert await sink.write_once(TABLE, {"number": 1}, key=KEY)
        assert not await sink.write_once(TABLE, {"number": 2}, key=KEY)
    assert not names_in(tmp_path)


# -- one thread, one deadline


async def test_many_callers_of_a_locked_file_end_in_time_and_hold_nobody_up(tmp_path: Path) -> None:
    outage = Locked(tmp_path / "reports.db")
    async with made(outage.world):
        outage.begin()
        writes = [asyncio.create_task(outage.world.write(key=f"k{n}")) for n in range(200)]
        with hasty(outage.world.sink):
            await asyncio.sleep(0)
            async with asyncio.timeout(BOUND_SECONDS):
                await asyncio.to_thread(lambda: None)
                told = await asyncio.gather(*writes, return_exceptions=True)
        outage.end()
        assert {type(one) for one in told} == {SinkUnavailable}
        assert await outage.world.kept() == {}
        assert await outage.world.write()
    outage.other.close()


async def test_a_cancelled_write_leaves_nothing_open(tmp_path: Path) -> None:
    outage = Locked(tmp_path / "reports.db")
    world = SqliteWorld(tmp_path / "reports.db")
    async with made(world):
        outage.begin()
        waiting = asyncio.create_task(until_it_waits(world))
        running, queued = (asyncio.create_task(world.write(key=key)) for key in ("a", "b"))
        async with asyncio.timeout(BOUND_SECONDS):
            await waiting
            for write in (running, queued):
                write.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await write
            let_go(world)
            outage.end()
            assert await world.write(3)
        assert await world.kept() == {KEY: 3}
        outage.other.set_busy_timeout(0)
        outage.other.execute("BEGIN EXCLUSIVE")
    outage.other.close()


async def test_a_disk_that_hangs_holds_no_call_past_its_time(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "reports.db")
    back = threading.Event()
    async with made(world):
        with hasty(world.sink):
            async with asyncio.timeout(BOUND_SECONDS):
                with pytest.raises(SinkUnavailable):
                    await sink_of(world)._in_thread(lambda _: back.wait())
                for _ in range(3):
                    with pytest.raises(SinkUnavailable, match=f"within {HASTE_SECONDS} s"):
                        await world.write(1)
                await world.sink.close()
        back.set()
        assert await world.write(2)
        assert await world.kept() == {KEY: 2}


def test_a_sink_serves_one_event_loop_after_the_other(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "reports.db")

    async def write(*keys: str) -> list[bool]:
        return await asyncio.gather(*(world.write(key=key) for key in keys))

    async def begin() -> None:
        async with made(world):
            await write("a", "b", "c")

    asyncio.run(begin())
    assert asyncio.run(write("a", "d", "e")) == [False, True, True]
    assert asyncio.run(write("e", "f")) == [False, True]
    asyncio.run(world.sink.close())


async def test_a_thread_that_cannot_be_had_is_an_outage_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    world = SqliteWorld(tmp_path / "reports.db")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(SinkUnavailable, match="cannot start a thread"):
            await world.write(1)
    async with made(world):
        assert await world.write(2)


HANGING = """
import asyncio, threading
from holdfast.domain.errors import SinkUnavailable
from holdfast.sinks.sql import Sqlite
from verify.servers import until

async def main():
    sink = Sqlite("reports.db", timeout_seconds=0.1)
    try:
        await sink._in_thread(lambda _: threading.Event().wait())
    except SinkUnavailable:
        print("unavailable")

asyncio.run(main())
"""


def test_a_process_does_not_wait_for_a_disk_that_hangs_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGING]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (0, "unavailable\n"), done.stderr


def set_mode(folder: Path, mode: int) -> None:
    """SQLite gives the -wal and the -shm the mode of the file that they belong to."""
    for path in folder.iterdir():
        path.chmod(mode)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def backed_up(world: SqliteWorld) -> None:
    """All that is in it by now."""
    await world.rows(f"VACUUM INTO '{backup_of(world)}'")


def backup_of(world: SqliteWorld) -> Path:
    return world.path.with_name("backup.db")


def restore(world: SqliteWorld) -> None:
    remove(world)
    backup_of(world).rename(world.path)


def remove(world: SqliteWorld) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{world.path}{suffix}").unlink(missing_ok=True)


def let_go(world: SqliteWorld) -> None:
    """Nobody waits for the lock any more: a call that was given up while its thread tried it once
    more would be written after all if the lock were free by then."""
    sink = sink_of(world)
    until(lambda: not sink._at_work, "its thread has nothing to do")


def sink_of(world: SqliteWorld) -> Sqlite:
    assert isinstance(world.sink, Sqlite)
    return world.sink


async def until_it_waits(world: SqliteWorld) -> None:
    """For another writer of the file."""
    sink, waits = sink_of(world), threading.Event()

    def wait(count: int) -> bool:
        waits.set()
        return sink._wait(count)

    sink._connect().set_busy_handler(wait)
    assert await asyncio.to_thread(waits.wait, BOUND_SECONDS)
