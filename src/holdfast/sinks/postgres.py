"""Writes into PostgreSQL that may be repeated. Needs ``pip install 'holdfast-engine[postgres]'``.

A few connections are kept here rather than in psycopg's pool: that one waits in the background for
a server that is down and answers with a timeout, where a stage should hear at once, and why.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeAlias, TypeVar

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import FENCES, SAID_LIMIT_CHARS, check_timeout, wrong_value
from holdfast.sinks.hosts import is_unknown_host
from holdfast.sinks.tables import (
    CREATE_FENCES,
    TIMEOUT_SECONDS,
    FenceStatement,
    Statement,
    Tables,
    wrong_names,
)

try:
    import psycopg
    from psycopg import errors
    from psycopg.adapt import PyFormat, Transformer
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as error:
    reason = "holdfast.sinks.postgres needs psycopg: pip install 'holdfast-engine[postgres]'"
    raise ImportError(reason, name=error.name) from error

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

R = TypeVar("R")

CONNECTIONS = 4
CANCEL_SECONDS = 0.5  # for the server to hear of it, and once more for it to obey

# Lost, refused, shutting down, out of room or of connections, a lost race; a server that was the
# primary until now, or that ended a transaction because we stood still in it. What else PostgreSQL
# says is the caller's to mend.
PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
    getattr(errors, "TransactionTimeout", errors.IdleInTransactionSessionTimeout),  # not in 3.2.0
)
WRONG_NAMES = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.InvalidSchemaName,
    errors.InvalidColumnReference,  # no unique index fits the ON CONFLICT
    errors.ObjectNotInPrerequisiteState,  # it can be deferred, or this is a view that only reads
)
# The value, or one that no column of this kind or index of it takes.
WRONG_VALUES = (
    psycopg.DataError,
    errors.DatatypeMismatch,
    errors.CannotCoerce,
    errors.IndeterminateDatatype,
    errors.ProgramLimitExceeded,
)
# The driver has no class of its own for each value that it cannot hand over.
UNKNOWN_VALUES = (psycopg.ProgrammingError, psycopg.DataError, TypeError, ValueError, OverflowError)

# The driver does not hand on the code of an error while it connects, only these words. A server
# that speaks another language than English is taken for one that is out of reach. A connection
# "is bad" when a setting is refused, but also when nobody listens at a socket: the next word tells.
_REFUSED = re.compile(
    r"""password\ authentication\ failed | no\ password\ supplied | pg_hba\.conf
    | (role|database)\ ".*"\ does\ not\ exist | is\ not\ permitted\ to\ log\ in
    | permission\ denied\ for\ database | server\ does\ not\ support\ SSL
    | unrecognized\ configuration\ parameter | invalid\ value\ for\ parameter
    | connection\ is\ bad:\ (invalid|weak|negative|require_auth|definition|service|syntax|nested)\b
    | invalid\ integer\ value | could\ not\ match\ \d | could\ not\ parse\ network\ address""",
    re.VERBOSE,
)
_LOOKUP = re.compile(r"failed to resolve host|could not translate host name")
_PARAMETER = re.compile(r"\$(\d+)")
_PORTS = re.compile(r"[0-9, ]*")
_AT_IN_PATH = re.compile(r"postgres(ql)?://[^?]*/[^?]*@")


class Postgres(Tables):
    """A sink on a database: ``Postgres("postgresql://me@db/reports")``.

    It uses up to ``connections`` at once; further calls wait. After ``timeout_seconds`` a call is
    cancelled in the server, which has a second for it before the connection is cut; the call then
    raises SinkUnavailable.
    """

    mark = "%s"
    greatest = "greatest"

    def __init__(
        self, dsn: str, *, timeout_seconds: float = TIMEOUT_SECONDS, connections: int = CONNECTIONS
    ) -> None:
        _check_address(dsn)
        if connections < 1:
            raise InvalidInput(f"connections={connections!r}: at least 1")
        self._dsn = dsn
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._connections = connections
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._idle: list[Connection] = []
        self._closings = 0

    async def open(self) -> Self:
        await self._with(_nothing)
        return self

    async def close(self) -> None:
        """A call that is under way closes its own connection at its end."""
        self._closings += 1
        while self._idle:
            await self._idle.pop().close()

    async def create_fences(self) -> None:
        await self._with(_create_fences)

    async def _run(self, statement: Statement, guarded: FenceStatement | None) -> bool:
        return await self._with(lambda connection: _write(connection, statement, guarded))

    async def _with(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        """Run the work in a task of its own.

        If a query were cancelled directly, the driver would tell the server and wait five seconds
        for each of two answers.
        """
        use = Use(self._closings)
        task = asyncio.create_task(self._use(use, work))
        task.add_done_callback(_heard)
        with _translated_errors():
            try:
                done, _ = await asyncio.wait({task}, timeout=self._timeout_seconds)
                if not done:
                    said = f"no answer within {self._timeout_seconds:g} s"
                    raise SinkUnavailable(f"PostgreSQL is out of reach: {said}")
                return task.result()
            finally:
                if not task.done():
                    await _end(task, use)

    async def _use(self, use: Use, work: Callable[[Connection], Awaitable[R]]) -> R:
        async with self._turn():
            connection = await self._ready(use)
            try:
                return await work(connection)
            finally:
                await self._keep(connection, use)

    def _turn(self) -> asyncio.Semaphore:
        """Return the semaphore of this event loop: one in which callers have waited serves no other
        loop.
        """
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = loop, asyncio.Semaphore(self._connections)
        return self._places[1]

    async def _ready(self, use: Use) -> Connection:
        """Return a kept connection if it still answers: the server may have gone and come back."""
        while self._idle:
            use.connection = connection = self._idle.pop()
            try:
                await connection.execute("")
            except PASSING:
                use.connection = None
                await connection.close()
                if use.is_over:
                    raise
            else:
                return connection
        use.connection = connection = await self._connect()
        return connection

    async def _connect(self) -> Connection:
        with _entering():
            connection = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,  # each call opens its own transaction
                prepare_threshold=None,  # a pooler before the server may not keep them
            )
        # On any other level a lost race is an error instead of a row that was there.
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return connection

    async def _keep(self, connection: Connection, use: Use) -> None:
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        if is_idle and use.closings == self._closings:
            self._idle.append(connection)
        else:
            await connection.close()


def _check_address(dsn: str) -> None:
    """A password that is not escaped ends at its first ``@`` or ``/``. The rest of it would be
    taken for a host, be asked of a name server and be told in errors."""
    try:
        parsed = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeError):
        parsed = None  # what the driver says of it repeats the password
    if (
        parsed is None
        or "@" in str(parsed.get("host", ""))
        or not _PORTS.fullmatch(str(parsed.get("port", "")))
        or _AT_IN_PATH.match(dsn)
    ):
        escaped = "in a password, @ is written %40 and / is written %2F"
        raise InvalidInput(f"this is no address of a PostgreSQL server; {escaped}")


async def _nothing(_connection: Connection) -> None:
    pass


async def _create_fences(connection: Connection) -> None:
    async with connection.transaction():
        # Two that make the table at once would quarrel over its name.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (FENCES,))
        await connection.execute(CREATE_FENCES)


async def _write(
    connection: Connection, statement: Statement, guarded: FenceStatement | None
) -> bool:
    async with connection.transaction():
        if guarded is not None:
            ((seen,),) = await _rows(connection, guarded.statement)
            if seen > guarded.guard.fence:
                raise StaleFence(guarded.guard.scope, guarded.guard.fence, seen)
        return bool(await _rows(connection, statement))


async def _rows(connection: Connection, statement: Statement) -> list[tuple[Any, ...]]:
    try:
        cursor = await connection.execute(statement.sql.encode(), statement.values)
        return await cursor.fetchall()
    except WRONG_VALUES as error:
        name = _complained_of(error, statement) or _refused(connection, statement)
        raise wrong_value(name, error.diag.message_primary or error) from error
    except UNKNOWN_VALUES as error:
        name = _refused(connection, statement)
        if name is None:
            raise  # the server's, or it came from elsewhere
        raise wrong_value(name, error) from error


def _complained_of(error: psycopg.Error, statement: Statement) -> str | None:
    found = _PARAMETER.search(error.diag.context or "")
    return statement.names[int(found[1]) - 1] if found else None


def _refused(connection: Connection, statement: Statement) -> str | None:
    """The first value that cannot be handed over by itself."""
    for name, value in zip(statement.names, statement.values, strict=True):
        try:
            Transformer(connection).dump_sequence([value], [PyFormat.AUTO])
        except UNKNOWN_VALUES:
            return name
    return None


class Use:
    """The connection that a call is in the middle of, if it has come that far."""

    connection: Connection | None = None
    is_over = False

    def __init__(self, closings: int) -> None:
        self.closings = closings  # of the sink, when the call began


async def _end(task: asyncio.Task[Any], use: Use) -> None:
    """Close a connection whose answer nobody waits for any more."""
    use.is_over = True
    connection = use.connection
    if connection is None:
        task.cancel()
        await asyncio.wait({task})
        return
    try:
        with suppress(psycopg.Error):
            await connection.cancel_safe(timeout=CANCEL_SECONDS)
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)
    finally:
        if not task.done():
            _cut(connection)
    await asyncio.wait({task})


def _heard(task: asyncio.Task[Any]) -> None:
    """Else the loop complains of an error that nobody took."""
    if not task.cancelled():
        task.exception()


def _cut(connection: Connection) -> None:
    """Cut the connection, so that a waiting call ends; the server undoes what it has begun."""
    with suppress(psycopg.Error, OSError):
        line = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with line:
            line.shutdown(socket.SHUT_RDWR)


@contextmanager
def _entering() -> Iterator[None]:
    try:
        yield
    except psycopg.ProgrammingError as error:
        raise _no_entry(error) from error
    except psycopg.OperationalError as error:
        if _REFUSED.search(str(error)) is None and not _is_nowhere(str(error)):
            raise
        raise _no_entry(error) from error


def _is_nowhere(said: str) -> bool:
    return _LOOKUP.search(said) is not None and is_unknown_host(said)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except WRONG_NAMES as error:
        raise wrong_names(error.diag.message_primary) from error
    except errors.InsufficientPrivilege as error:
        raise _no_entry(error) from error
    except PASSING as error:
        said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
        raise SinkUnavailable(f"PostgreSQL is out of reach: {said}") from error


def _no_entry(error: psycopg.Error) -> InvalidInput:
    return InvalidInput(f"PostgreSQL does not let us in: {error}"[:SAID_LIMIT_CHARS])
