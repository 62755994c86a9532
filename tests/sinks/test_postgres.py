"""Writes into PostgreSQL: servers that are killed and come back, transactions that meet."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import pytest_asyncio

from holdfast.domain.errors import SinkUnavailable, StaleFence
from holdfast.errors import InvalidInput
from holdfast.sinks.sql import Postgres
from tests.support.postgres_servers import StartPostgres
from tests.support.sinks.contract import (
    BOUND_SECONDS,
    HASTE_SECONDS,
    KEY,
    PATIENT_SECONDS,
    TABLE,
    Outage,
    OutageContract,
    hasty,
)
from tests.support.sinks.sql_worlds import DDL, PostgresWorld, made
from verify.servers.postgres import PostgresServer

# Not those that come and go by themselves.
SERVING = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
NO_ANSWER = f"no answer within {HASTE_SECONDS} s"


class Killed(Outage):
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.world = PostgresWorld(server.url)

    def begin(self) -> None:
        self.server.kill()

    def end(self) -> None:
        self.server.start()

    def hasty(self) -> AbstractContextManager[None]:
        return nullcontext()  # a port where nobody listens says so at once


class TestPostgresKilled(OutageContract):
    @pytest_asyncio.fixture
    async def outage(self, start_postgres: StartPostgres) -> AsyncIterator[Killed]:
        outage = Killed(start_postgres())
        async with made(outage.world):
            yield outage

    async def test_a_server_that_went_and_came_back_between_calls_is_no_outage(
        self, outage: Killed
    ) -> None:
        assert await outage.world.write(1)
        outage.begin()
        outage.end()
        assert await outage.world.write(2, key="another")


async def test_an_older_holder_waits_for_the_newer_ones_transaction(
    postgres_world: PostgresWorld,
) -> None:
    """No window: the newer one's fence is seen although it is not yet committed."""
    world = postgres_world
    raising = "INSERT INTO holdfast_fences (scope, fence) VALUES ('t-1', 2)"
    async with await psycopg.AsyncConnection.connect(world.url) as newer:
        await newer.execute(raising)
        late = asyncio.create_task(world.write(fence=1, scope="t-1"))
        await until_blocked(newer)
        await newer.commit()
    with pytest.raises(StaleFence):
        await late
    assert await world.kept() == {}


async def test_a_writer_waits_for_another_of_its_key_and_writes_if_that_one_gives_up(
    postgres_world: PostgresWorld,
) -> None:
    world = postgres_world
    async with await psycopg.AsyncConnection.connect(world.url) as other:
        await other.execute("INSERT INTO summaries (idempotency_key) VALUES (%s)", (KEY,))
        second = asyncio.create_task(world.write(2))
        await until_blocked(other)
        await other.rollback()
    assert await second
    assert await world.kept() == {KEY: 2}


async def test_a_server_that_does_not_answer_is_an_outage_in_time(
    postgres_world: PostgresWorld,
) -> None:
    world = postgres_world
    async with await psycopg.AsyncConnection.connect(world.url) as other:
        await other.execute("LOCK TABLE summaries")
        with hasty(world.sink):
            async with asyncio.timeout(BOUND_SECONDS):
                with pytest.raises(SinkUnavailable, match=NO_ANSWER):
                    await world.write(1)
    assert await world.write(1)


async def test_more_callers_than_connections_wait_their_turn(postgres_world: PostgresWorld) -> None:
    sink = patient(postgres_world.url, connections=2)
    row = {"number": 1}
    await asyncio.gather(*(sink.write_once(TABLE, row, key=f"k{n}") for n in range(30)))
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'two'"
    named = patient(f"{postgres_world.url}?application_name=two", connections=2)
    await asyncio.gather(*(named.write_once(TABLE, row, key=f"k{n}") for n in range(30)))
    assert await postgres_world.rows(asked) == [(2,)]
    assert len(await postgres_world.kept()) == 30
    await sink.close()
    await named.close()


async def test_a_server_that_only_reads_is_an_outage(postgres_world: PostgresWorld) -> None:
    """As one that was the primary until now."""
    sink = patient(with_setting(postgres_world.url, "default_transaction_read_only=on"))
    with pytest.raises(SinkUnavailable, match="ReadOnly"):
        await sink.write_once(TABLE, {"number": 1}, key=KEY)
    await sink.close()


@pytest.mark.parametrize("level", ["serializable", r"repeatable\ read"])
async def test_a_strict_isolation_of_the_server_makes_no_errors_of_races(
    postgres_world: PostgresWorld, level: str
) -> None:
    setting = f"default_transaction_isolation={level}"
    sink = patient(with_setting(postgres_world.url, setting))
    writes = (sink.write_once(TABLE, {"number": n}, key=KEY, fence=1) for n in range(20))
    assert (await asyncio.gather(*writes)).count(True) == 1
    await sink.close()


async def test_a_cancelled_write_leaves_a_sink_that_works(postgres_world: PostgresWorld) -> None:
    world = postgres_world
    async with await psycopg.AsyncConnection.connect(world.url) as other:
        await other.execute("LOCK TABLE summaries")
        stopped = asyncio.create_task(world.write(1))
        await until_blocked(other)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
    assert await world.write(2)
    assert await world.kept() == {KEY: 2}


async def test_a_role_or_database_that_is_not_there_is_no_outage(
    postgres_world: PostgresWorld,
) -> None:
    url = postgres_world.url
    for wrong in (url.replace("postgres@", "nobody@"), f"{url}-not-there"):
        with pytest.raises(InvalidInput, match="does not exist") as refused:
            await patient(wrong).write_once(TABLE, {"number": 1}, key=KEY)
        assert isinstance(refused.value.__cause__, psycopg.OperationalError)


