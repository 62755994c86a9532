"""The alphabets of names. They appear in keys, logs and URLs, so they are narrow.

Free text has no alphabet, but it is bounded, and it can be written down.
"""

from __future__ import annotations

import re

from holdfast.domain.errors import InvalidInput, InvalidName

_DECLARED = (
    re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}"),
    "a letter, then letters, digits and . _ - (100 at most)",
)
_GIVEN = (
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=/-]{0,199}"),
    "a letter or digit, then letters, digits and . _ : @ + = / - (200 at most)",
)
_GIVEN_NAME = (
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"),
    "a letter or digit, then letters, digits and . _ - (100 at most)",
)
_RULES = {
    "task type": _DECLARED,
    "stage": _DECLARED,
    "queue": _DECLARED,
    "namespace": _DECLARED,
    "tenant": _GIVEN,
    "key": _GIVEN,
    "trigger": _GIVEN_NAME,
    "plan": _GIVEN_NAME,
    "token": _GIVEN_NAME,
}
_LENGTHS = {"trace_id": 200, "actor": 200, "origin": 200, "reason": 2_000}


def check(kind: str, value: object) -> str:
    pattern, rule = _RULES[kind]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidName(kind, value, rule)
    return value


def check_text(kind: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{kind} is of type {type(value).__name__}, not text")
    if len(value) > _LENGTHS[kind]:
        raise InvalidInput(f"{kind} has {len(value)} characters, the limit is {_LENGTHS[kind]}")
    try:
        return value.encode().decode()  # a plain str, whatever subclass it was
    except UnicodeEncodeError:
        raise InvalidInput(f"{kind} has a lone surrogate, which cannot be written") from None
