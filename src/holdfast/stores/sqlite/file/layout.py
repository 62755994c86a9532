"""The layout of a file's tables, compared with the format that the file claims.

The steps of the schema make the wanted layout in memory, once per process. Other tables are
ignored, and so is another index unless it is unique.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

import apsw
import msgspec

from holdfast.stores.sqlite.statements import SQL, run_script

Columns: TypeAlias = Mapping[str, tuple[object, ...]]  # by name: type, not null, default, key


class Index(msgspec.Struct, frozen=True):
    table: str
    unique: bool
    partial: bool
    columns: tuple[str | None, ...]  # None stands for an expression


class Layout(msgspec.Struct, frozen=True):
    tables: Mapping[str, Columns]  # tables and views
    indexes: Mapping[str, Index]
    triggers: Mapping[str, str]  # by name: the table


@lru_cache(maxsize=8)
def made_by(steps: tuple[str, ...]) -> Layout:
    """Return the layout of a file that these steps have made."""
    db = apsw.Connection(":memory:")
    try:
        for step in steps:
            run_script(db, step)
        return read_layout(db)
    finally:
        db.close()


def read_layout(db: apsw.Connection) -> Layout:
    tables: defaultdict[str, dict[str, tuple[object, ...]]] = defaultdict(dict)
    for table, column, *terms in db.execute(SQL["columns"]):
        tables[table][column] = tuple(terms)
    members: defaultdict[tuple[str, str, bool, bool], list[str | None]] = defaultdict(list)
    for table, name, unique, partial, column in db.execute(SQL["indexed_columns"]):
        members[table, name, bool(unique), bool(partial)].append(column)
    indexes = {
        name: Index(table, unique, partial, tuple(columns))
        for (table, name, unique, partial), columns in members.items()
    }
    triggers = {str(name): str(table) for name, table in db.execute(SQL["own_triggers"])}
    return Layout(tables, indexes, triggers)


def differences(wanted: Layout, actual: Layout) -> Iterator[str]:
    """Describe each part of the format that is missing or different."""
    for table, columns in wanted.tables.items():
        if table not in actual.tables:
            yield f"table {table} is missing"
        else:
            yield from _column_differences(table, columns, actual.tables[table])
    for name, index in wanted.indexes.items():
        if index.table in actual.tables and actual.indexes.get(name) != index:
            yield f"index {name} is {'different' if name in actual.indexes else 'missing'}"
    for name, index in actual.indexes.items():
        if name not in wanted.indexes and index.unique and index.table in wanted.tables:
            yield f"unique index {name} on table {index.table} is not part of this format"
    for name, table in actual.triggers.items():
        if table in wanted.tables:
            yield f"trigger {name} on table {table} is not part of this format"


def _column_differences(table: str, wanted: Columns, actual: Columns) -> Iterator[str]:
    for column, terms in wanted.items():
        if column not in actual:
            yield f"column {table}.{column} is missing"
        elif actual[column] != terms:
            yield f"column {table}.{column} is different"
    for column in actual:
        if column not in wanted:
            yield f"column {table}.{column} is not part of this format"
