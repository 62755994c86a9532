"""The alphabets of names. They appear in keys, logs and URLs, so they are narrow."""

from __future__ import annotations

import re

from holdfast.domain.errors import InvalidName

_DECLARED = (
    re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}"),
    "a letter, then letters, digits and . _ - (100 at most)",
)
_GIVEN = (
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=/-]{0,199}"),
    "a letter or digit, then letters, digits and . _ : @ + = / - (200 at most)",
)
_RULES = {
    "task type": _DECLARED,
    "stage": _DECLARED,
    "queue": _DECLARED,
    "namespace": _DECLARED,
    "tenant": _GIVEN,
    "key": _GIVEN,
}


def check(kind: str, value: object) -> str:
    pattern, rule = _RULES[kind]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidName(kind, value, rule)
    return value
