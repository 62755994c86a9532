"""What SQLite and PostgreSQL do alike: the table is the user's, its names and its errors too."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast.domain.errors import StaleFence
from holdfast.errors import InvalidInput
from holdfast.sinks import sql as public
from holdfast.sinks.fences import FENCES
from holdfast.sinks.sql import Sqlite
from tests.support.sinks.contract import KEY, TABLE, SinkContract
from tests.support.sinks.documented import documented
from tests.support.sinks.sql_worlds import SqlWorld
from tests.support.sqlite.sqlite_files import ask


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest) -> SqlWorld:
    """Also for the tests below that are for both."""
    found: SqlWorld = request.getfixturevalue(f"{request.param}_world")
    return found


class TestSql(SinkContract):
    pass


# -- both


@pytest.mark.parametrize(
    "name",
    [
        "",
        "no such",
        'a"b',
        'a" (x) VALUES (1); --',
        "a;b",
        "1st",
        "a.b.c",
        ".a",
        "a-b",
        "té",
        "n" * 64,
        None,
        7,
    ],
)
async def test_a_hostile_name_is_refused_before_anything_is_sent(
    world: SqlWorld, name: Any
) -> None:
    with pytest.raises(InvalidInput):
        await world.sink.write_once(name, {"number": 1}, key=KEY)
    with pytest.raises(InvalidInput):
        await world.sink.write_once(TABLE, {name: 1}, key=KEY)
    with pytest.raises(InvalidInput):
        await world.sink.forget(name, key=KEY)
    assert await world.kept() == {}


async def test_a_word_of_the_language_can_be_a_name(world: SqlWorld) -> None:
    await world.rows('CREATE TABLE "select" (idempotency_key TEXT UNIQUE, "from" INTEGER)')
    assert await world.sink.write_once("select", {"from": 1}, key=KEY)
    assert not await world.sink.write_once("select", {"from": 1}, key=KEY)
    await world.sink.forget("select", key=KEY)


@pytest.mark.parametrize(
    ("table", "row"),
    [("nowhere", {"number": 1}), ("nowhere.at_all", {"number": 1}), (TABLE, {"colour": 1})],
)
async def test_a_table_or_column_that_is_not_there_is_named(
    world: SqlWorld, table: str, row: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match=r"(nowhere|colour).*docs/sinks\.md"):
        await world.sink.write_once(table, row, key=KEY)
    assert await world.write(), "the connection is as good as before"


async def test_a_table_whose_keys_are_not_unique_is_refused(world: SqlWorld) -> None:
    with pytest.raises(InvalidInput, match="idempotency_key TEXT NOT NULL UNIQUE"):
        await world.sink.write_once("other", {"number": 1}, key=KEY)
    assert await world.rows("SELECT * FROM other") == []


async def test_without_the_table_of_fences_a_fence_says_what_is_missing(world: SqlWorld) -> None:
    await world.rows("DROP TABLE holdfast_fences")
    with pytest.raises(InvalidInput, match=r"holdfast_fences.*create_fences\(\)"):
        await world.write(fence=1)
    assert await world.kept() == {}
    await asyncio.gather(*(world.sink.create_fences() for _ in range(5)))
    assert await world.write(fence=1)


@pytest.mark.parametrize("name", ["idempotency_key", "Idempotency_Key"])
async def test_a_row_with_a_key_of_its_own_is_refused(world: SqlWorld, name: str) -> None:
    with pytest.raises(InvalidInput, match="is to be the key"):
        await world.sink.write_once(TABLE, {"number": 1, name: "mine"}, key=KEY)


async def test_a_column_named_twice_is_refused(world: SqlWorld) -> None:
    with pytest.raises(InvalidInput, match="twice"):
        await world.sink.write_once(TABLE, {"number": 1, "Number": 2}, key=KEY)


async def test_a_row_of_nothing_but_its_key_is_written(world: SqlWorld) -> None:
    assert await world.sink.write_once(TABLE, {}, key=KEY)
    assert await world.kept() == {KEY: None}


async def test_a_refused_row_does_not_pass_for_one_that_was_there(world: SqlWorld) -> None:
    broken = (apsw.ConstraintError, psycopg.IntegrityError)
    assert await world.sink.write_once("strict", {"number": 1}, key=KEY)
    with pytest.raises(broken):
        await world.sink.write_once("strict", {"number": 1}, key="another", fence=5, scope="t-1")
    with pytest.raises(broken):
        await world.sink.write_once("strict", {"number": None}, key="another")
    assert await world.sink.write_once("strict", {"number": 2}, key="another", fence=4, scope="t-1")


async def test_a_sink_that_was_closed_opens_again(world: SqlWorld) -> None:
    async with world.sink as same:
        assert same is world.sink
        await world.write(1)
    await world.sink.close()
    assert not await world.write(2)


async def test_a_fence_is_undone_with_the_write_it_stood_before(world: SqlWorld) -> None:
    with pytest.raises(InvalidInput):
        await world.sink.write_once("nowhere", {"number": 1}, key=KEY, fence=9, scope="t-1")
    assert await world.write(fence=8, scope="t-1")


@pytest.mark.parametrize("name", ["HOLDFAST_fences", "main.holdfast_fences"])
async def test_the_fences_are_refused_however_they_are_written(world: SqlWorld, name: str) -> None:
    with pytest.raises(InvalidInput, match="holds the sink's fences"):
        await world.sink.write_once(name, {"fence": 1}, key=KEY)


# -- docs/sinks.md


async def test_the_documented_tables_are_all_that_is_needed(world: SqlWorld) -> None:
    for table in (TABLE, FENCES):
        await world.rows(f"DROP TABLE {table}")
    for words in (f"CREATE TABLE {TABLE}", FENCES):
        await world.rows(documented(words, language="sql"))
    assert await world.sink.write_once(TABLE, {"text": "t"}, key=KEY, fence=2)
    with pytest.raises(StaleFence):
        await world.sink.write_once(TABLE, {"text": "t"}, key="01TASK/0/b", fence=1)


def test_the_documented_program_runs_again_and_again(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "reports.db"))
    connection.execute(documented("CREATE TABLE summaries", language="sql"))
    connection.close()
    (tmp_path / "reporting.py").write_text(documented("async def main()"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    for count in (1, 2):
        done = subprocess.run(
            [sys.executable, "reporting.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "written: True\n"), done.stderr
        assert ask(tmp_path / "reports.db", "SELECT count(*) FROM summaries") == [(count,)]


# -- without the driver


def test_sqlite_needs_no_driver_of_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "holdfast.sinks.postgres")
    assert public.Sqlite is Sqlite
    with pytest.raises(ImportError, match=r"holdfast-engine\[postgres\]"):
        _ = public.Postgres


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="Oracle"):
        _ = public.Oracle
