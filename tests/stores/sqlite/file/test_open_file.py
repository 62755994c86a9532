"""Which files are opened, and what is said about those that are not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from holdfast.domain.errors import (
    StoreForeign,
    StoreNotWritable,
    StoreTooNew,
    StoreUnavailable,
    StoreUnusable,
)
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.file import connections
from holdfast.stores.sqlite.statements import SQL, read
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import ask, opened

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Everybody may look into it; the folders of `tmp_path` are its owner's alone."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def no_privileges() -> Iterator[None]:
    """Nothing is read-only for root, so root becomes nobody for a while."""
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def write(path: Path, text: str) -> None:
    path.write_text(text)


def text_in(path: Path) -> str:
    return path.read_text()


def make_read_only(path: Path) -> None:
    path.chmod(0o444)


async def refusal(path: Path, kind: type[Exception], **options: object) -> str:
    """What opening the file is refused with; it names the file."""
    with pytest.raises(kind) as refused:
        await SqliteStore(path, ManualClock(), **options).open()  # type: ignore[arg-type]
    assert str(path) in str(refused.value)
    return str(refused.value)


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    write(path, "Dear diary, " * 1000)
    assert "not an SQLite file" in await refusal(path, StoreForeign)
    assert text_in(path) == "Dear diary, " * 1000


async def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    ask(path, "CREATE TABLE songs (name)")
    assert "another program" in await refusal(path, StoreForeign)
    assert ask(path, "SELECT name FROM sqlite_schema") == [("songs",)]


async def test_a_file_of_a_newer_format_is_left_alone(path: Path) -> None:
    async with opened(path, ManualClock()):
        pass
    ask(path, "PRAGMA user_version = 99")
    assert "upgrade Holdfast" in await refusal(path, StoreTooNew)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "no directory" in await refusal(tmp_path / "not" / "there.db", StoreNotWritable)


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "is a directory" in await refusal(tmp_path, StoreNotWritable)


async def test_a_read_only_file_is_named(open_folder: Path) -> None:
    path = open_folder / "holdfast.db"
    async with opened(path, ManualClock()):
        pass
    make_read_only(path)
    with no_privileges():
        assert "may not be written" in await refusal(path, StoreNotWritable)


async def test_a_file_belongs_to_one_namespace(path: Path) -> None:
    async with opened(path, ManualClock(), namespace="staging"):
        pass
    assert "'staging'" in await refusal(path, StoreForeign)
    async with opened(path, ManualClock(), namespace="staging"):
        pass


async def test_an_empty_file_is_taken(path: Path) -> None:
    write(path, "")
    async with opened(path, ManualClock()) as store:
        assert (await store.views.stats()).by_status == {}


async def test_a_file_that_stays_locked_is_unavailable_not_awaited_forever(path: Path) -> None:
    async with opened(path, ManualClock()) as first:
        driver = StoreDriver(first, ManualClock())
        await driver.insert(driver.submission())
    other = apsw.Connection(str(path))
    async with opened(path, ManualClock(), lock_seconds=0.05) as store:
        other.execute("BEGIN IMMEDIATE")
        driver = StoreDriver(store, ManualClock())
        with pytest.raises(StoreUnavailable, match="locked"):
            await driver.insert(driver.submission(id="late"))
        other.execute("ROLLBACK")
        assert len(await driver.insert(driver.submission(id="late"))) == 1
    other.close()


def test_an_sqlite_that_can_corrupt_a_log_is_refused() -> None:
    connections.check_sqlite()
    with pytest.raises(StoreUnusable, match=r"3\.51\.2"):
        connections.check_sqlite(3_051_002)


NEXT = connections.VERSION + 1


def known_upto(monkeypatch: pytest.MonkeyPatch, version: int, **steps: str) -> None:
    """As if this were a release that knows formats up to that one."""
    monkeypatch.setattr(connections, "VERSION", version)
    monkeypatch.setattr(connections, "SQL", {**SQL, **steps})


async def test_a_file_of_a_format_before_is_brought_forward(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.insert(driver.submission(id="old"))
    step = f"PRAGMA user_version = {NEXT}; ALTER TABLE meta ADD COLUMN note TEXT;"
    with monkeypatch.context() as newer:
        known_upto(newer, NEXT, **{f"v{NEXT}": step})
        async with opened(path, clock) as store:
            assert await StoreDriver(store, clock).claim_ids() == ["old"]
        assert ask(path, "PRAGMA user_version") == [(NEXT,)]
        assert ask(path, "SELECT note FROM meta") == [(None,)]
    assert "upgrade" in await refusal(path, StoreTooNew)


async def test_a_step_forward_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, ManualClock()):
        pass
    with monkeypatch.context() as newer:
        broken = f"PRAGMA user_version = {NEXT}; CREATE TABLE half (x); CREATE TABLE half (x);"
        known_upto(newer, NEXT, **{f"v{NEXT}": broken})
        await refusal(path, Exception)
    assert ask(path, "PRAGMA user_version") == [(connections.VERSION,)]
    assert ask(path, "SELECT 1 FROM sqlite_schema WHERE name = 'half'") == []


CHANGES = {
    "DROP TABLE claims": "table claims is missing",
    "DROP VIEW records": "table records is missing",
    "ALTER TABLE meta ADD COLUMN note TEXT": "column meta.note is not part of this format",
    "ALTER TABLE sequences DROP COLUMN due": "column sequences.due is missing",
    "ALTER TABLE leases RENAME COLUMN owner TO holder": "column leases.owner is missing",
    "DROP INDEX states_id": "index states_id is missing",
    "DROP INDEX states_due; CREATE INDEX states_due ON states (since)": "states_due is different",
    "CREATE UNIQUE INDEX mine ON states (type)": "unique index mine on table states is not",
    "CREATE TRIGGER mine AFTER DELETE ON tasks BEGIN SELECT 1; END": "trigger mine on table tasks",
    "PRAGMA user_version = 2": "claims format 2, but its tables are not those of that format",
    "PRAGMA user_version = 0": "table audits exists already",
    "DROP TABLE refusals; CREATE TABLE refusals (says TEXT, count TEXT)": "says is different",
}


@pytest.mark.parametrize(("change", "told"), CHANGES.items())
async def test_a_file_whose_tables_do_not_fit_its_format_is_refused(
    path: Path, change: str, told: str
) -> None:
    async with opened(path, ManualClock()):
        pass
    ask(path, change)
    said = await refusal(path, StoreUnusable)
    assert told in said
    assert "restore a backup" in said


async def test_tables_of_others_do_no_harm(path: Path) -> None:
    """A sink may write into the same file, and somebody may have asked SQLite for statistics."""
    async with opened(path, ManualClock()) as store:
        await StoreDriver(store, ManualClock()).submit()
    ask(path, "CREATE TABLE mine (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    ask(path, "CREATE INDEX mine_too ON states (fence)")
    ask(path, "ANALYZE")
    async with opened(path, ManualClock()) as store:
        await StoreDriver(store, ManualClock()).take()


def test_each_statement_has_its_name() -> None:
    found = read("prose\n-- name: a\nSELECT 1;\n\n-- name: b\n-- why\nSELECT 2;\n")
    assert found == {"a": "SELECT 1;", "b": "-- why\nSELECT 2;"}
