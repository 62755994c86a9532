"""A lock lets only one process at a time work in a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock on the directory itself, which leaves no file and ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:  # there is none on Windows: two at once may then lose a change
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
