"""The start of `ctx.key` for a type with effects="key": it uses the submit key, not the task's id.

`k-` and the first 26 characters of the SHA-256 of namespace, type, tenant and key, in lower-case
base32 without padding. Each part is written as its length in bytes in decimal, a colon, its UTF-8
and a comma; no tenant is written as `-,`.
"""

from __future__ import annotations

import base64
import hashlib

from holdfast.domain.errors import KeyRequired

PREFIX = "k-"
CHARS = 26  # 130 bits


def effects_id(namespace: str, type_name: str, tenant: str | None, key: str) -> str:
    """Return an id that is the same for the same work, however often it is submitted."""
    parts = b"".join(map(_netstring, (namespace, type_name, tenant, key)))
    text = base64.b32encode(hashlib.sha256(parts).digest()).decode().lower()
    return PREFIX + text[:CHARS]


def key_required(type_name: str, field: str = "key") -> KeyRequired:
    """Return the refusal of a submit without a key."""
    return KeyRequired(f'{field}: task type {type_name!r} has effects="key": submit with a key')


def member_key(plan_id: str, number: int) -> str:
    """Return the key of a plan's task, by its number from 1. `|` is illegal in a submit."""
    return f"{plan_id}|{number}"


def _netstring(part: str | None) -> bytes:
    if part is None:
        return b"-,"
    body = part.encode()
    return b"%d:%b," % (len(body), body)
