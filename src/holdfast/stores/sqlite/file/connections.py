"""The connections to the file, which is opened if it is ours and of a version that we know."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import apsw

from holdfast.domain.errors import StoreUnusable
from holdfast.stores.sqlite.file import faults, layout
from holdfast.stores.sqlite.file.migrations import link_audits
from holdfast.stores.sqlite.file.readers import snapshot
from holdfast.stores.sqlite.file.writer import patiently, read_number
from holdfast.stores.sqlite.statements import SQL, run_script

APPLICATION_ID = 1215261796  # as in schema.sql
VERSION = 3
NAMESPACE = "namespace"

SQLITE_LEAST = 3_051_003  # 3.7.0–3.51.2 can corrupt a WAL file that has two connections

T = TypeVar("T")


def check_sqlite(number: int = apsw.SQLITE_VERSION_NUMBER) -> None:
    if number < SQLITE_LEAST:
        raise StoreUnusable(
            f"SQLite {number // 1_000_000}.{number // 1000 % 1000}.{number % 1000} can damage its "
            "files when several connections write; install apsw 3.54 or newer"
        )


def open_writer(path: Path, *, namespace: str, lock_seconds: float) -> apsw.Connection:
    """Return the one connection that writes; the file is then ours and of our version."""
    check_sqlite()
    db = _connect(path)
    try:
        patiently(lambda: _check_owner(db, path), seconds=lock_seconds)
        patiently(lambda: run_script(db, SQL["new_file"]), seconds=lock_seconds)
        patiently(lambda: run_script(db, SQL["writing"]), seconds=lock_seconds)
        patiently(lambda: db.execute(SQL["begin_writing"]), seconds=lock_seconds)
        migrate(db, path)
        _check_namespace(db, path, namespace)
        db.execute(SQL["commit"])
    except Exception as error:
        fault = faults.translate(error, path, db.system_errno)
        db.close()
        raise fault from error
    return db


def open_reader(path: Path) -> apsw.Connection:
    try:
        db = _connect(path)
    except apsw.Error as error:
        raise faults.translate(error, path) from error
    db.set_busy_timeout(1000)  # readers meet a lock only while a dead writer's log is recovered
    run_script(db, SQL["reading"])
    return db


def migrate(db: apsw.Connection, path: Path) -> None:
    """Bring the file to our version, step by step, in a write transaction."""
    stored_version = read_number(db, "user_version")
    if stored_version > VERSION:
        raise faults.too_new(path, stored_version, VERSION)
    _check_layout(db, path, stored_version)
    for version in range(stored_version + 1, VERSION + 1):
        run_script(db, SQL[f"v{version}"])
        if version == 3:
            link_audits(db)


def _check_layout(db: apsw.Connection, path: Path, version: int) -> None:
    """Refuse a file whose tables are not those of the format that it claims."""
    actual = layout.read_layout(db)
    if version == 0:
        ours = layout.made_by((SQL["v1"],)).tables
        wrong = [f"table {table} exists already" for table in actual.tables if table in ours]
    else:
        wanted = layout.made_by(tuple(SQL[f"v{n}"] for n in range(1, version + 1)))
        wrong = [*layout.differences(wanted, actual)]
    if wrong:
        raise faults.unfit(path, version, wrong)


def _connect(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        return apsw.Connection(str(path), flags=flags, statementcachesize=256)
    except apsw.Error as error:
        raise faults.translate(error, path) from error


def _check_owner(db: apsw.Connection, path: Path) -> None:
    """Check on one snapshot whose file it is: another process may be making it ours right now."""
    with snapshot(db):
        owner, version = read_number(db, "application_id"), read_number(db, "user_version")
        if owner != APPLICATION_ID and (owner or db.execute(SQL["first_table"]).fetchone()):
            raise faults.not_ours(path)
        if version > VERSION:
            raise faults.too_new(path, version, VERSION)
        if db.readonly("main"):
            raise faults.not_writable(path)


def _check_namespace(db: apsw.Connection, path: Path, namespace: str) -> None:
    stored = db.execute(SQL["meta_get"], (NAMESPACE,)).fetchone()
    if stored is None:
        db.execute(SQL["meta_add"], (NAMESPACE, namespace))
    elif stored[0] != namespace:
        raise faults.other_namespace(path, stored[0], namespace)
