"""The sink for PostgreSQL makes writes that may be repeated. It needs
``holdfast-engine[postgres]``.

The sink keeps a few connections itself. psycopg's pool would wait in the background for a server
that is down and answer with a timeout, where a stage should get the cause at once.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeAlias, TypeVar

from holdfast.domain.errors import InvalidInput, SinkUnavailable
from holdfast.sinks.fences import (
    FENCES,
    MESSAGE_LIMIT_CHARS,
    TIMEOUT_SECONDS,
    FenceGuard,
    check_timeout,
    driver_message,
    find_wrong_value,
    wrong_value,
)
from holdfast.sinks.hosts import is_unknown_host
from holdfast.sinks.tables import CREATE_FENCES, Statement, Tables, wrong_names

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

# These errors pass: a connection that is lost or refused, a server that shuts down or is out of
# room or connections, a lost race; a server that was the primary until now, or that ended a
# transaction because it was idle. The caller has to mend all others.
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
    errors.ObjectNotInPrerequisiteState,  # the index can be deferred, or the table is a view
)
# The value is wrong, or a column of this type or its index does not take it.
WRONG_VALUES = (
    psycopg.DataError,
    errors.DatatypeMismatch,
    errors.CannotCoerce,
    errors.IndeterminateDatatype,
    errors.ProgramLimitExceeded,
)
# The driver has no class of its own for each value that it cannot hand over.
UNKNOWN_VALUES = (psycopg.ProgrammingError, psycopg.DataError, TypeError, ValueError, OverflowError)

# The driver does not pass on the code of an error while it connects, only this text. A server that
# speaks another language than English counts as out of reach. A connection "is bad" when a setting
# is refused, but also when nobody listens at a socket: the next word decides.
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
            raise InvalidInput(f"connections={connections!r} must be at least 1")
        self._dsn = dsn
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._connections = connections
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._idle: list[Connection] = []
        self._closings = 0

    async def open(self) -> Self:
        await self._with(_do_nothing)
        return self

    async def close(self) -> None:
        """Close the idle connections; a call that is under way closes its own at its end."""
        self._closings += 1
        while self._idle:
            await self._idle.pop().close()

    async def create_fences(self) -> None:
        await self._with(_create_fences)

    async def _run(self, statement: Statement, guard: FenceGuard | None) -> bool:
        return await self._with(lambda connection: self._write(connection, statement, guard))

    async def _write(
        self, connection: Connection, statement: Statement, guard: FenceGuard | None
    ) -> bool:
        async with connection.transaction():
            if guard is not None:
                ((highest,),) = await _rows(connection, self._raise_fence(guard))
                guard.check(highest)
            return bool(await _rows(connection, statement))

    async def _with(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        """Run the work in a task of its own.

        If a query were cancelled directly, the driver would tell the server and wait five seconds
        for each of two answers.
        """
        use = Use(self._closings)
        task = asyncio.create_task(self._use(use, work))
        task.add_done_callback(_take_error)
        with _translated_errors():
            try:
                done, _ = await asyncio.wait({task}, timeout=self._timeout_seconds)
                if not done:
                    reason = f"no answer within {self._timeout_seconds:g} s"
                    raise SinkUnavailable(f"PostgreSQL is out of reach: {reason}")
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
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,  # each call opens its own transaction
                prepare_threshold=None,  # a pooler before the server may not keep them
            )
        except psycopg.Error as error:
            if not _is_refusal(error):
                raise
            raise _no_access(error) from error
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
    """Refuse an address with a password that is not escaped.

    Such a password ends at its first ``@`` or ``/``. The rest of it would count as a host, be sent
    to a name server and be shown in errors.
    """
    try:
        parsed = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeError):
        parsed = None  # the driver's message repeats the password
    if (
        parsed is None
        or "@" in str(parsed.get("host", ""))
        or not _PORTS.fullmatch(str(parsed.get("port", "")))
        or _AT_IN_PATH.match(dsn)
    ):
        escaped = "in a password, @ is written %40 and / is written %2F"
        raise InvalidInput(f"this is no address of a PostgreSQL server; {escaped}")


async def _do_nothing(_connection: Connection) -> None:
    pass


async def _create_fences(connection: Connection) -> None:
    async with connection.transaction():
        # Without the lock, two sessions that create the table at once would fail on its name.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (FENCES,))
        await connection.execute(CREATE_FENCES)


async def _rows(connection: Connection, statement: Statement) -> list[tuple[Any, ...]]:
    try:
        cursor = await connection.execute(statement.sql.encode(), statement.parameters)
        return await cursor.fetchall()
    except (*WRONG_VALUES, *UNKNOWN_VALUES) as error:
        name = _find_parameter(error, statement) or find_wrong_value(
            statement.values,
            lambda _, value: Transformer(connection).dump_sequence([value], [PyFormat.AUTO]),
            UNKNOWN_VALUES,
        )
        if isinstance(error, WRONG_VALUES):
            raise wrong_value(name, error.diag.message_primary or error) from error
        if name is None:
            raise  # the error is the server's, or it came from elsewhere
        raise wrong_value(name, error) from error


def _find_parameter(error: Exception, statement: Statement) -> str | None:
    """Return the name of the value that the server's error points at."""
    if not isinstance(error, WRONG_VALUES):
        return None
    number = _PARAMETER.search(error.diag.context or "")
    return list(statement.values)[int(number[1]) - 1] if number else None


class Use:
    """The connection that a call uses, once it has one."""

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


def _take_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task, because the loop logs one that nobody took."""
    if not task.cancelled():
        task.exception()


def _cut(connection: Connection) -> None:
    """Cut the connection, so that a waiting call ends; the server undoes what it has begun."""
    with (
        suppress(psycopg.Error, OSError),
        socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as end,
    ):
        end.shutdown(socket.SHUT_RDWR)


def _is_refusal(error: psycopg.Error) -> bool:
    """Return whether an error while connecting lasts until somebody mends the address or rights."""
    if not isinstance(error, psycopg.OperationalError):
        return isinstance(error, psycopg.ProgrammingError)
    message = str(error)
    is_nowhere = _LOOKUP.search(message) is not None and is_unknown_host(message)
    return is_nowhere or _REFUSED.search(message) is not None


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except WRONG_NAMES as error:
        raise wrong_names(error.diag.message_primary) from error
    except errors.InsufficientPrivilege as error:
        raise _no_access(error) from error
    except PASSING as error:
        raise SinkUnavailable(f"PostgreSQL is out of reach: {driver_message(error)}") from error


def _no_access(error: psycopg.Error) -> InvalidInput:
    return InvalidInput(f"PostgreSQL refuses access: {error}"[:MESSAGE_LIMIT_CHARS])
