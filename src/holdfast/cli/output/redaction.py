"""Redaction of stored values on the command line: by the settings, from when they are known."""

from __future__ import annotations

from typing import Any

from holdfast.domain.redaction import USUAL, Redactor

_current = [USUAL]


def use(redactor: Redactor) -> None:
    _current[0] = redactor


def current() -> Redactor:
    return _current[0]


def text(said: str) -> str:
    """An error, a reason, a message."""
    return current().text(said)


def text_or_none(said: str | None) -> str | None:
    return None if said is None else text(said)


def body(stored: bytes | None) -> Any:
    """A payload, a result, a checkpoint."""
    return None if stored is None else current().body(stored)


def strings(record: Any) -> Any:
    """A record of ours, with what others have said in it."""
    return current().strings(record)
