"""The ledger records outside the store what was done: one file per process, append only.

A line is one `write` to the kernel, which a SIGKILL of the writer does not take back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast import Context


class LineKind(StrEnum):
    BEGIN = "begin"  # a stage's effect begins
    END = "end"  # the effect is done, and its commit comes next
    STOPPED = "stopped"  # the effect was cancelled before it was done
    BEAT = "beat"  # the store has renewed this worker's leases; ``asked`` is from when it counts
    UNANSWERED = "unanswered"  # a beat failed; whether it renewed the leases is not known
    STALE = "stale"  # the store has refused a write of a lost lease
    ACK = "ack"  # a submit was answered
    TAKEN = "taken"  # triggers were handed to this scheduler
    LET_GO = "let-go"  # the scheduler has answered for its triggers and claims again
    TAKEN_OVER = "taken-over"  # one of the triggers was handed out because its lease had lapsed
    JUMP = "jump"  # this process's clock was set; ``asked`` is how far off it is
    DRIVES = "drives"  # a plan was handed to this driver
    WROTE = "wrote"  # the driver's write was accepted; ``key`` is the plan's version


ENTERED = LineKind.BEGIN, LineKind.TAKEN
LEFT = LineKind.END, LineKind.STOPPED, LineKind.LET_GO


class LedgerEntry(msgspec.Struct, frozen=True, array_like=True):
    kind: LineKind
    at: float
    by: str  # the process's name, unique per incarnation
    task: str = ""
    key: str = ""
    fence: int = 0
    asked: float = 0.0


class Ledger:
    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = os.open(_path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(
        self, kind: LineKind, *, task: str = "", key: str = "", fence: int = 0, asked: float = 0.0
    ) -> None:
        line = LedgerEntry(kind, time.time(), self.name, task, key, fence, asked)
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def note(self, kind: LineKind, ctx: Context) -> None:
        self.write(kind, task=ctx.task_id, key=ctx.key, fence=ctx.fence)


def has_begun(folder: Path, name: str) -> bool:
    """Return whether that process has written anything."""
    return b"\n" in _read_bytes(folder, name)


def is_inside(folder: Path, name: str) -> bool:
    """Return whether that process is inside a stage or holds triggers, as far as it has written."""
    written = b"\n" + _read_bytes(folder, name)
    return _count(written, *ENTERED) > _count(written, *LEFT)


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return _path(folder, name).read_bytes()
    except FileNotFoundError:
        return b""


def _count(written: bytes, *kinds: LineKind) -> int:
    return sum(written.count(f'\n["{kind}",'.encode()) for kind in kinds)


def read(folder: Path, pattern: str = "*") -> Iterator[LedgerEntry]:
    for path in sorted(folder.glob(f"{pattern}.ledger")):
        for text in path.read_bytes().split(b"\n")[:-1]:  # behind the last newline: nothing
            yield msgspec.json.decode(text, type=LedgerEntry)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.ledger"
