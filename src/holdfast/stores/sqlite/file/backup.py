"""A backup copies the store's file as it is at one moment, while others write.

The pages are read inside one read transaction, so that no commit makes the copy start again. They
go into a temporary file beside the target. That file is opened as a store, checked and synced to
the disk, and only then gets the target's name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from contextlib import closing, suppress
from pathlib import Path

import apsw

from holdfast.domain.errors import BackupRefused, StoreUnusable
from holdfast.ports.store import Copy
from holdfast.stores.sqlite.file import faults
from holdfast.stores.sqlite.file.connections import open_reader, open_writer
from holdfast.stores.sqlite.file.readers import snapshot
from holdfast.stores.sqlite.file.writer import INDEX, LOCK_SECONDS, LOG
from holdfast.stores.sqlite.statements import SQL

PAGES = 2_000  # copied in one step; between two steps the copy can be cancelled
OWN_FILES = ("", LOG, INDEX, "-journal")
MODE = 0o600  # other users must not read payloads


class Copying:
    """One copy, made in a thread of its own."""

    def __init__(self, source: Path, target: Path, *, namespace: str) -> None:
        self._source, self._namespace = source, namespace
        self._target = target = target.absolute()
        # The name is short: with a suffix, a valid target name could become too long.
        self._part = target.parent / f".holdfast-{secrets.token_hex(4)}.part"
        self._unwanted = threading.Event()

    async def run(self) -> Copy:
        """Make the copy; if cancelled, wait for the thread and leave nothing behind."""
        thread = asyncio.ensure_future(asyncio.to_thread(self._make))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._unwanted.set()
            with suppress(Exception):
                await thread
            raise

    def _make(self) -> Copy:
        self._check_target()
        try:
            os.close(os.open(self._part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
            self._copy()
            self._verify()
            _sync(self._part)
            self._name()
        except apsw.Error as error:
            raise faults.translate(error, self._part) from error
        except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
            raise _unwritable(self._target, error) from error
        finally:
            for suffix in OWN_FILES:
                with suppress(OSError, ValueError):  # the first error is raised
                    Path(f"{self._part}{suffix}").unlink(missing_ok=True)
        return Copy(path=str(self._target), size_bytes=self._target.stat().st_size)

    def _check_target(self) -> None:
        for suffix in OWN_FILES:  # SQLite would take the log of another file for the copy's
            name = Path(f"{self._target}{suffix}")
            if os.path.lexists(name):
                raise BackupRefused(f"{name} exists already: name a new file for the copy")
        if not self._target.parent.is_dir():
            raise BackupRefused(f"there is no directory {self._target.parent}; create it")

    def _copy(self) -> None:
        with (
            closing(open_reader(self._source)) as source,
            closing(_new(self._part)) as part,
            snapshot(source),
        ):
            source.execute(SQL["first_table"]).fetchone()  # the snapshot begins with a read
            with part.backup("main", source, "main") as backup:
                while not backup.done:
                    self._check_wanted()
                    backup.step(PAGES)

    def _verify(self) -> None:
        """Open the copy as a store does, and check all of it."""
        part = open_writer(self._part, namespace=self._namespace, lock_seconds=LOCK_SECONDS)
        with closing(part):
            self._check_wanted()
            for (result,) in part.execute(SQL["quick_check"]):
                if result != "ok":
                    damage = f"{self._source} is damaged and cannot be copied: {result}"
                    raise StoreUnusable(damage)

    def _name(self) -> None:
        """Give the copy its name by a link, which never replaces a file; rename it where the file
        system has no links.
        """
        try:
            os.link(self._part, self._target)
        except FileExistsError:
            raise BackupRefused(f"{self._target} exists already: name a new file") from None
        except OSError:
            self._check_target()
            os.rename(self._part, self._target)
        _sync(self._target.parent)

    def _check_wanted(self) -> None:
        if self._unwanted.is_set():
            raise BackupRefused("the copy was cancelled")


def _new(path: Path) -> apsw.Connection:
    """Open the copy without a journal or syncs: after a crash, nobody needs it."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute(SQL["copying"]).fetchall()
    return db


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(target: Path, error: OSError | ValueError) -> Exception:
    if isinstance(error, OSError) and error.errno in faults.NO_ROOM:
        return faults.full(target)
    return BackupRefused(f"{target} cannot be written: {error}")
