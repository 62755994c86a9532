"""SQLite and PostgreSQL share this code: one transaction, with the fence before the write.

The statements are built here because table and columns are the user's. Names must match a narrow
alphabet and are quoted; values are always parameters.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import msgspec

from holdfast.domain.errors import InvalidInput
from holdfast.sinks.fences import FENCES, FenceGuard, check_fields, check_place, guard_of

KEY_COLUMN = "idempotency_key"
COLUMNS_MAX = 1_600  # of a table of PostgreSQL; one of SQLite has 2 000

CREATE_FENCES = (
    f"CREATE TABLE IF NOT EXISTS {FENCES} (scope TEXT PRIMARY KEY, fence BIGINT NOT NULL)"
)

# 63 is where PostgreSQL cuts a name off.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_RULE = "a letter or _, then letters, digits and _ (63 at most)"


class Statement(msgspec.Struct, frozen=True):
    sql: str
    values: dict[str, Any]  # by name, in the order of the parameters

    @property
    def parameters(self) -> tuple[Any, ...]:
        return tuple(self.values.values())


class Tables(ABC):
    """A sink on tables: ``async with Sqlite("reports.db") as sql``; without the block it opens at
    the first use.
    """

    mark: ClassVar[str]  # of a parameter
    greatest: ClassVar[str]  # the function with the greater of two values

    async def write_once(
        self,
        table: str,
        row: dict[str, Any],
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> bool:
        """Store the row with ``idempotency_key = key``; return True if it was written now, False if
        it existed.

        With a fence, raise StaleFence if the scope (the task by default) has seen a higher one.
        """
        guard = guard_of(key, fence, scope)
        return await self._run(self._insert(table, row, key), guard)

    async def upsert_one(
        self,
        table: str,
        row: dict[str, Any],
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> None:
        """Set these columns in the row with ``idempotency_key = key``, which is created if it does
        not exist.

        The newer write stays: with a fence, raise StaleFence if the scope has seen a higher one.
        """
        guard = guard_of(key, fence, scope)
        await self._run(self._insert(table, row, key, update=True), guard)

    async def forget(
        self, table: str, *, key: str, fence: int | None = None, scope: str | None = None
    ) -> None:
        """Remove the row that was written under the key, if there is one: for undo functions."""
        guard = guard_of(key, fence, scope)
        sql = f"DELETE FROM {_table(table)} WHERE {KEY_COLUMN} = {self.mark} RETURNING 1"
        await self._run(Statement(sql, {KEY_COLUMN: key}), guard)

    @abstractmethod
    async def create_fences(self) -> None:
        """Create the table of fences, unless it exists."""

    @abstractmethod
    async def open(self) -> Self: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @abstractmethod
    async def _run(self, statement: Statement, guard: FenceGuard | None) -> bool:
        """Run the statement in one transaction, after the guard; return whether it touched a
        row."""

    def _insert(
        self, table: str, row: dict[str, Any], key: str, *, update: bool = False
    ) -> Statement:
        """Return the insert of a row; one that exists stays, or gets these columns (``update``)."""
        columns = _check_row(row)
        names = [KEY_COLUMN, *map(_quote, columns)]
        changes = ", ".join(f"{name} = excluded.{name}" for name in names[1:] or names)
        conflict = f"UPDATE SET {changes}" if update else "NOTHING"
        marks = ", ".join([self.mark] * len(names))
        return Statement(
            f"INSERT INTO {_table(table)} ({', '.join(names)}) VALUES ({marks}) "
            f"ON CONFLICT ({KEY_COLUMN}) DO {conflict} RETURNING 1",
            {KEY_COLUMN: key, **columns},
        )

    def _raise_fence(self, guard: FenceGuard) -> Statement:
        """Return the statement that raises the scope's fence and answers the highest one.

        The row stays locked until the end, so no other holder gets between this and the write.
        """
        return Statement(
            f"INSERT INTO {FENCES} (scope, fence) VALUES ({self.mark}, {self.mark}) "
            f"ON CONFLICT (scope) DO UPDATE SET fence = "
            f"{self.greatest}({FENCES}.fence, excluded.fence) RETURNING fence",
            {"scope": guard.scope, "fence": guard.fence},
        )


def wrong_names(message: object) -> InvalidInput:
    """Return the error for a statement that the database refuses: only its names come from the
    user.
    """
    return InvalidInput(
        f"{message}. A table to write to has its columns and {KEY_COLUMN} TEXT NOT NULL UNIQUE; "
        f"fences need {FENCES}, which create_fences() makes: see docs/sinks.md"
    )


def _check_row(row: object) -> dict[str, Any]:
    columns = check_fields(row, kind="row")
    if len(columns) > COLUMNS_MAX:
        raise InvalidInput(f"the row has {len(columns)} columns; at most {COLUMNS_MAX} are allowed")
    folded = [name.lower() for name in columns]  # to SQLite, a and A are one column
    if KEY_COLUMN in folded:
        raise InvalidInput(f"the row has a column {KEY_COLUMN}, which is to be the key")
    if len(set(folded)) < len(folded):
        raise InvalidInput("the row names a column twice, in upper and lower case")
    return columns


def _table(name: object) -> str:
    """Return the quoted table: ``summaries``, or with its schema ``reports.summaries``."""
    parts = name.split(".") if isinstance(name, str) else []
    if not 0 < len(parts) <= 2:
        raise InvalidInput(f"table {name!r}: write a name, or a schema and a name")
    check_place(parts[-1])
    return ".".join(map(_quote, parts))


def _quote(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(f"{name!r} cannot name a table or column: {_RULE}")
    return f'"{name}"'
