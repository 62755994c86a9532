"""A refused login or a wrong name is no outage: it lasts until somebody mends the setting."""

import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInput, SinkUnavailable
from holdfast.sinks.hosts import is_unknown_host
from holdfast.sinks.mongo import Mongo
from holdfast.sinks.sql import Postgres, Sqlite
from tests.support.mongo_servers import mongo_client
from tests.support.sinks.contract import KEY, PATIENT_SECONDS, TABLE

HOST = "nowhere.example"
LASTS = [socket.EAI_NONAME, socket.EAI_FAIL]


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the system says of every host from now on: no name can be counted on not to be there."""

    def fails_with(code: int) -> None:
        def look(*_: Any, **__: Any) -> Any:
            raise socket.gaierror(code, "in some language")

        monkeypatch.setattr(socket, "getaddrinfo", look)

    return fails_with


async def written_by_postgres() -> None:
    sink = Postgres(f"postgresql://me@{HOST}/reports", timeout_seconds=PATIENT_SECONDS)
    await sink.write_once(TABLE, {"number": 1}, key=KEY)


async def written_by_mongo() -> None:
    url = f"mongodb://{HOST},other.example"
    async with mongo_client(url, serverSelectionTimeoutMS=200) as client:
        sink = Mongo(client["reports"], timeout_seconds=PATIENT_SECONDS)
        await sink.write_once(TABLE, {"number": 1}, key=KEY)


WRITERS = [written_by_postgres, written_by_mongo]


@pytest.mark.parametrize("code", LASTS)
@pytest.mark.parametrize("write", WRITERS)
async def test_a_host_that_no_lookup_finds_is_no_outage(write: Any, code: int, lookup: Any) -> None:
    lookup(code)
    with pytest.raises(InvalidInput, match=HOST):
        await write()


@pytest.mark.parametrize("write", WRITERS)
async def test_a_lookup_that_fails_for_the_moment_is_an_outage(write: Any, lookup: Any) -> None:
    lookup(socket.EAI_AGAIN)
    with pytest.raises(SinkUnavailable):
        await write()


async def test_a_folder_that_is_not_there_is_no_outage(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "such.db", tmp_path / "folder"):
        sink = Sqlite(path)
        with pytest.raises(InvalidInput, match="cannot be used as a database"):
            await sink.write_once(TABLE, {"number": 1}, key=KEY)


def test_what_a_driver_hands_on_is_understood_in_any_language() -> None:
    assert is_unknown_host("db: [Errno -2] Der Name oder der Dienst ist nicht bekannt")
    assert is_unknown_host("could not translate host name: Name or service not known")
    assert not is_unknown_host("db: [Errno -3] Temporary failure in name resolution")
    assert not is_unknown_host("db: [Errno 111] Connect call failed")
