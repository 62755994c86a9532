"""The floor on SQLite: the writes of a run again, bare.

The statements and values that our engine gave to SQLite (see `bench/ours/recorder.py`), without any
read, are executed on a copy of the file as it was before: in the same transactions with the same
settings (WAL, synchronous FULL), where each statement comes once with all its rows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.stores.sqlite.file.connections import open_writer

LOCK_SECONDS = 10.0
_ENDS = ("COMMIT", "ROLLBACK")

Rows = list[tuple[Any, ...]]


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    before: Path  # the file as it was
    transactions: list[list[tuple[str, Rows]]]


def statements_of(before: Path, record: Path) -> Statements:
    noted = msgspec.msgpack.decode(record.read_bytes(), type=list[tuple[str, Any]])
    return Statements(before=before, transactions=list(group_transactions(noted)))


def group_transactions(noted: Sequence[tuple[str, Any]]) -> list[list[tuple[str, Rows]]]:
    """Return the transactions; each has every statement once, with all its values."""
    found: list[list[tuple[str, Rows]]] = []
    present: dict[str, Rows] | None = None
    for statement, values in noted:
        word = _first_word(statement)
        if word == "BEGIN":
            present = {}
        elif word in _ENDS:
            if present and word == "COMMIT":
                found.append(list(present.items()))
            present = None
        elif present is not None:
            present.setdefault(statement, []).append(tuple(values or ()))
        else:
            found.append([(statement, [tuple(values or ())])])
    return found


def replay(statements: Statements, path: Path) -> tuple[float, int]:
    """Return seconds and changed rows on a new copy at ``path``."""
    shutil.copy(statements.before, path)
    db = open_writer(path, namespace="executor", lock_seconds=LOCK_SECONDS)
    try:
        before, begun = db.total_changes(), time.perf_counter()
        for transaction in statements.transactions:
            db.execute("BEGIN IMMEDIATE")
            for statement, rows in transaction:
                db.executemany(statement, rows).fetchall()
            db.execute("COMMIT")
        seconds = time.perf_counter() - begun
        return seconds, db.total_changes() - before
    finally:
        db.close()


def _first_word(statement: str) -> str:
    lines = (line.strip() for line in statement.splitlines())
    code = " ".join(line for line in lines if line and not line.startswith("--"))
    return code.partition(" ")[0].rstrip(";").upper()
