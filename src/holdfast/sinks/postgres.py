"""Writes into PostgreSQL that may be repeated. Needs ``pip install 'holdfast[postgres]'``.

A few connections are kept here rather than in psycopg's pool: that one waits in the background for
a server that is down and answers with a timeout, where a stage should hear at once, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, TypeAlias

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import FENCES, check_timeout
from holdfast.sinks.tables import (
    CREATE_FENCES,
    SAID_LIMIT_CHARS,
    TIMEOUT_SECONDS,
    Guarded,
    Statement,
    Tables,
    wrong_names,
)

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as error:
    reason = "holdfast.sinks.postgres needs psycopg: pip install 'holdfast[postgres]'"
    raise ImportError(reason, name=error.name) from error

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

CONNECTIONS = 4

# Lost, refused, shutting down, out of room or of connections, a lost race; and a server that was
# the primary until now. What else PostgreSQL says is the caller's to mend.
PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
WRONG_NAMES = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.InvalidSchemaName,
    errors.InvalidColumnReference,  # no unique index fits the ON CONFLICT
)


class Postgres(Tables):
    """``Postgres("postgresql://me@db/reports")``

    Up to ``connections`` at once; further calls wait. Past ``timeout_seconds`` a call is cancelled,
    for which the driver gives the server five seconds, and is SinkUnavailable.
    """

    mark = "%s"
    greatest = "greatest"

    def __init__(
        self, dsn: str, *, timeout_seconds: float = TIMEOUT_SECONDS, connections: int = CONNECTIONS
    ) -> None:
        try:
            conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # What the driver says of it repeats the password.
            raise InvalidInput("this is no address of a PostgreSQL server") from None
        if connections < 1:
            raise InvalidInput(f"connections={connections!r}: at least 1")
        self._dsn = dsn
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._places = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []

    async def open(self) -> Self:
        async with self._connection():
            return self

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def create_fences(self) -> None:
        async with self._connection() as connection, connection.transaction():
            # Two that make the table at once would quarrel over its name.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (FENCES,))
            await connection.execute(CREATE_FENCES)

    async def _run(self, statement: Statement, guarded: Guarded | None) -> bool:
        async with self._connection() as connection, connection.transaction():
            if guarded is not None:
                ((seen,),) = await _rows(connection, guarded.statement)
                if seen > guarded.guard.fence:
                    raise StaleFence(guarded.guard.scope, guarded.guard.fence, seen)
            return bool(await _rows(connection, statement))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(self._timeout_seconds), self._places:
                connection = await self._ready()
                try:
                    yield connection
                finally:
                    await self._keep(connection)
        except TimeoutError as error:
            said = f"no answer within {self._timeout_seconds:g} s"
            raise SinkUnavailable(f"PostgreSQL is out of reach: {said}") from error
        except WRONG_NAMES as error:
            raise wrong_names(error.diag.message_primary) from error
        except PASSING as error:
            said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
            raise SinkUnavailable(f"PostgreSQL is out of reach: {said}") from error

    async def _ready(self) -> Connection:
        """One that was kept, if it still answers: the server may have gone and come back."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(*PASSING):
                await connection.execute("")
                return connection
            await connection.close()
        return await self._connect()

    async def _connect(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,  # each call opens its own transaction
            prepare_threshold=None,  # a pooler before the server may not keep them
        )
        # On any other level a lost race is an error instead of a row that was there.
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return connection

    async def _keep(self, connection: Connection) -> None:
        if connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await connection.close()


async def _rows(connection: Connection, statement: Statement) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement.sql.encode(), statement.values)
    return await cursor.fetchall()
