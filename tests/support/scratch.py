"""The folder for files of tests: in memory, if that has room.

Stores and servers sync at every commit. On a disk that others use, that is a wait of
milliseconds to seconds, thousands of times over.
"""

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 << 30  # a run takes less than half a gigabyte


def keep_in_memory() -> None:
    """Choose memory for this process and its children, unless TMPDIR names another folder."""
    if "TMPDIR" not in os.environ and fits(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def fits(place: Path) -> bool:
    """Some tests write programs and run them."""
    if not os.access(place, os.W_OK):
        return False
    room = os.statvfs(place)
    may_run = not room.f_flag & os.ST_NOEXEC
    return may_run and room.f_bavail * room.f_frsize >= ROOM_BYTES
