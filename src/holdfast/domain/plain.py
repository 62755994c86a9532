"""Stored text for a terminal or a log: characters that could steer it are escaped."""

from __future__ import annotations

import re
import unicodedata

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, direction and joiner marks, half a character
_JSON_ESCAPED = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def plain(text: str) -> str:
    """Return the text with control characters escaped, apart from line ends."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" else _escape_steering(c) for c in text)


def plain_line(text: str) -> str:
    return plain(text.replace("\r\n", "\n")).replace("\n", "\\n")


def plain_json(text: str) -> str:
    """Return the JSON with those characters escaped that its encoder leaves."""
    return _JSON_ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escape_steering(char: str) -> str:
    if unicodedata.category(char) not in _STEERING:
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
