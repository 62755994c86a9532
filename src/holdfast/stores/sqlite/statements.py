"""The SQL of this store: whole and named, in the `.sql` files beside the code that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from holdfast.domain.task.placement import RESTING

# Sets of the place machine for SQL, written in where a bound value would hide from SQLite that a
# partial index fits.
_CONSTANTS = {"resting": ", ".join(f"'{place}'" for place in sorted(RESTING, reverse=True))}
_CONSTANT = re.compile(r"\{(\w+)\}")

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def read(text: str) -> dict[str, str]:
    """``-- name: x`` begins statement x; what stands before the first one is prose."""
    _, *parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _sql_files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _sql_files(item)
        elif item.name.endswith(".sql"):
            yield item


def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _sql_files(files(__package__)):
        text = _CONSTANT.sub(lambda found: _CONSTANTS[found[1]], file.read_text(encoding="utf-8"))
        for name, body in read(text).items():
            assert name not in found, f"two statements are called {name}"
            found[name] = body
    return found


SQL: Mapping[str, str] = _load()
