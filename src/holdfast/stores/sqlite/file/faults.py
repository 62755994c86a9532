"""Errors of the driver, translated into the errors that the engine knows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
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

# SQLite calls a file that may not grow an I/O error; to those who write it is the same as full.
EFFECTIVE = os.access in os.supports_effective_ids
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SHOWN_FAULTS = 5


def translated(error: Exception, path: Path, system_errno: int = 0) -> Exception:
    """Return the fault in the engine's words; an error that is no fault of the file stays."""
    if isinstance(error, apsw.IOError) and system_errno in NO_ROOM:
        return full(path)
    for kinds, told in _FAULTS:
        if isinstance(error, kinds):
            return told(path, error)
    return error


def full(path: Path, _: Exception | None = None) -> StoreFull:
    return StoreFull(f"no room left for {path}: nothing was written; free some space on its disk")


def not_a_database(path: Path, _: Exception) -> StoreForeign:
    return StoreForeign(f"{path} is not an SQLite file: name another file, or move this one away")


def locked(path: Path, error: Exception) -> StoreUnavailable:
    told = StoreUnavailable(f"{path} is locked by another process: {error}")
    told.unwritten = True
    return told


def away(path: Path, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{path} cannot be read or written now: {error}")


def moved(path: Path) -> StoreUnusable:
    return StoreUnusable(
        f"{path} was moved or removed while it was open: nothing more is written; "
        "bring the file back, then restart all processes that use it"
    )


def log_removed(path: Path, name: str) -> StoreUnusable:
    return StoreUnusable(
        f"{name} was removed while it was open: nothing more is written; stop all processes that "
        f"use {path} with SIGTERM (a kill loses what they had accepted), then start them again"
    )


def taken_away(path: Path, error: Exception) -> StoreUnusable:
    return StoreUnusable(f"the last commit to {path} may be lost: {error}")


def unfit(path: Path, version: int, faults: Sequence[str]) -> StoreUnusable:
    shown = "; ".join(faults[:SHOWN_FAULTS]) + ("; …" if len(faults) > SHOWN_FAULTS else "")
    return StoreUnusable(
        f"{path} says that it has format {version}, but its tables do not fit it: {shown}; "
        "it was changed past Holdfast or damaged: restore a backup"
    )


def damaged(path: Path, error: Exception) -> StoreUnusable:
    return StoreUnusable(
        f"{path} is damaged ({error}): stop all workers, then restore a backup "
        "or save what is left with `sqlite3 FILE .recover`"
    )


def other(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path}: {type(error).__name__}: {error}")


def not_ours(path: Path) -> StoreForeign:
    return StoreForeign(
        f"{path} is an SQLite file of another program: name another file for Holdfast"
    )


def other_namespace(path: Path, found: str, wanted: str) -> StoreForeign:
    return StoreForeign(
        f"{path} belongs to namespace {found!r}, not {wanted!r}: "
        "give each namespace a file of its own, or set HOLDFAST_NAMESPACE"
    )


def too_new(path: Path, found: int, known: int) -> StoreTooNew:
    return StoreTooNew(
        f"{path} has format {found}, this Holdfast knows up to {known}: upgrade Holdfast"
    )


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


def after_fork(path: Path) -> StoreUnusable:
    return StoreUnusable(
        f"{path} was opened before a fork: open the store in the process that uses it"
    )


def not_open(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"{path} is not open: await store.open() first")


_FAULTS: tuple[
    tuple[type[Exception] | tuple[type[Exception], ...], Callable[[Path, Exception], StoreError]],
    ...,
] = (
    (apsw.FullError, full),
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), locked),
    ((apsw.IOError, apsw.NoMemError, apsw.InterruptError), away),
    ((apsw.NotADBError, apsw.FormatError), not_a_database),
    (apsw.CorruptError, damaged),
    ((apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError), not_writable),
    (apsw.Error, other),
)
