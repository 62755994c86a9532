"""The guard refuses to let this process open a store's file past the store.

POSIX locks belong to a process and an inode: as soon as anybody in the process closes a handle of
the file, the kernel drops all locks that SQLite holds on it, and the next writers of two processes
write at the same time. Python's own `sqlite3` is a second SQLite that knows nothing of the first,
so even reading through it destroys the file; so do `open` and a copy.

An audit hook sees each `open` and each `sqlite3.connect` before it happens. It cannot be removed,
so it lets everything pass while no store is open. It cannot see an ATTACH, a file opened by another
C library, or a name relative to a `dir_fd`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from holdfast.domain.errors import StoreFileInUse

Inode: TypeAlias = tuple[int, int]

URI = "file:"

log = logging.getLogger("holdfast.stores.sqlite.guard")


class FileGuard:
    """The inodes that this process must not open, and how many open stores each belongs to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: Counter[Inode] = Counter()
        self.guarded: Mapping[Inode, str] = {}  # replaced, never changed: read without the lock
        self._is_installed = False

    def protect(self, path: Path, inodes: Collection[Inode]) -> None:
        """Refuse from now on that this process opens one of the inodes by another way."""
        with self._lock:
            self._install()
            self._holders.update(inodes)
            self.guarded = {**self.guarded, **dict.fromkeys(inodes, str(path))}

    def release(self, inodes: Collection[Inode]) -> None:
        """Let the inodes be opened again, once no other store has them open."""
        with self._lock:
            self._holders.subtract(inodes)
            self._holders = +self._holders
            self.guarded = {
                inode: path for inode, path in self.guarded.items() if inode in self._holders
            }

    def _install(self) -> None:
        if self._is_installed:
            return
        self._is_installed = True
        os.register_at_fork(after_in_child=self._forget)
        try:
            sys.addaudithook(self._watch)
        except Exception as error:  # another hook forbids it
            log.warning("the store's file cannot be guarded against a second SQLite: %s", error)

    def _forget(self) -> None:
        """Forget all files in a forked child, which has none of its parent's locks to lose."""
        self._lock, self._holders, self.guarded = threading.Lock(), Counter(), {}

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse an open of a guarded file; most audit events of the process end here at once."""
        if event == "open":
            if self.guarded:
                self._refuse(arguments[0])
        elif event == "sqlite3.connect" and self.guarded:
            self._refuse(arguments[0])
            uri = _text(arguments[0])
            if uri.startswith(URI):
                self._refuse(_path_of_uri(uri))

    def _refuse(self, name: Any) -> None:
        if isinstance(name, int):  # a descriptor: its file was checked when it was opened
            return
        try:
            status = os.stat(name)
        except (OSError, ValueError, TypeError):  # there is no such file, or it is no name
            return
        path = self.guarded.get((status.st_dev, status.st_ino))
        if path is not None:
            raise StoreFileInUse(_text(name), path)


def _text(name: Any) -> str:
    try:
        return os.fsdecode(name)
    except TypeError:
        return ""


def _path_of_uri(uri: str) -> str:
    """Return the path of a `file:` URI as SQLite reads it: an authority is always this machine."""
    path = uri.removeprefix(URI).partition("#")[0].partition("?")[0]
    if path.startswith("//"):
        path = f"/{path.removeprefix('//').partition('/')[2]}"
    return unquote(path)


GUARD = FileGuard()
