"""Writes into SQLite files that others lock, that are full, that are none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio

from holdfast import InvalidInput
from holdfast.domain.errors import SinkUnavailable
from holdfast.sinks.sql import Sqlite
from tests.sinks.contract import KEY, TABLE, Outage, OutageContract
from tests.sinks.sql_worlds import SqliteWorld, made


class Locked(Outage):
    """Another process writes to the file and does not come to an end."""

    def __init__(self, path: Path) -> None:
        self.world = SqliteWorld(path, timeout_seconds=0.2)
        self.other = apsw.Connection(str(path))

    def begin(self) -> None:
        self.other.set_busy_timeout(5_000)
        self.other.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
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
    connection = sink._opened()
    connection.pragma("max_page_count", connection.pragma("page_count"))
    with pytest.raises(SinkUnavailable, match="FullError"):
        await sink.write_once(TABLE, {"number": 2, "text": "x" * 100_000}, key="big", fence=3)
    assert await sink.write_once(TABLE, {"number": 2, "text": "x" * 100_000}, key="big", fence=2)
    assert await sqlite_world.kept() == {KEY: 1, "big": 2}


async def test_a_folder_that_is_not_there_is_an_outage_until_it_is(tmp_path: Path) -> None:
    sink = Sqlite(tmp_path / "mount" / "reports.db")
    with pytest.raises(SinkUnavailable, match="mount"):
        await sink.open()
    (tmp_path / "mount").mkdir()
    async with sink:
        await sink.create_fences()


@pytest.mark.parametrize("value", [{"a": 1}, [1], object(), 2**70])
async def test_a_value_that_sqlite_does_not_know_is_refused(
    sqlite_world: SqliteWorld, value: Any
) -> None:
    with pytest.raises(InvalidInput, match="value"):
        await sqlite_world.sink.write_once(TABLE, {"number": value}, key=KEY)
    assert await sqlite_world.kept() == {}


async def test_a_file_that_is_no_database_is_no_outage(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader, " * 100)
    sink = Sqlite(tmp_path / "letter.txt")
    with pytest.raises(apsw.NotADBError):
        await sink.write_once(TABLE, {"number": 1}, key=KEY)
    await sink.close()


async def test_two_processes_worth_of_sinks_write_a_key_once(tmp_path: Path) -> None:
    worlds = [SqliteWorld(tmp_path / "reports.db") for _ in range(4)]
    async with made(worlds[0]):
        writes = (world.write(n) for n, world in enumerate(worlds * 5))
        assert (await asyncio.gather(*writes)).count(True) == 1
        assert len(await worlds[0].kept()) == 1
        for world in worlds:
            await world.sink.close()
