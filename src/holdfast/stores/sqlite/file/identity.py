"""Are the store's file and the two beside it still the ones that were opened?

A file that was removed or moved away stays open and takes every commit, and nobody finds it again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from holdfast.domain.errors import StoreUnusable
from holdfast.stores.sqlite.file import faults

Inode: TypeAlias = tuple[int, int]

LOG, INDEX = "-wal", "-shm"


class Identity:
    """The inodes of a store that is open now. They are asked for by path and never opened for this:
    closing one more handle would take SQLite's locks from the whole process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        beside = os.path.realpath(path)  # where a link leads, SQLite writes its log
        self._names = (str(path), f"{beside}{LOG}", f"{beside}{INDEX}")
        self.inodes = tuple(self._inode_at(name) for name in self._names)

    def check(self) -> None:
        """Raise if one of the files is not there any more: nothing may be written or read then."""
        for name, opened in zip(self._names, self.inodes, strict=True):
            if self._inode_at(name) != opened:
                raise self._gone(name)

    def check_committed(self) -> None:
        """Raise if a commit just made went into a file that is not there any more."""
        try:
            self.check()
        except StoreUnusable as error:
            raise faults.taken_away(self._path, error) from error

    def _inode_at(self, name: str) -> Inode:
        try:
            found = os.stat(name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._gone(name) from error
        except OSError as error:
            raise faults.away(self._path, error) from error
        return found.st_dev, found.st_ino

    def _gone(self, name: str) -> Exception:
        if name == self._names[0]:
            return faults.moved(self._path)
        return faults.log_removed(self._path, name)
