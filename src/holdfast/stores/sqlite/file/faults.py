"""The faults of a store's file, translated from the driver's errors into errors of the engine."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from holdfast.domain.errors import (
    StoreError,
    StoreForeign,
    StoreFull,
    StoreNotWritable,
    StoreTooNew,
    StoreUnavailable,
    StoreUnusable,
)

# SQLite calls a file that may not grow an I/O error; for a writer it is the same as a full disk.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
EFFECTIVE = os.access in os.supports_effective_ids
SHOWN_FAULTS = 5


@dataclass(frozen=True, slots=True)
class FileFault:
    """The error for a fault, and its message, into which the path and further facts are put."""

    error: type[StoreError]
    message: str

    def __call__(self, path: Path, *facts: object) -> StoreError:
        return self.error(self.message.format(path, *facts))


full = FileFault(
    StoreFull, "the disk has no room left for {}: nothing was written; free some space on it"
)
not_a_database = FileFault(
    StoreForeign, "{} is not an SQLite file: name another file, or move this one away"
)
not_ours = FileFault(
    StoreForeign, "{} is an SQLite file of another program: name another file for Holdfast"
)
other_namespace = FileFault(
    StoreForeign,
    "{} belongs to namespace {!r}, not {!r}: "
    "give each namespace a file of its own, or set HOLDFAST_NAMESPACE",
)
too_new = FileFault(
    StoreTooNew, "{} has format {}, but this Holdfast knows formats up to {}: upgrade Holdfast"
)
not_open = FileFault(StoreUnavailable, "{} is not open: await store.open() first")
away = FileFault(StoreUnavailable, "{} cannot be read or written now: {}")
is_moved = FileFault(
    StoreUnusable,
    "{} was moved or removed while it was open: nothing more is written; "
    "bring the file back, then restart all processes that use it",
)
log_removed = FileFault(
    StoreUnusable,
    "{1} was removed while it was open: nothing more is written; stop all processes that use {0} "
    "with SIGTERM (a kill loses what they had accepted), then start them again",
)
commit_lost = FileFault(StoreUnusable, "the last commit to {} may be lost: {}")
is_damaged = FileFault(
    StoreUnusable,
    "{} is damaged ({}): stop all workers, then restore a backup "
    "or save what is left with `sqlite3 FILE .recover`",
)
after_fork = FileFault(
    StoreUnusable, "{} was opened before a fork: open the store in the process that uses it"
)
wrong_layout = FileFault(
    StoreUnusable,
    "{} claims format {}, but its tables are not those of that format: {}; "
    "another program changed the file, or it is damaged: restore a backup",
)


def is_locked(path: Path, error: Exception) -> StoreUnavailable:
    fault = StoreUnavailable(f"{path} is locked by another process: {error}")
    fault.unwritten = True
    return fault


def unfit(path: Path, version: int, differences: Sequence[str]) -> StoreError:
    more = "; …" if len(differences) > SHOWN_FAULTS else ""
    return wrong_layout(path, version, "; ".join(differences[:SHOWN_FAULTS]) + more)


def not_writable(path: Path, _: Exception | None = None) -> StoreNotWritable:
    folder = path.parent
    if not folder.is_dir():
        return StoreNotWritable(f"{path}: there is no directory {folder}; create it")
    if path.is_dir():
        return StoreNotWritable(f"{path} is a directory: name a file in it")
    if path.exists() and not os.access(path, os.W_OK, effective_ids=EFFECTIVE):
        return StoreNotWritable(f"{path} may not be written by this user: change its mode or owner")
    return StoreNotWritable(
        f"{path} cannot be written: let this user write in {folder} "
        "(SQLite puts -wal and -shm files beside it)"
    )


_FAULTS: tuple[tuple[tuple[type[Exception], ...], Callable[[Path, Exception], StoreError]], ...] = (
    ((apsw.FullError,), full),
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), is_locked),
    ((apsw.IOError, apsw.NoMemError, apsw.InterruptError), away),
    ((apsw.NotADBError, apsw.FormatError), not_a_database),
    ((apsw.CorruptError,), is_damaged),
    ((apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError), not_writable),
)


def translate(error: Exception, path: Path, system_errno: int = 0) -> Exception:
    """Return the fault as an error of the engine; an error that is no fault of the file stays."""
    if isinstance(error, apsw.IOError) and system_errno in NO_ROOM:
        return full(path)
    for kinds, fault in _FAULTS:
        if isinstance(error, kinds):
            return fault(path, error)
    if isinstance(error, apsw.Error):
        return StoreError(f"{path}: {type(error).__name__}: {error}")
    return error
