"""Fixtures with servers that speak as MongoDB does: one for all tests of a process, others to kill.

With ``MONGODB_URL`` the tests that kill nothing run on that server, in databases of their own.
"""

import asyncio
import gc
import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from verify.servers.mongo import MongoServer

URL_VARIABLE = "MONGODB_URL"
SELECTION_MS = 60_000

Client: TypeAlias = AsyncMongoClient[dict[str, Any]]
Database: TypeAlias = AsyncDatabase[dict[str, Any]]


class StartMongo(Protocol):
    def __call__(self) -> MongoServer:
        """A server of one's own, to be killed, until the test ends."""


@pytest.fixture(scope="session")
def mongo_url() -> Iterator[str]:
    """Yield the URL of a server that is never killed: keep to a ``mongo_database`` of your own."""
    named = os.environ.get(URL_VARIABLE)
    if named:
        yield named
        return
    with MongoServer() as server:
        yield server.url


@asynccontextmanager
async def mongo_client(url: str, **options: Any) -> AsyncIterator[Client]:
    """One whose server may be killed: when it is closed in the middle of connecting, the driver
    leaves the socket to the garbage collector, which would blame a later test."""
    client: Client
    options = {"serverSelectionTimeoutMS": SELECTION_MS} | options
    async with AsyncMongoClient(url, **options) as client:
        yield client
    await asyncio.sleep(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest_asyncio.fixture
async def mongo_database(mongo_url: str) -> AsyncIterator[Database]:
    """An empty database that no other test uses, dropped at the end."""
    client: Client
    async with AsyncMongoClient(mongo_url, serverSelectionTimeoutMS=SELECTION_MS) as client:
        name = f"holdfast-test-{uuid4().hex[:12]}"
        yield client[name]
        await client.drop_database(name)


@pytest.fixture
def start_mongo() -> Iterator[StartMongo]:
    """``server = start_mongo()``"""
    with ExitStack() as started:

        def start() -> MongoServer:
            return started.enter_context(MongoServer())

        yield start
