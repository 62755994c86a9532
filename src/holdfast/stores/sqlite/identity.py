"""Is the file at the path still the one that was opened?

A file that was removed or moved away stays open and takes every commit, and nobody finds it again.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.stores.sqlite import faults


class Identity:
    """Of a file that is open now. It is asked for by its path and never opened for this: closing
    one more handle would take SQLite's locks from the whole process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = self._at_path()

    def check(self) -> None:
        if self._at_path() != self._opened:
            raise faults.moved(self._path)

    def _at_path(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise faults.moved(self._path) from error
        except OSError as error:
            raise faults.away(self._path, error) from error
        return found.st_dev, found.st_ino
