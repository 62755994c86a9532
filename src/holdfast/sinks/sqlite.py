"""Writes into an SQLite file that may be repeated."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import apsw

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import SAID_LIMIT_CHARS, check_timeout, wrong_value
from holdfast.sinks.tables import (
    CREATE_FENCES,
    TIMEOUT_SECONDS,
    FenceStatement,
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
# This file, for this user: it stays so until somebody mends it.
REFUSING = (apsw.NotADBError, apsw.ReadOnlyError, apsw.PermissionsError)
# Apsw has no class of its own for a value that it cannot hand over.
UNKNOWN_VALUES = (TypeError, ValueError, OverflowError)

LOCK_POLL_SECONDS = 0.02  # SQLite tells nobody that a lock is free
GRACE_SECONDS = 0.2  # for SQLite's own word on a lock, which says more than ours
OPENINGS = 2  # one may find the file gone and create it, the next one knows which it then is
NO_FILES = ("", ":memory:")
PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


class ThreadCall(Generic[R]):
    """A call for the sink's thread, with the time until which its caller waits."""

    def __init__(self, work: Callable[[], R], *, timeout_seconds: float) -> None:
        self._work = work
        self._until = time.monotonic() + timeout_seconds
        self._given_up = threading.Event()
        self.answer: Future[R] = Future()

    def do(self) -> None:
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            self.answer.set_result(self._work())
        except BaseException as error:
            self.answer.set_exception(error)

    def give_up(self) -> None:
        self._given_up.set()

    def wait(self) -> bool:
        """A moment. False: no longer, it is late or nobody waits for the answer."""
        left_seconds = self._until - time.monotonic()
        if left_seconds <= 0:
            return False
        return not self._given_up.wait(min(LOCK_POLL_SECONDS, left_seconds))


