"""SQL databases to write to: ``from holdfast.sinks.sql import Postgres, Sqlite``.

The driver of PostgreSQL is imported with ``Postgres``: an app that writes to SQLite needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sinks.sqlite import Sqlite

if TYPE_CHECKING:
    from holdfast.sinks.postgres import Postgres

__all__ = ["Postgres", "Sqlite"]


def __getattr__(name: str) -> Any:
    if name != "Postgres":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.sinks.postgres import Postgres

    return Postgres
