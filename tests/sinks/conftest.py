"""The worlds of both SQL databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.sinks.sql_worlds import PostgresWorld, SqliteWorld, made


@pytest_asyncio.fixture
async def sqlite_world(tmp_path: Path) -> AsyncIterator[SqliteWorld]:
    world = SqliteWorld(tmp_path / "reports.db")
    async with made(world):
        yield world


@pytest_asyncio.fixture
async def postgres_world(postgres_url: str) -> AsyncIterator[PostgresWorld]:
    world = PostgresWorld(postgres_url)
    async with made(world):
        yield world
