"""Tables to write to in SQLite and PostgreSQL, and a way to them past the sink."""

from abc import abstractmethod
from pathlib import Path
from typing import Any

import psycopg

from holdfast.sinks.sql import Postgres, Sqlite
from holdfast.sinks.tables import Tables
from tests.support.sinks.contract import PATIENT_SECONDS, World
from tests.support.sqlite.sqlite_files import ask

DDL = (
    "CREATE TABLE summaries (idempotency_key TEXT NOT NULL UNIQUE, number INTEGER, text TEXT)",
    "CREATE TABLE other (idempotency_key TEXT NOT NULL, number INTEGER)",
    "CREATE TABLE strict (idempotency_key TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE)",
)
SELECT = "SELECT idempotency_key, number, text FROM summaries"


class SqlWorld(World):
    """``rows`` asks past the sink, on a connection of its own."""

    sink: Tables

    @abstractmethod
    async def rows(self, query: str) -> list[Any]: ...

    async def kept(self) -> dict[str, Any]:
        rows = await self.rows(SELECT)
        found = {key: number for key, number, _ in rows}
        assert len(found) == len(rows)
        return found

    async def text_of(self, key: str) -> str:
        return next(str(text) for one, _, text in await self.rows(SELECT) if one == key)


class SqliteWorld(SqlWorld):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.sink = Sqlite(path, timeout_seconds=PATIENT_SECONDS)

    async def rows(self, query: str) -> list[Any]:
        return ask(self.path, query)


class PostgresWorld(SqlWorld):
    def __init__(self, url: str) -> None:
        self.url = url
        self.sink = Postgres(url, timeout_seconds=PATIENT_SECONDS)

    async def rows(self, query: str) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode())
            return await cursor.fetchall() if cursor.description else []


class made:
    """The world's tables are there, its sink is closed at the end."""

    def __init__(self, world: World) -> None:
        assert isinstance(world, SqlWorld)
        self.world = world

    async def __aenter__(self) -> None:
        for statement in DDL:
            await self.world.rows(statement)
        await self.world.sink.create_fences()

    async def __aexit__(self, *exc: object) -> None:
        await self.world.sink.close()
