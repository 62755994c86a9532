"""What PostgreSQL and its driver say: does it pass by itself, or is it for somebody to mend?"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from holdfast.domain.errors import SinkUnavailable
from holdfast.errors import InvalidInput
from holdfast.sinks.sql import Postgres
from tests.support.sinks.contract import KEY, PATIENT_SECONDS, TABLE
from tests.support.sinks.sql_worlds import PostgresWorld

NOBODY = "postgresql://me@127.0.0.1:1/reports"

RAISING = """
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE 'so it is' USING ERRCODE = '{code}'; END $$;
CREATE TRIGGER complain BEFORE INSERT ON summaries EXECUTE FUNCTION complain()
"""
DEFERRABLE = (
    "CREATE TABLE wrong (idempotency_key TEXT NOT NULL UNIQUE DEFERRABLE, number INTEGER)",
    "deferrable",
)
VIEW = ("CREATE VIEW wrong AS SELECT DISTINCT idempotency_key, number FROM summaries", "view")


@pytest.mark.parametrize(("ddl", "said"), [DEFERRABLE, VIEW])
async def test_a_relation_that_cannot_be_written_to_is_no_outage(
    postgres_world: PostgresWorld, ddl: str, said: str
) -> None:
    await postgres_world.rows(ddl)
    with pytest.raises(InvalidInput, match=said) as refused:
        await postgres_world.sink.write_once("wrong", {"number": 1}, key=KEY)
    assert isinstance(refused.value.__cause__, psycopg.OperationalError)


@pytest.mark.parametrize("code", ["25P03", "25P04", "55P03"])
async def test_a_transaction_that_the_server_ended_over_a_wait_is_an_outage(
    postgres_world: PostgresWorld, code: str
) -> None:
    await postgres_world.rows(RAISING.format(code=code))
    with pytest.raises(SinkUnavailable, match="so it is"):
        await postgres_world.write(1)


@pytest.mark.parametrize(
    "setting",
    [
        "sslmode=banana",
        "target_session_attrs=foo",
        "require_auth=md5,md5",
        "require_auth=md5,!password",
        "sslrootcert=system&sslmode=prefer",
        "service=not-there",
        "connect_timeout=abc",
        "keepalives=abc",
        "hostaddr=abc",
        "hostaddr=127.0.0.1,127.0.0.1",
        "port=99999",
    ],
)
async def test_a_setting_that_the_driver_refuses_is_no_outage(setting: str) -> None:
    with pytest.raises(InvalidInput, match="refuses access") as refused:
        await patient(f"{NOBODY}?{setting}").open()
    assert isinstance(refused.value.__cause__, psycopg.Error)


async def test_a_setting_that_the_server_refuses_is_no_outage(
    postgres_world: PostgresWorld,
) -> None:
    with pytest.raises(InvalidInput, match="client_encoding"):
        await patient(f"{postgres_world.url}?client_encoding=foo").open()


async def test_a_port_or_socket_where_nobody_listens_is_an_outage() -> None:
    """Of a socket the driver says that the connection is bad, as of a wrong setting."""
    with TemporaryDirectory() as folder:  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(f"{folder}/.s.PGSQL.1")
        for dsn in (NOBODY, f"host={folder} port=1", f"host={folder} port=2"):
            await is_away(dsn, "failed: (Connection refused|No such file)")


async def test_a_name_that_is_not_resolved_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "not now")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    await is_away("postgresql://me@db.test/reports", "failed to resolve")


async def test_a_server_without_room_is_an_outage(postgres_world: PostgresWorld) -> None:
    await postgres_world.rows("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
    try:
        await is_away(postgres_world.url.replace("postgres@", "crowd@"), "too many connections")
    finally:
        await postgres_world.rows("DROP ROLE crowd")


async def test_a_server_that_dies_while_we_connect_is_an_outage() -> None:
    for answer in (b"", b"R\0\0"):
        async with answering(answer) as dsn:
            await is_away(dsn, "closed the connection")


async def test_a_server_that_starts_is_an_outage() -> None:
    fields = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"
    async with answering(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields) as dsn:
        await is_away(dsn, "starting up")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cret@host:port:port/db?x",
        "postgresql://me:p@s3cret@db.test/reports",
        "postgres://me:p@s3cret,s3cret@db.test/reports",
        "postgresql://me:p@ss:s3cret@db.test/reports",
        "postgresql://me:s3cret/2@db.test/reports",
        "postgresql://me:p@s3cret/2@db.test/reports",
        "postgresql://me:12/s3cret@db.test/reports",
        "postgresql://me:s3cret%ff@db.test/reports",
        "host=db.test,s3cret@db.test port=1,2",
        "host=a.test,b.test port=1,s3cret",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Postgres(dsn)
    error: BaseException | None = refused.value
    while error is not None:
        assert "s3cret" not in repr(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:p%40ss%2Fword@db.test/a%40b?options=-c%20a.b%3Dc@d",
        "postgresql://me@[::1]:5433,db.test:5434/reports",
        "postgresql:///reports?host=/run/postgresql",
        "host=a.test,b.test port=5433, password=p@ss/w@rd",
        "",
    ],
)
def test_an_address_with_its_password_escaped_is_taken(dsn: str) -> None:
    Postgres(dsn)


def patient(dsn: str) -> Postgres:
    return Postgres(dsn, timeout_seconds=PATIENT_SECONDS)


async def is_away(dsn: str, said: str) -> None:
    with pytest.raises(SinkUnavailable, match=said):
        await patient(dsn).write_once(TABLE, {"number": 1}, key=KEY)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The address of one that answers each hello with this, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size - 4)  # unread, it would reset the line
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"host=127.0.0.1 port={port} user=me sslmode=disable gssencmode=disable"
