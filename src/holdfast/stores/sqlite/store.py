"""The SQLite store: opens the file and hands its writer and readers to the five parts."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import apsw

from holdfast.ports import Clock, Topic
from holdfast.ports.store import Copy, FileStore
from holdfast.stores.signals import Signals
from holdfast.stores.single_partition import SinglePartition
from holdfast.stores.sqlite.admin.store import SqliteAdmin
from holdfast.stores.sqlite.file import clock as boot
from holdfast.stores.sqlite.file import faults
from holdfast.stores.sqlite.file.backup import Copying
from holdfast.stores.sqlite.file.connections import open_reader, open_writer
from holdfast.stores.sqlite.file.guard import GUARD
from holdfast.stores.sqlite.file.open_parts import OpenParts
from holdfast.stores.sqlite.file.readers import Readers
from holdfast.stores.sqlite.file.writer import LOCK_SECONDS, Identity, Writer, patiently
from holdfast.stores.sqlite.plans.store import SqlitePlans
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.tasks.store import SqliteTasks
from holdfast.stores.sqlite.transaction import StoreClock
from holdfast.stores.sqlite.triggers.store import SqliteTriggers
from holdfast.stores.sqlite.views.store import SqliteViews

CLOSE_SECONDS = 30.0

log = logging.getLogger("holdfast.stores.sqlite.store")


class SqliteStore(SinglePartition):
    """A store in an SQLite file.

    ``boot_id`` names the machine's present start; tests pass one to simulate a restart.
    """

    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock,
        namespace: str = "executor",
        *,
        boot_id: str | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._clock, self._namespace = clock, namespace
        self._boot_id, self._lock_seconds = boot_id, lock_seconds
        self._signals = Signals(clock)
        self.ticket = self._signals.ticket
        self._opened: OpenParts | None = None
        self.tasks = SqliteTasks(self._open_here)
        self.views = SqliteViews(self._open_here)
        self.admin = SqliteAdmin(self._open_here)
        self.plans = SqlitePlans(self._open_here)
        self.triggers = SqliteTriggers(self._open_here)

    async def open(self) -> None:
        if self._opened is None:
            self._opened = await asyncio.to_thread(self._open)

    def _open(self) -> OpenParts:
        boot_id = self._boot_id or boot.read_boot_id()
        db = self._connect()
        try:
            clock = self._set_clock(db, boot_id)
            identity = Identity(self.path)
            readers = Readers(self.path, identity, open_reader)
        except BaseException:
            db.close()
            raise
        GUARD.protect(self.path, identity.inodes)
        writer = Writer(
            db,
            self.path,
            clock,
            self._signals.notify,
            self._connect,
            identity=identity,
            lock_seconds=self._lock_seconds,
        )
        return OpenParts(os.getpid(), clock, writer, readers, identity)

    def _connect(self) -> apsw.Connection:
        return open_writer(self.path, namespace=self._namespace, lock_seconds=self._lock_seconds)

    def _set_clock(self, db: apsw.Connection, boot_id: str) -> StoreClock:
        try:
            patiently(lambda: db.execute(SQL["begin_writing"]), seconds=self._lock_seconds)
            clock = boot.set_clock(db, self._clock, boot_id)
            db.execute(SQL["commit"])
        except apsw.Error as error:
            raise faults.translate(error, self.path, db.system_errno) from error
        return clock

    async def close(self) -> None:
        if self._opened is None:
            return
        opened, self._opened = self._open_here(), None
        await asyncio.to_thread(self._close, opened)

    async def detach(self) -> None:
        """Do nothing: no connection belongs to an event loop."""

    def _close(self, opened: OpenParts) -> None:
        if not opened.writer.close(timeout=CLOSE_SECONDS):
            log.error("writes to %s did not end in %g s", self.path, CLOSE_SECONDS)
        opened.readers.close()
        GUARD.release(opened.identity.inodes)

    def _open_here(self) -> OpenParts:
        if self._opened is None:
            raise faults.not_open(self.path)
        if self._opened.pid != os.getpid():
            raise faults.after_fork(self.path)
        return self._opened

    @property
    def _writer(self) -> Writer:
        return self._open_here().writer

    @property
    def file(self) -> FileStore:
        return self

    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy the store as it is now into a new file, while everything goes on."""
        opened = self._open_here()
        copying = Copying(self.path, Path(target), namespace=self._namespace)
        GUARD.protect(
            self.path, opened.identity.inodes
        )  # the copy may take longer than the store is open
        try:
            return await copying.run()
        finally:
            GUARD.release(opened.identity.inodes)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        with self._writer.watching():
            await self._signals.wait(topic, ticket, timeout=timeout)
