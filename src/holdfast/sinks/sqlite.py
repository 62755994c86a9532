"""The sink for an SQLite file makes writes that may be repeated."""

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

from holdfast.domain.errors import InvalidInput, SinkUnavailable
from holdfast.sinks.fences import (
    TIMEOUT_SECONDS,
    FenceGuard,
    check_timeout,
    driver_message,
    find_wrong_value,
    wrong_value,
)
from holdfast.sinks.tables import CREATE_FENCES, Statement, Tables, wrong_names

R = TypeVar("R")

# These errors pass: another process writes, the disk is full or away. The caller has to mend all
# others.
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
# These errors of this file, for this user, last until somebody mends it.
REFUSING = (apsw.NotADBError, apsw.ReadOnlyError, apsw.PermissionsError)
# Apsw has no class of its own for a value that it cannot hand over.
UNKNOWN_VALUES = (TypeError, ValueError, OverflowError)

LOCK_POLL_SECONDS = 0.02  # SQLite tells nobody that a lock is free
GRACE_SECONDS = 0.2  # for SQLite's own error about a lock, which says more than ours
OPENINGS = 2  # the first may find the file gone and create it, the second knows which file it is
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
        """Wait a moment; return False if the time is over or nobody waits for the answer."""
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
        await self._in_thread(_create_fences)

    async def _run(self, statement: Statement, guard: FenceGuard | None) -> bool:
        return await self._in_thread(lambda connection: self._write(connection, statement, guard))

    def _write(
        self, connection: apsw.Connection, statement: Statement, guard: FenceGuard | None
    ) -> bool:
        with _transaction(connection):
            if guard is not None:
                ((highest,),) = _rows(connection, self._raise_fence(guard))
                guard.check(highest)
            return bool(_rows(connection, statement))

    async def _in_thread(self, work: Callable[[apsw.Connection], R]) -> R:
        """Run the work in the thread; a call that is given up before its turn never begins, after
        that it may still be written.
        """
        call = self._put(lambda: self._work_on_file(work))
        try:
            async with asyncio.timeout(self._timeout_seconds + GRACE_SECONDS):
                return await asyncio.wrap_future(call.answer)
        except TimeoutError as error:
            raise self._unavailable(f"not done within {self._timeout_seconds:g} s") from error
        finally:
            call.give_up()
            with self._lock, suppress(ValueError):
                self._waiting.remove(call)

    def _unavailable(self, reason: str) -> SinkUnavailable:
        return SinkUnavailable(f"{self._path} cannot be written now: {reason}")

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
            raise self._unavailable("the system cannot start a thread") from error
        self._at_work = True

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

    def _work_on_file(self, work: Callable[[apsw.Connection], R]) -> R:
        try:
            answer = work(self._connect())
        except (*PASSING, *REFUSING) as error:
            self._forget_connection()  # a connection that was opened read-only stays so
            message = driver_message(error)
            if self._is_lasting(error):
                lasting = f"{self._path} cannot be used as a database: {message}"
                raise InvalidInput(lasting) from error
            raise self._unavailable(message) from error
        except apsw.SQLError as error:
            raise wrong_names(error) from error
        if self._is_replaced():  # for example while the call waited for a lock
            raise SinkUnavailable(f"{self._path} was moved or replaced during the write")
        return answer

    def _is_lasting(self, error: apsw.Error) -> bool:
        """Return whether somebody has to mend the file or its name.

        A missing folder, or a path that is a folder, is a wrong name. Otherwise a file that cannot
        be opened may pass: the process may have too many files open.
        """
        if not isinstance(error, apsw.CantOpenError):
            return isinstance(error, REFUSING)
        path = Path(self._path)
        return not path.parent.is_dir() or path.is_dir()

    def _connect(self) -> apsw.Connection:
        """Return a connection to the file that exists now; a missing file is created."""
        connection = self._connection or self._open_anew()
        for _ in range(OPENINGS):
            if not self._is_replaced():
                break
            connection = self._open_anew()
        return connection

    def _open_anew(self) -> apsw.Connection:
        self._forget_connection()
        self._file = _file_at(self._path)  # later, this could be a file that came after it
        connection = apsw.Connection(self._path)
        try:
            connection.set_busy_handler(self._wait)
            for pragma in PRAGMAS:
                connection.execute(pragma).fetchall()
        except BaseException:
            connection.close(True)
            raise
        self._connection = connection
        return connection

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


def _create_fences(connection: apsw.Connection) -> None:
    with _transaction(connection):
        connection.execute(CREATE_FENCES)


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
        return connection.execute(statement.sql, statement.parameters).fetchall()
    except (*UNKNOWN_VALUES, apsw.MismatchError, apsw.TooBigError) as error:
        bad = (*UNKNOWN_VALUES, apsw.TooBigError)
        name = find_wrong_value(
            statement.values, lambda _, value: connection.execute("SELECT ?", (value,)), bad
        )
        raise wrong_value(name, error) from error
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", None) != apsw.SQLITE_CONSTRAINT_DATATYPE:
            raise
        raise wrong_value(None, error) from error  # which names the column
