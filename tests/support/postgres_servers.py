"""Fixtures with real PostgreSQL servers: one for all tests of a process, others to kill."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from verify.servers.postgres import PostgresServer


class StartPostgres(Protocol):
    def __call__(self) -> PostgresServer:
        """A server of one's own, to be killed, until the test ends."""


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One server for all tests of this process, never killed."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the URL of a database that is empty now; the next test empties it again."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server.url


@pytest.fixture
def start_postgres(tmp_path: Path) -> Iterator[StartPostgres]:
    """``server = start_postgres()``"""
    with ExitStack() as started:

        def start() -> PostgresServer:
            return started.enter_context(PostgresServer(tmp_path / "postgres"))

        yield start
