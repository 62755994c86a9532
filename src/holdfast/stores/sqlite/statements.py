"""The SQL of this store: whole and named, in the `.sql` files beside the code that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

import apsw

from holdfast.domain.task.placement import RESTING

# Sets of the place machine for SQL, written in where a bound value would hide from SQLite that a
# partial index fits.
_CONSTANTS = {"resting": ", ".join(f"'{place}'" for place in sorted(RESTING, reverse=True))}
_CONSTANT = re.compile(r"\{(\w+)\}")

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def read(text: str) -> dict[str, str]:
    """Return the statements by name: ``-- name: x`` begins statement x, prose may precede it."""
    _, *parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def run_script(db: apsw.Connection, script: str) -> None:
    for _ in db.execute(script):
        pass


def _sql_files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _sql_files(item)
        elif item.name.endswith(".sql"):
            yield item


def _load() -> dict[str, str]:
    statements: dict[str, str] = {}
    for file in _sql_files(files(__package__)):
        text = _CONSTANT.sub(lambda match: _CONSTANTS[match[1]], file.read_text(encoding="utf-8"))
        for name, body in read(text).items():
            assert name not in statements, f"two statements are called {name}"
            statements[name] = body
    return statements


SQL: Mapping[str, str] = _load()
