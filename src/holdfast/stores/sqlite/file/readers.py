"""Connections that only read, so that reads do not queue behind writes."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from holdfast.stores.sqlite.file import faults
from holdfast.stores.sqlite.file.writer import Identity
from holdfast.stores.sqlite.statements import SQL

READERS = 2

P = ParamSpec("P")
T = TypeVar("T")


class ReadView:
    """A consistent view of the file."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def row(self, name: str, *values: Any) -> Any:
        return self.db.execute(SQL[name], values).fetchone()

    def iterate(self, name: str, *values: Any) -> Iterator[Any]:
        """Yield the rows, each read when it is needed."""
        return iter(self.db.execute(SQL[name], values))

    def rows(self, name: str, *values: Any) -> list[Any]:
        return self.db.execute(SQL[name], values).fetchall()


class Readers:
    def __init__(
        self, path: Path, identity: Identity, connect: Callable[[Path], apsw.Connection]
    ) -> None:
        self._path, self._identity = path, identity
        self._free: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        for _ in range(READERS):
            self._free.put(connect(path))
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-sqlite-read")

    async def do(
        self, read: Callable[Concatenate[ReadView, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Call the read in a thread, with a consistent view before its own arguments."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._read, read, args, options)

    def _read(self, read: Callable[..., T], args: Any, options: Any) -> T:
        db = self._free.get()
        try:
            self._identity.check()
            with snapshot(db):
                return read(ReadView(db), *args, **options)
        except apsw.Error as error:
            raise faults.translate(error, self._path, db.system_errno) from error
        finally:
            self._free.put(db)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        for _ in range(READERS):
            self._free.get().close()


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Run a block on one consistent view of the file.

    An error inside is raised as it is: SQLite may have ended the transaction by itself, and the
    error of a second rollback would hide why.
    """
    db.execute(SQL["begin_reading"])
    try:
        yield
    except BaseException:
        if db.in_transaction:
            with suppress(apsw.Error):
                db.execute(SQL["roll_back"])
        raise
    db.execute(SQL["roll_back"])