async def test_a_password_that_is_wrong_is_no_outage_and_is_not_told(
    start_postgres: StartPostgres,
) -> None:
    server = start_postgres()
    only_with_password(server)
    for login in ("me:wr0ng", "me"):
        sink = patient(server.url.replace("postgres@", f"{login}@"))
        with pytest.raises(InvalidInput, match="password") as refused:
            await sink.open()
        assert "wr0ng" not in f"{refused.value!r} {refused.value.__cause__!r}"
    async with patient(server.url.replace("postgres@", "me:right@")) as sink:
        with pytest.raises(InvalidInput, match="permission denied"):
            await sink.write_once(TABLE, {"number": 1}, key=KEY)


async def test_a_frozen_server_holds_no_call_for_long(start_postgres: StartPostgres) -> None:
    """Whether its time is over or its caller has gone; on a connection that was kept."""
    server = start_postgres()
    world = PostgresWorld(server.url)
    async with made(world):
        assert await world.write(1)
        with frozen(server), hasty(world.sink):
            async with asyncio.timeout(BOUND_SECONDS):
                with pytest.raises(SinkUnavailable, match=NO_ANSWER):
                    await world.write(2)
        assert not await world.write(3)
        other = PostgresWorld(server.url)
        assert await other.write(1, key="another")
        with frozen(server):
            stopped = asyncio.create_task(other.write(2))
            async with asyncio.timeout(BOUND_SECONDS):
                await until_used(other)
                stopped.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await stopped
        assert await other.kept() == {KEY: 1, "another": 1}
        await other.sink.close()


@pytest.mark.parametrize("value", ["x", [1], "a\0b", b"x"])
async def test_a_value_that_does_not_fit_its_column_is_refused(
    postgres_world: PostgresWorld, value: Any
) -> None:
    with pytest.raises(InvalidInput, match="number") as refused:
        await postgres_world.sink.write_once(TABLE, {"text": "t", "number": value}, key=KEY)
    assert isinstance(refused.value.__cause__, psycopg.Error)
    assert await postgres_world.kept() == {}


async def test_a_value_that_no_index_takes_is_no_outage(postgres_world: PostgresWorld) -> None:
    await postgres_world.rows("CREATE UNIQUE INDEX ON summaries (text)")
    text = "".join(map(chr, range(0x4E00, 0x9000)))
    with pytest.raises(InvalidInput, match="index row"):
        await postgres_world.sink.write_once(TABLE, {"text": text}, key=KEY)


async def test_a_call_under_way_at_the_close_leaves_no_connection_open(
    postgres_world: PostgresWorld,
) -> None:
    world = postgres_world
    sink = await patient(f"{world.url}?application_name=closed").open()
    async with await psycopg.AsyncConnection.connect(world.url, autocommit=True) as other:
        async with other.transaction():
            await other.execute("LOCK TABLE summaries")
            late = asyncio.create_task(sink.write_once(TABLE, {"number": 1}, key=KEY))
            await until_blocked(other)
            await sink.close()
        assert await late
        await until_gone(other, "closed")
    assert not await sink.write_once(TABLE, {"number": 2}, key=KEY)
    assert len(sink._idle) == 1, "it is open again and keeps its connections"
    await sink.close()


def test_one_loop_after_another_may_wait_for_their_turn(postgres_url: str) -> None:
    sink = patient(postgres_url, connections=1)

    async def open_many() -> None:
        await asyncio.gather(*(sink.open() for _ in range(4)))

    for _ in range(2):
        asyncio.run(open_many())
    asyncio.run(sink.close())


def patient(url: str, **options: Any) -> Postgres:
    return Postgres(url, timeout_seconds=PATIENT_SECONDS, **options)


def only_with_password(server: PostgresServer) -> None:
    """For the role ``me``."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE me LOGIN PASSWORD 'right'")
        connection.execute(DDL[0].encode())
        (rules,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        Path(rules).write_text("host all me 127.0.0.1/32 scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")
        reloaded = "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method = 'scram-sha-256'"
        assert connection.execute(reloaded).fetchone() == (1,)


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    with psycopg.connect(server.url) as connection:
        ours = connection.info.backend_pid
        pids = connection.execute(SERVING).fetchall()
        (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    postmaster = int(Path(folder, "postmaster.pid").read_text().split()[0])
    stopped = [postmaster, *(pid for (pid,) in pids if pid != ours)]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def with_setting(url: str, setting: str) -> str:
    return f"{url}?options={quote(f'-c {setting}', safe='')}"


async def until_used(world: PostgresWorld) -> None:
    """Until the connection that was kept is in use again."""
    assert isinstance(world.sink, Postgres)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not world.sink._idle


async def until_blocked(by: psycopg.AsyncConnection[Any]) -> None:
    """Until somebody waits for a lock of this connection."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    blocked = 0
    async with asyncio.timeout(BOUND_SECONDS):
        while not blocked:
            (blocked,) = await (await by.execute(asked)).fetchone() or (0,)


async def until_gone(by: psycopg.AsyncConnection[Any], name: str) -> None:
    """Until the server has heard that the last connection of this name is closed."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    left = 1
    async with asyncio.timeout(BOUND_SECONDS):
        while left:
            (left,) = await (await by.execute(asked, (name,))).fetchone() or (0,)
