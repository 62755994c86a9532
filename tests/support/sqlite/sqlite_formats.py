"""Files as older releases left them: what was written since is taken out again, step by step."""

from pathlib import Path

import apsw

from holdfast.stores.sqlite.file import connections
from holdfast.stores.sqlite.statements import SQL

BACK_FROM = {
    2: """
        DROP TABLE triggers;
        DROP TABLE plans;
        DROP TABLE plan_tasks;
        DROP TABLE plan_members;
        DROP TABLE plan_events;
        ALTER TABLE sequences DROP COLUMN due;
        PRAGMA user_version = 1;
    """,
    3: """
        DROP INDEX checkpoints_open;
        DROP TABLE chain;
        DROP TABLE switches;
        DROP TABLE timings;
        ALTER TABLE audits DROP COLUMN hash;
        ALTER TABLE audits RENAME COLUMN entry TO body;
        ALTER TABLE moves RENAME TO moves_since;
        CREATE TABLE moves (
            before TEXT NOT NULL,
            after TEXT NOT NULL,
            count INTEGER NOT NULL,
            dwell_seconds REAL NOT NULL,
            PRIMARY KEY (before, after)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO moves SELECT before, after, sum(count), sum(dwell_seconds)
        FROM moves_since GROUP BY before, after;
        DROP TABLE moves_since;
        PRAGMA user_version = 2;
    """,
}


def make_older(path: Path, version: int) -> None:
    db = apsw.Connection(str(path))
    try:
        for step in range(connections.VERSION, version, -1):
            run(db, BACK_FROM[step])
    finally:
        db.close()


def new_file_of(path: Path, version: int) -> None:
    """Make a file as a release of that format would have made it."""
    db = apsw.Connection(str(path))
    try:
        for step in range(1, version + 1):
            run(db, SQL[f"v{step}"])
    finally:
        db.close()


def run(db: apsw.Connection, script: str) -> None:
    for _ in db.execute(script):
        pass


def shape_of(path: Path) -> dict[str, list[str]]:
    """The columns of each table and index, by name."""
    db = apsw.Connection(str(path))
    try:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type <> 'view'").fetchall()
        return {
            str(name): sorted(
                str(column[0])
                for kind in ("table", "index")
                for column in db.execute(f"SELECT name FROM pragma_{kind}_info(?)", (name,))
            )
            for (name,) in names
        }
    finally:
        db.close()
