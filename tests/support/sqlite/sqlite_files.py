"""Helpers for the tests of the SQLite store: open stores, a second way in, other processes."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from holdfast.clock import SystemClock
from holdfast.ports import Clock
from holdfast.stores.sqlite import SqliteStore
from tests.support.source_tree import ROOT

PATIENCE_SECONDS = 120.0  # with what another process has to do: its start, many commits, a lock


@asynccontextmanager
async def opened(
    path: Path, clock: Clock | None = None, **options: Any
) -> AsyncIterator[SqliteStore]:
    options = {"lock_seconds": PATIENCE_SECONDS} | options
    store = SqliteStore(path, clock or SystemClock(), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def ask(path: Path, sql: str, *values: Any) -> list[Any]:
    """Past the store, on a connection of its own."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(int(PATIENCE_SECONDS * 1_000))
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


def start(verb: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process at work on a file; see `sqlite_process.py`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.sqlite.sqlite_process", verb, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> str:
    """All that it had said and nobody has read: ``communicate`` would pass over what lies in the
    buffer of ``line_from``, and begin in the middle of a line."""
    process.kill()
    with process:
        assert process.stdout is not None
        return process.stdout.read()


def end(process: subprocess.Popen[str]) -> str:
    """Let it come to its own end; what it still had to say."""
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, process.returncode
    return said.strip()


def take_away(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def take_away_alone(path: Path, suffix: str) -> None:
    path.with_name(f"{path.name}{suffix}").unlink()


def put_empty(path: Path, suffix: str) -> None:
    path.with_name(f"{path.name}{suffix}").touch()


def is_there(path: Path) -> bool:
    return path.exists()
