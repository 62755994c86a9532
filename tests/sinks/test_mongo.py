"""Writes into MongoDB, over the wire to server processes that are killed and come back."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pymongo
import pytest
import pytest_asyncio
from pymongo import WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from holdfast.domain.errors import SinkUnavailable, StaleFence
from holdfast.errors import InvalidInput
from holdfast.sinks.fences import FENCES
from holdfast.sinks.mongo import Mongo
from holdfast.testing.plugin import MakeEngine
from tests.support.mongo_servers import Client, Database, StartMongo, mongo_client
from tests.support.sinks.contract import (
    BOUND_SECONDS,
    KEY,
    PATIENT_SECONDS,
    TABLE,
    Outage,
    OutageContract,
    SinkContract,
    World,
)
from tests.support.sinks.documented import documented
from verify.servers.mongo import MongoServer


class MongoWorld(World):
    def __init__(self, database: Database) -> None:
        self.database = database
        self.sink = Mongo(database, timeout_seconds=PATIENT_SECONDS)

    async def kept(self) -> dict[str, Any]:
        docs = await self.database[TABLE].find().to_list()
        found = {doc["_id"]: doc["number"] for doc in docs}
        assert len(found) == len(docs)
        return found

    async def text_of(self, key: str) -> str:
        found = await self.database[TABLE].find_one({"_id": key})
        assert found is not None
        return str(found["text"])


class Killed(Outage):
    def __init__(self, server: MongoServer, database: Database) -> None:
        self.server = server
        self.world = MongoWorld(database)

    def begin(self) -> None:
        self.server.kill()

    def end(self) -> None:
        self.server.start()


@pytest_asyncio.fixture
async def outage(start_mongo: StartMongo) -> AsyncIterator[Killed]:
    server = start_mongo()
    async with mongo_client(server.url) as client:
        yield Killed(server, client["reports"])


@pytest.fixture
def world(mongo_database: Database) -> MongoWorld:
    return MongoWorld(mongo_database)


class TestMongo(SinkContract):
    pass


class TestMongoKilled(OutageContract):
    pass


async def test_the_key_is_the_id(world: MongoWorld) -> None:
    await world.sink.write_once(TABLE, {"number": 1, "deep": {"list": [1, None]}}, key=KEY)
    docs = await world.database[TABLE].find().to_list()
    assert docs == [{"_id": KEY, "number": 1, "deep": {"list": [1, None]}}]


async def test_a_document_with_an_id_of_its_own_is_refused(world: MongoWorld) -> None:
    with pytest.raises(InvalidInput, match="_id"):
        await world.sink.write_once(TABLE, {"_id": KEY, "number": 1}, key=KEY)
    assert await world.kept() == {}


async def test_a_refused_document_does_not_pass_for_one_that_was_there(world: MongoWorld) -> None:
    await world.database[TABLE].create_index("number", unique=True)
    assert await world.write(1)
    with pytest.raises(DuplicateKeyError):
        await world.write(1, key="another")
    assert not await world.write(2), "the key was there, whatever else the document has"
    assert await world.kept() == {KEY: 1}


async def test_writes_are_acknowledged_even_where_the_client_asks_for_less(
    world: MongoWorld,
) -> None:
    careless = world.database.client.get_database(
        world.database.name, write_concern=WriteConcern(w=0)
    )
    sink = Mongo(careless, timeout_seconds=PATIENT_SECONDS)
    assert await sink.write_once(TABLE, {"number": 1}, key=KEY)
    assert not await sink.write_once(TABLE, {"number": 2}, key=KEY)
    assert await world.kept() == {KEY: 1}


async def test_what_no_server_takes_is_no_outage(world: MongoWorld) -> None:
    with pytest.raises(InvalidInput, match="too large"):
        await world.sink.write_once(TABLE, {"number": 1, "text": "x" * (17 << 20)}, key=KEY)
    deep: dict[str, Any] = {}
    for _ in range(100_000):  # the limit of Python 3.13 is a higher one
        deep = {"deep": deep}
    with pytest.raises(InvalidInput, match="'number'"):
        await world.sink.write_once(TABLE, {"number": deep}, key=KEY)
    with pytest.raises(InvalidInput, match=r"'a.+b'"):
        await world.sink.write_once(TABLE, {"a\0b": 1}, key=KEY)


@pytest.mark.parametrize("name", ["", "a..b", "a$b", "a\0b", "\ud800", 7, None])
async def test_what_names_no_collection_is_refused(world: MongoWorld, name: Any) -> None:
    with pytest.raises(InvalidInput, match="collection"):
        await world.sink.write_once(name, {"number": 1}, key=KEY)
    with pytest.raises(InvalidInput, match="collection"):
        await world.sink.forget(name, key=KEY)


@pytest.mark.parametrize("code", [13, 18])
async def test_a_password_or_right_that_is_missing_is_no_outage(
    world: MongoWorld, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The server of the tests lets everybody in."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise OperationFailure("Authentication failed.", code)

    monkeypatch.setattr(AsyncCollection, "insert_one", refuse)
    with pytest.raises(InvalidInput, match="Authentication failed") as refused:
        await world.write()
    assert isinstance(refused.value.__cause__, OperationFailure)


async def test_without_a_fence_no_fences_are_kept(world: MongoWorld) -> None:
    await world.write()
    assert await world.database[FENCES].count_documents({}) == 0
    await world.write(fence=3)
    assert await world.database[FENCES].find().to_list() == [{"_id": "01TASK", "fence": 3}]


async def test_a_server_that_was_never_there_is_an_outage_within_the_timeout(
    start_mongo: StartMongo,
) -> None:
    server = start_mongo()
    server.kill()
    async with mongo_client(server.url) as client:
        sink = Mongo(client["reports"], timeout_seconds=0.3)
        async with asyncio.timeout(BOUND_SECONDS):
            await until_refused(client)
            with pytest.raises(SinkUnavailable, match=rf"127\.0\.0\.1:{server.port}"):
                await sink.write_once(TABLE, {"number": 1}, key=KEY)


async def test_a_client_that_waits_for_a_server_for_less_is_not_kept_waiting(
    start_mongo: StartMongo,
) -> None:
    server = start_mongo()
    async with mongo_client(server.url, serverSelectionTimeoutMS=200) as client:
        sink = Mongo(client["reports"], timeout_seconds=PATIENT_SECONDS)
        async with asyncio.timeout(BOUND_SECONDS):
            await until_found(client)
        assert await sink.write_once(TABLE, {"number": 1}, key=KEY)
    server.kill()
    async with mongo_client(server.url, serverSelectionTimeoutMS=200) as client:
        sink = Mongo(client["reports"], timeout_seconds=PATIENT_SECONDS)
        async with asyncio.timeout(BOUND_SECONDS):
            with pytest.raises(SinkUnavailable):
                await sink.write_once(TABLE, {"number": 1}, key=KEY)
            with pytest.raises(SinkUnavailable):
                await sink.forget(TABLE, key=KEY)


async def until_found(client: Client) -> None:
    """Until the driver knows its server, however long that takes here."""
    while not client.topology_description.has_writable_server():
        with suppress(PyMongoError):
            await client.admin.command("ping")


async def until_refused(client: Client) -> None:
    """Until the driver knows why it has none; before, it says only that it has found none yet."""

    def is_known() -> bool:
        found = client.topology_description.server_descriptions().values()
        return any(one.error is not None for one in found)

    while not is_known():
        with suppress(PyMongoError), pymongo.timeout(0.3):
            await client.admin.command("ping")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_timeout_is_a_bound(mongo_database: Database, seconds: float) -> None:
    with pytest.raises(InvalidInput, match="timeout_seconds"):
        Mongo(mongo_database, timeout_seconds=seconds)


async def test_a_killed_server_finds_its_documents_again(start_mongo: StartMongo) -> None:
    server = start_mongo()
    port = server.port
    async with mongo_client(server.url) as client:
        await client["reports"]["kept"].insert_one({"_id": 1})
        server.kill()
        assert not server.alive
        server.start()
        assert (server.alive, server.port) == (True, port)
        assert await client["reports"]["kept"].find().to_list() == [{"_id": 1}]


# -- docs/sinks.md


async def test_the_documented_stage_stores_and_forgets(
    mongo_url: str, mongo_database: Database, holdfast_engine: MakeEngine
) -> None:
    source = documented("AsyncMongoClient(")
    source = source.replace("mongodb://127.0.0.1:27017", mongo_url)
    source = source.replace('client["reports"]', f'client["{mongo_database.name}"]')
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(source, "docs/sinks.md", "exec"), names)
    async with names["client"]:
        engine = holdfast_engine(names["app"])
        handle = await names["report"].submit("all is well")
        await engine.drain()
        assert await handle.result() is True
        docs = await mongo_database["summaries"].find().to_list()
        assert [doc["text"] for doc in docs] == ["all is well"]
        await handle.rollback("not wanted")
        await engine.drain()
        assert await mongo_database["summaries"].find().to_list() == []


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    monkeypatch.delitem(sys.modules, "holdfast.sinks.mongo")
    with pytest.raises(ImportError, match=r"holdfast-engine\[mongo\]"):
        from holdfast.sinks.mongo import Mongo as _  # noqa: F401


# -- upserts


async def test_a_late_upsert_is_refused_by_the_document_itself(world: MongoWorld) -> None:
    """Also by one that was frozen between the fence of its scope and its write."""
    await world.upsert(1, fence=9)
    await world.database[FENCES].delete_many({})
    with pytest.raises(StaleFence) as refused:
        await world.upsert(2, fence=8)
    assert (refused.value.fence, refused.value.seen) == (8, 9)
    assert await world.kept() == {KEY: 1}


@pytest.mark.parametrize("name", ["_id", "holdfastFence", "a.b", "$set", "a\0b"])
async def test_a_name_that_an_update_would_misread_is_refused(world: MongoWorld, name: str) -> None:
    with pytest.raises(InvalidInput):
        await world.sink.upsert_one(TABLE, {name: 1}, key=KEY)
    assert await world.kept() == {}
