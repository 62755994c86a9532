"""The names that a Lua file uses, read from its code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

_QUIET = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")
_TOKEN = re.compile(r"[A-Za-z_]\w*|[{}]|==|=|\.\.|\S")
_LOCALS = re.compile(r"\blocal (?!function\b)(\w+(?:, *\w+)*)")
_FUNCTIONS = re.compile(r"\bfunction\b *(\w*)\(([^)]*)\)")
_LOOPS = re.compile(r"\bfor (\w+(?:, *\w+)*) (?:in|=)")
_EXPORTED = re.compile(r"^local (?:function (\w+)|(\w+(?:, *\w+)*))", re.MULTILINE)


def without_quotes(text: str) -> str:
    """Return the code without its comments and the texts in it."""
    return _QUIET.sub("", text)


def exports(text: str) -> set[str]:
    """Return the names that a file gives to those that use it."""
    found = _EXPORTED.findall(without_quotes(text))
    return {name for one, many in found for name in ([one] if one else re.findall(r"\w+", many))}


def names_used(text: str) -> set[str]:
    """Return the names that the code does not declare itself."""
    code = without_quotes(text)
    return set(_names(code)) - _declared(code)


def keys_used(text: str) -> set[str]:
    """Return the keys of ``K`` that the code names; `all` if it computes one."""
    code = without_quotes(text)
    return set(re.findall(r"\bK\.(\w+)", code)) | ({"all"} if "K[" in code else set())


def constants_used(text: str, constants: Collection[str], enums: Collection[str]) -> set[str]:
    """Return the constants that the code names, and the members of enums as ENUM.member."""
    members = re.findall(r"\b(\w+)\.(\w+)", without_quotes(text))
    dotted = {f"{enum}.{name}" for enum, name in members if enum in enums}
    return (names_used(text) & set(constants)) | dotted


def quoted(text: str) -> set[str]:
    """Return the texts in the code that stand in quotes."""
    code = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return {found[1:-1] for found in _QUIET.findall(code) if found[0] != "-"}


def _declared(code: str) -> set[str]:
    names = [*_LOCALS.findall(code), *_LOOPS.findall(code)]
    names += [part for both in _FUNCTIONS.findall(code) for part in both]
    return {name for some in names for name in re.findall(r"\w+", some)}


def _names(code: str) -> Iterator[str]:
    """Yield the names that stand for a variable: neither a field nor a key of a table."""
    tokens = [*_TOKEN.findall(code), ""]
    braces, before = 0, ""
    for token, after in pairwise(tokens):
        braces += (token == "{") - (token == "}")
        if token[0].isalpha() or token[0] == "_":
            is_field = before in (".", ":") or (braces > 0 and after == "=")
            if not is_field:
                yield token
        before = token
