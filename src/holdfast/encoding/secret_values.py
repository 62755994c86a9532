"""Secrets of pydantic in payloads and results are stored with their true value, under a mark.

The mark is part of the stored JSON, ``{"holdfast.secret": …}`` in the place of the value, so that
whoever shows a record hides it (`domain/redaction.py`) without knowing the task's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pydantic_core
from pydantic import SecretBytes, SecretStr
from pydantic.types import Secret

from holdfast.domain.errors import NotJson
from holdfast.domain.redaction import SECRET_MARK

SECRETS = (SecretStr, SecretBytes, Secret)
ASTERISKS = "*" * 10  # what pydantic writes in the place of a secret
_SCHEMA_MODULE = "pydantic.types"


def mentions_secrets(schema: Any) -> bool:
    """Return whether values of this core schema may hold secrets."""
    if isinstance(schema, Mapping):
        return any(mentions_secrets(part) for name, part in schema.items() if name != "metadata")
    if isinstance(schema, list | tuple):
        return any(map(mentions_secrets, schema))
    if isinstance(schema, type):
        return issubclass(schema, SECRETS)
    named = getattr(schema, "__qualname__", "").lower()
    return "secret" in named and getattr(schema, "__module__", "") == _SCHEMA_MODULE


def mark_secrets(shown: Any, kept: Any, what: str) -> tuple[Any, int]:
    """Return the JSON with each secret under its mark, and how many there are.

    ``shown`` is JSON with asterisks, ``kept`` the same value with the secrets still in it.
    """
    if isinstance(kept, SECRETS):
        return {SECRET_MARK: _plain(kept.get_secret_value(), what)}, 1
    if isinstance(shown, dict) and isinstance(kept, Mapping) and len(shown) == len(kept):
        pairs = zip(shown.items(), kept.values(), strict=True)
        items = {name: mark_secrets(item, was, f"{what}.{name}") for (name, item), was in pairs}
        return {name: item for name, (item, _) in items.items()}, sum(n for _, n in items.values())
    if isinstance(shown, list) and isinstance(kept, Iterable) and not isinstance(kept, str | bytes):
        parts = [
            mark_secrets(item, was, f"{what}.{n}")
            for n, (item, was) in enumerate(zip(shown, kept, strict=True))
        ]
        return [item for item, _ in parts], sum(n for _, n in parts)
    return shown, 0


def replace_marks(plain: Any, reveal: Callable[[Any], Any] = lambda secret: secret) -> Any:
    """Return the JSON with what ``reveal`` makes of each secret in place of its mark.

    A declared type reads the secret itself; a reader without one is given a `Secret`.
    """
    if isinstance(plain, dict):
        if len(plain) == 1 and SECRET_MARK in plain:
            return reveal(plain[SECRET_MARK])
        return {name: replace_marks(item, reveal) for name, item in plain.items()}
    return [replace_marks(item, reveal) for item in plain] if isinstance(plain, list) else plain


def _plain(secret: Any, what: str) -> Any:
    try:
        return pydantic_core.to_jsonable_python(secret)
    except (pydantic_core.PydanticSerializationError, ValueError):
        kind = type(secret).__name__
        raise NotJson(what, f"a secret of type {kind} that cannot be written as JSON") from None
