"""Hides what looks like a secret by the name of its field, where stored values are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
DEPTH_LIMIT = 100  # what lies deeper is not shown at all

# Without case and separators, also as a part of a name: db_password, apiKey, X-Auth-Token.
_SECRET = re.compile(
    "password|passwd|passphrase|pwd|secret|token|apikey|accesskey|privatekey|signingkey"
    "|authorization|credential|cookie|^auth$"
)
_SEPARATORS = re.compile(r"[\W_]+")


def redacted(value: Any, depth: int = 0) -> Any:
    """A JSON value with the values of such fields hidden, whatever they are."""
    if depth > DEPTH_LIMIT:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if is_secret(name) else redacted(item, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [redacted(item, depth + 1) for item in value]
    return value


def is_secret(name: str) -> bool:
    return _SECRET.search(_SEPARATORS.sub("", name).lower()) is not None