class Sqlite(Tables):
    """A sink on a file, with one connection in a thread of its own, one call at a time.

    A call ends within ``timeout_seconds``, including the turns of others and their locks on the
    file; after that it raises SinkUnavailable. The thread is not from the event loop's pool, where
    waiting callers would delay everybody, and the interpreter does not wait for it at exit.

    The sink checks whether the file was replaced: in WAL mode, SQLite would continue with the old
    one.
    """

    mark = "?"
    greatest = "max"

    def __init__(
        self, path: str | os.PathLike[str], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._path = _absolute(os.fspath(path))
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._lock = threading.Lock()  # of the three below, never held for long
        self._waiting: deque[ThreadCall[Any]] = deque()
        self._running: ThreadCall[Any] | None = None
        self._at_work = False
        self._connection: apsw.Connection | None = None  # the thread's, as is the next
        self._file: tuple[int, int] | None = None

    async def open(self) -> Self:
        await self._in_thread(lambda _: None)
        return self

    async def close(self) -> None:
        """Close after the earlier calls; if one of them hangs, as soon as it has returned."""
        call = self._put(self._forget_connection)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_seconds + GRACE_SECONDS):
                await asyncio.shield(asyncio.wrap_future(call.answer))

    async def create_fences(self) -> None:
        await self._in_thread(lambda connection: _in_transaction(connection, CREATE_FENCES))

    async def _run(self, statement: Statement, guarded: FenceStatement | None) -> bool:
        return await self._in_thread(lambda connection: _write(connection, statement, guarded))

    async def _in_thread(self, work: Callable[[apsw.Connection], R]) -> R:
        """Run the work in the thread; a call that is given up before its turn never begins, after
        that it may still be written.
        """
        call = self._put(lambda: self._reached(work))
        try:
            async with asyncio.timeout(self._timeout_seconds + GRACE_SECONDS):
                return await asyncio.wrap_future(call.answer)
        except TimeoutError as error:
            said = f"not done within {self._timeout_seconds:g} s"
            raise SinkUnavailable(f"{self._path} cannot be written now: {said}") from error
        finally:
            self._drop(call)

    def _put(self, work: Callable[[], R]) -> ThreadCall[R]:
        call = ThreadCall(work, timeout_seconds=self._timeout_seconds)
        with self._lock:
            if not self._at_work:
                self._start()
            self._waiting.append(call)
        return call

    def _start(self) -> None:
        """Start the thread; it waits for the lock that is held here, so it finds the next call."""
        try:
            threading.Thread(target=self._work, name="holdfast-sink", daemon=True).start()
        except RuntimeError as error:
            said = "the system cannot start a thread"
            raise SinkUnavailable(f"{self._path} cannot be written now: {said}") from error
        self._at_work = True

    def _drop(self, call: ThreadCall[Any]) -> None:
        call.give_up()
        with self._lock, suppress(ValueError):
            self._waiting.remove(call)

    # -- the thread

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.do()

    def _next(self) -> ThreadCall[Any] | None:
        with self._lock:
            self._at_work = bool(self._waiting)
            self._running = self._waiting.popleft() if self._waiting else None
            return self._running

    def _wait(self, _count: int) -> bool:
        """Answer SQLite, which asks before it tries a lock again."""
        return self._running is not None and self._running.wait()

    def _reached(self, work: Callable[[apsw.Connection], R]) -> R:
        try:
            return self._done(work)
        except apsw.CantOpenError as error:
            self._forget_connection()
            raise self._unopened(error) from error
        except PASSING as error:
            self._forget_connection()
            said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
            raise SinkUnavailable(f"{self._path} cannot be written now: {said}") from error
        except REFUSING as error:
            self._forget_connection()  # what was opened read-only stays so
            said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
            raise InvalidInput(f"{self._path} cannot be used as a database: {said}") from error
        except apsw.SQLError as error:
            raise wrong_names(error) from error

    def _unopened(self, error: apsw.CantOpenError) -> InvalidInput | SinkUnavailable:
        """Return the error for a file that cannot be opened.

        A missing folder, or a path that is a folder, is a wrong name. Otherwise the error may pass:
        the process may have too many files open.
        """
        said = f"{type(error).__name__}: {error}"[:SAID_LIMIT_CHARS]
        path = Path(self._path)
        if not path.parent.is_dir() or path.is_dir():
            return InvalidInput(f"{self._path} cannot be used as a database: {said}")
        return SinkUnavailable(f"{self._path} cannot be written now: {said}")

    def _done(self, work: Callable[[apsw.Connection], R]) -> R:
        answer = work(self._opened())
        if self._is_replaced():  # while it waited for a lock, say
            raise SinkUnavailable(f"{self._path} was moved or replaced during the write")
        return answer

    def _opened(self) -> apsw.Connection:
        """Return a connection to the file that exists now; a missing file is created."""
        connection = self._connection or self._open_anew()
        for _ in range(OPENINGS):
            if not self._is_replaced():
                break
            connection = self._open_anew()
        return connection

    def _open_anew(self) -> apsw.Connection:
        self._forget_connection()
        self._file = _file_at(self._path)  # seen afterwards, it might be one that came after it
        self._connection = _connected(self._path, self._wait)
        return self._connection

    def _is_replaced(self) -> bool:
        return self._file != _file_at(self._path)

    def _forget_connection(self) -> None:
        """Close the connection; the next call opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)


def _absolute(path: str) -> str:
    """Return the absolute path, so that a process that changes its folder keeps the same file."""
    return path if path in NO_FILES else str(Path(path).absolute())


def _file_at(path: str) -> tuple[int, int] | None:
    """Return which file is at the path, whatever its name; None if there is none that can be
    reached.
    """
    if path in NO_FILES:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connected(path: str, wait: Callable[[int], bool]) -> apsw.Connection:
    connection = apsw.Connection(path)
    try:
        connection.set_busy_handler(wait)
        for pragma in PRAGMAS:
            connection.execute(pragma).fetchall()
    except BaseException:
        connection.close(True)
        raise
    return connection


def _write(
    connection: apsw.Connection, statement: Statement, guarded: FenceStatement | None
) -> bool:
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
    except (*UNKNOWN_VALUES, apsw.MismatchError, apsw.TooBigError) as error:
        raise wrong_value(_refused(connection, statement), error) from error
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", None) != apsw.SQLITE_CONSTRAINT_DATATYPE:
            raise
        raise wrong_value(None, error) from error  # which names the column


def _refused(connection: apsw.Connection, statement: Statement) -> str | None:
    """Return the first value that SQLite cannot store by itself."""
    for name, value in zip(statement.names, statement.values, strict=True):
        try:
            connection.execute("SELECT ?", (value,))
        except (*UNKNOWN_VALUES, apsw.TooBigError):
            return name
    return None
