"""Writes into an SQLite file that may be repeated."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import apsw

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import check_timeout
from holdfast.sinks.tables import (
    CREATE_FENCES,
    SAID_LIMIT_CHARS,
    TIMEOUT_SECONDS,
    Guarded,
    Statement,
    Tables,
    wrong_names,
)

R = TypeVar("R")

# Another process writes, the disk is full or away. What else SQLite says is the caller's to mend.
PASSING = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.NoMemError,
    apsw.InterruptError,
)
PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


class Sqlite(Tables):
    """One connection, used in threads, one call at a time. A call waits up to
    ``timeout_seconds`` for the other writers of the file; past it, it is SinkUnavailable."""

    mark = "?"
    greatest = "max"

    def __init__(
        self, path: str | os.PathLike[str], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._path = os.fspath(path)
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None

    async def open(self) -> Self:
        await self._in_thread(lambda _: None)
        return self

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def create_fences(self) -> None:
        await self._in_thread(lambda connection: _in_transaction(connection, CREATE_FENCES))

    async def _run(self, statement: Statement, guarded: Guarded | None) -> bool:
        return await self._in_thread(lambda connection: _write(connection, statement, guarded))

    async def _in_thread(self, work: Callable[[apsw.Connection], R]) -> R:
        def done() -> R:
            with self._reaching():
                return work(self._opened())

        return await asyncio.to_thread(done)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._timeout_seconds):
            raise SinkUnavailable(f"{self._path} is written to by others all the time")
        try:
            yield
        except PASSING as error:
            self._forget_connection()
            said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
            raise SinkUnavailable(f"{self._path} cannot be written now: {said}") from error
        except apsw.SQLError as error:
            raise wrong_names(error) from error
        finally:
            self._lock.release()

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = _connected(self._path, self._timeout_seconds)
        return self._connection

    def _close(self) -> None:
        with self._lock:
            self._forget_connection()

    def _forget_connection(self) -> None:
        """The next call begins with a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)


def _connected(path: str, timeout_seconds: float) -> apsw.Connection:
    connection = apsw.Connection(path)
    try:
        connection.set_busy_timeout(int(timeout_seconds * 1000))
        for pragma in PRAGMAS:
            connection.execute(pragma).fetchall()
    except BaseException:
        connection.close(True)
        raise
    return connection


def _write(connection: apsw.Connection, statement: Statement, guarded: Guarded | None) -> bool:
    with _transaction(connection):
        if guarded is not None:
            (seen,) = _rows(connection, guarded.statement)[0]
            if seen > guarded.guard.fence:
                raise StaleFence(guarded.guard.scope, guarded.guard.fence, seen)
        return bool(_rows(connection, statement))


def _in_transaction(connection: apsw.Connection, sql: str) -> None:
    with _transaction(connection):
        connection.execute(sql)


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it
            connection.execute("ROLLBACK")
        raise


def _rows(connection: apsw.Connection, statement: Statement) -> list[Any]:
    try:
        return connection.execute(statement.sql, statement.values).fetchall()
    except (TypeError, OverflowError) as error:
        raise InvalidInput(f"SQLite cannot keep a value of the row: {error}") from error
