"""The surface that only the source shows: loggers, variables and fields in literals."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import holdfast

PACKAGE = Path(holdfast.__file__).parent
NOT_SHIPPED_TO_OPERATORS = {"testing"}  # tools for tests


@cache
def _nodes() -> tuple[tuple[Path, ast.AST], ...]:
    found: list[tuple[Path, ast.AST]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if where.parts[0] not in NOT_SHIPPED_TO_OPERATORS:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [(where, node) for node in ast.walk(tree)]
    return tuple(found)


def _calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path, node in _nodes():
        if isinstance(node, ast.Call):
            called = node.func
            if (called.attr if isinstance(called, ast.Attribute) else "") == name:
                yield path, node


def loggers() -> set[str]:
    """Return the names of our loggers."""
    return {
        call.args[0].value
        for _, call in _calls("getLogger")
        if call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }


def loggers_named_otherwise() -> list[str]:
    """Return where a logger has a name that is not written out."""
    return [
        f"{path}: {ast.unparse(call)}"
        for path, call in _calls("getLogger")
        if not (call.args and isinstance(call.args[0], ast.Constant))
    ]


def fields_of_log_calls() -> set[str]:
    """Return the fields that calls of loggers give by ``extra=``."""
    return {
        key.value
        for name in ("debug", "info", "warning", "error", "exception", "critical", "log")
        for _, call in _calls(name)
        for given in call.keywords
        if given.arg == "extra" and isinstance(given.value, ast.Dict)
        for key in given.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def variables(prefix: str) -> set[str]:
    """Return the environment variables that literals name, whole or behind the prefix."""
    whole = re.compile(rf"_?{prefix}[A-Z_]*[A-Z]")
    found: set[str] = set()
    for _, node in _nodes():
        match node:
            case ast.Constant(value=str(text)) if whole.fullmatch(text):
                found.add(text)
            case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(text))]):
                first = node.values[0]
                is_ours = ast.unparse(first.value).endswith("PREFIX")  # type: ignore[attr-defined]
                if is_ours and re.fullmatch("[A-Z_]+", text):
                    found.add(f"{prefix}{text}")
    return found
