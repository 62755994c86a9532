"""Commands parse the JSON that a person gives them here."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.errors import InvalidInput


def parse_json(what: str, text: str | bytes) -> Any:
    """Return the JSON value in a text; InvalidInput names ``what`` if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{what}: not JSON: {error}") from None


def parse_json_object(what: str, text: str | bytes, example: str) -> dict[str, Any]:
    found = parse_json(what, text)
    if not isinstance(found, dict):
        raise InvalidInput(f"{what}: it must be an object, such as {example}")
    return found
