"""A task's trace: a W3C traceparent, or any text that the submitter gave."""

from __future__ import annotations

import re

_TRACEPARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def is_traceparent(given: object) -> bool:
    return isinstance(given, str) and _TRACEPARENT.fullmatch(given) is not None


def shown_trace(text: str | None) -> str | None:
    """Return the 32 digits by which a trace is looked up, or the text as it is."""
    match = _TRACEPARENT.fullmatch(text) if text else None
    return match.group(1) if match else text
