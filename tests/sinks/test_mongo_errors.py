"""What MongoDB answers when it is busy or has no majority: a server on the wire that says so."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import bson
import pytest
import pytest_asyncio
from pymongo.errors import DuplicateKeyError, OperationFailure
from pymongo.server_api import ServerApi

from holdfast.domain.errors import SinkUnavailable
from holdfast.sinks.mongo import Mongo
from tests.support.mongo_servers import mongo_client
from tests.support.sinks.contract import KEY, PATIENT_SECONDS, TABLE

HEADER = struct.Struct("<iiii")  # length, request, the request it answers, kind
MESSAGE = 2013
BODY_AT = HEADER.size + 4 + 1  # after the flags and the kind of the first section
UNKNOWN_CODE = 8_999_999

Document: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Document], Document]


class Wire(asyncio.Protocol):
    """A connection of one client."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard += data
        while len(self._heard) >= HEADER.size:
            length, request, _, kind = HEADER.unpack_from(self._heard)
            if len(self._heard) < length:
                return
            message, self._heard = self._heard[:length], self._heard[length:]
            assert kind == MESSAGE
            self._transport.write(self._reply(request, message))

    def _reply(self, request: int, message: bytes) -> bytes:
        (size,) = struct.unpack_from("<i", message, BODY_AT)
        asked = bson.decode(message[BODY_AT : BODY_AT + size])
        body = bytes(5) + bson.encode(self._answer(asked))
        return HEADER.pack(HEADER.size + len(body), 0, request, MESSAGE) + body


class Primary:
    """Takes every write, but for the commands that a test has answers for."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    def answer(self, asked: Document) -> Document:
        command = next(iter(asked))
        if command in self.answers:
            return self.answers[command](asked)
        return self._hello() if command == "hello" else {"ok": 1, "n": 1}

    def _hello(self) -> Document:
        member = {"isWritablePrimary": True, "setName": "rs", "logicalSessionTimeoutMinutes": 30}
        return {"ok": 1, "minWireVersion": 0, "maxWireVersion": 25, **member}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: Wire(self.answer), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            yield f"mongodb://127.0.0.1:{port}/?directConnection=true"


@pytest.fixture
def primary() -> Primary:
    return Primary()


@pytest_asyncio.fixture
async def sink(primary: Primary) -> AsyncIterator[Mongo]:
    """Its driver repeats nothing by itself, which it would do for as long as the timeout is."""
    once: dict[str, Any] = {"retryWrites": False, "retryReads": False}
    async with (
        primary.listening() as url,
        mongo_client(url, server_api=ServerApi("1"), **once) as client,
    ):
        yield Mongo(client["reports"], timeout_seconds=PATIENT_SECONDS)


def failing(code: int, *labels: str) -> Answer:
    return lambda _: {"ok": 0, "code": code, "errmsg": "not now", "errorLabels": list(labels)}


async def write(sink: Mongo, **guard: Any) -> bool:
    return await sink.write_once(TABLE, {"number": 1}, key=KEY, **guard)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(24, id="LockTimeout"),
        pytest.param(112, id="WriteConflict"),
        pytest.param(133, id="FailedToSatisfyReadPreference"),
        pytest.param(202, id="NetworkInterfaceExceededTimeLimit"),
        pytest.param(365, id="TemporarilyUnavailable"),
        pytest.param(462, id="IngressRequestRateLimitExceeded"),
        pytest.param(463, id="IngressOperationRateLimitExceeded"),
        pytest.param(11601, id="Interrupted"),
    ],
)
async def test_what_passes_by_itself_is_an_outage(primary: Primary, sink: Mongo, code: int) -> None:
    primary.answers["insert"] = primary.answers["delete"] = failing(code)
    with pytest.raises(SinkUnavailable, match="not now") as told:
        await write(sink)
    assert isinstance(told.value.__cause__, OperationFailure)
    with pytest.raises(SinkUnavailable):
        await sink.forget(TABLE, key=KEY)
    del primary.answers["insert"]
    assert await write(sink)


@pytest.mark.parametrize(
    "label", ["RetryableWriteError", "RetryableError", "SystemOverloadedError"]
)
async def test_what_the_server_labels_as_passing_is_an_outage(
    primary: Primary, sink: Mongo, label: str
) -> None:
    primary.answers["insert"] = primary.answers["findAndModify"] = failing(UNKNOWN_CODE, label)
    with pytest.raises(SinkUnavailable, match="not now"):
        await write(sink)
    with pytest.raises(SinkUnavailable, match="not now"):
        await write(sink, fence=1)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(1, id="InternalError"),
        pytest.param(20, id="IllegalOperation"),
        pytest.param(146, id="ExceededMemoryLimit"),
        pytest.param(301, id="DataCorruptionDetected"),
        pytest.param(UNKNOWN_CODE, id="unknown"),
    ],
)
async def test_what_may_last_is_no_outage(primary: Primary, sink: Mongo, code: int) -> None:
    primary.answers["insert"] = failing(code, "NoWritesPerformed")
    with pytest.raises(OperationFailure, match="not now"):
        await write(sink)


# -- what was there


def refusing(field: str) -> Answer:
    """The insert, by the unique index of the field, while the majority is out of reach."""
    refused = {"index": 0, "code": 11000, "errmsg": "E11000", "keyPattern": {field: 1}}
    behind = {"code": 91, "errmsg": "waiting for replication was ended"}
    return lambda _: {"ok": 1, "n": 0, "writeErrors": [refused], "writeConcernError": behind}


def finding(*levels: str) -> Answer:
    """The key, by reads of these levels. The driver names none that is the server's own."""

    def find(asked: Document) -> Document:
        level = asked.get("readConcern", {}).get("level", "local")
        found = [{"_id": KEY}] if level in levels else []
        return {"ok": 1, "cursor": {"id": 0, "ns": f"reports.{TABLE}", "firstBatch": found}}

    return find


async def test_a_document_that_no_majority_has_is_not_yet_there(
    primary: Primary, sink: Mongo
) -> None:
    primary.answers = {"insert": refusing("_id"), "find": finding("local")}
    with pytest.raises(SinkUnavailable, match="majority") as told:
        await write(sink)
    assert isinstance(told.value.__cause__, DuplicateKeyError)
    primary.answers["find"] = finding("local", "majority")
    assert not await write(sink)


async def test_a_server_that_knows_no_majority_yet_is_away(primary: Primary, sink: Mongo) -> None:
    read_concern_majority_not_available_yet = 134
    primary.answers["insert"] = refusing("_id")
    primary.answers["find"] = failing(read_concern_majority_not_available_yet)
    with pytest.raises(SinkUnavailable, match="not now"):
        await write(sink)


async def test_a_refusal_by_another_index_lasts(primary: Primary, sink: Mongo) -> None:
    primary.answers = {"insert": refusing("number"), "find": finding()}
    with pytest.raises(DuplicateKeyError):
        await write(sink)
