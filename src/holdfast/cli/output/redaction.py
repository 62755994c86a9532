"""The command line hides secrets with the redactor that the settings describe."""

from __future__ import annotations

from typing import Any

from holdfast.domain.redaction import USUAL, Redactor

_current = [USUAL]


def use(redactor: Redactor) -> None:
    _current[0] = redactor


def current() -> Redactor:
    return _current[0]


def text(message: str) -> str:
    """Hide the secrets in an error, a reason or a message."""
    return current().text(message)


def text_or_none(message: str | None) -> str | None:
    return None if message is None else text(message)


def body(stored: bytes | None) -> Any:
    """Hide the secrets in a payload, a result or a checkpoint."""
    return None if stored is None else current().body(stored)
