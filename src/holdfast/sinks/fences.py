"""Every sink checks the key, the fence and the values of a write with these functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.domain.errors import InvalidInput, StaleFence

FENCES = "holdfast_fences"  # the table or collection with the highest fence of each scope
TEXT_LIMIT_CHARS = 2_000  # ASCII: less than an index takes; 600 bytes of a stage, encoded, fit
FENCE_MAX = 2**63 - 1
MESSAGE_LIMIT_CHARS = 300  # of a driver's message
TIMEOUT_SECONDS = 10.0


class FenceGuard(msgspec.Struct, frozen=True, gc=False):
    """The fence of a write: nobody with a lower fence may write in the scope afterwards."""

    scope: str
    fence: int

    def check(self, highest: int) -> None:
        """Refuse the write if the scope has seen a higher fence."""
        if highest > self.fence:
            raise StaleFence(self.scope, self.fence, highest)


def guard_of(key: str, fence: object, scope: object) -> FenceGuard | None:
    """Check the key and return the guard of a write; without a scope the task is the scope, which
    is how an effect key begins.
    """
    _check_text("key", key)
    if fence is None:
        if scope is not None:
            raise InvalidInput(f"a scope ({scope!r}) needs a fence: pass fence=ctx.fence")
        return None
    if isinstance(fence, bool) or not isinstance(fence, int) or not 0 <= fence <= FENCE_MAX:
        raise InvalidInput(f"fence {fence!r} is not a whole number from 0 to {FENCE_MAX}")
    within = key.partition("/")[0] if scope is None else scope
    return FenceGuard(scope=_check_text("scope", within), fence=fence)


def check_fields(fields: object, *, kind: str) -> dict[str, Any]:
    """Return a copy of the fields, so that the driver does not change the caller's."""
    if not isinstance(fields, dict):
        raise InvalidInput(f"a {kind} is a dict, not {type(fields).__name__}")
    for name in fields:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"the names in a {kind} are text, and {name!r} is not")
    return dict(fields)


def check_place(name: str) -> str:
    if name.lower() == FENCES:
        raise InvalidInput(f"{name!r} holds the sink's fences: write to another one")
    return name


def wrong_value(name: str | None, message: object) -> InvalidInput:
    """Return the error for a value that no database can store, however often it is tried."""
    what = "the value" if name is None else f"the value of {name!r}"
    return InvalidInput(f"{what} cannot be stored: {message}"[:MESSAGE_LIMIT_CHARS])


def find_wrong_value(
    values: Mapping[str, Any],
    encode: Callable[[str, Any], object],
    errors: tuple[type[Exception], ...],
) -> str | None:
    """Return the name of the first value that the driver cannot encode by itself."""
    for name, value in values.items():
        try:
            encode(name, value)
        except errors:
            return name
    return None


def driver_message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MESSAGE_LIMIT_CHARS]


def check_timeout(timeout_seconds: float) -> float:
    if not 0 < timeout_seconds < float("inf"):
        raise InvalidInput(
            f"timeout_seconds={timeout_seconds!r}: it must be more than 0 and finite"
        )
    return float(timeout_seconds)


def _check_text(kind: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{kind} is of type {type(value).__name__}, not text")
    if not 0 < len(value) <= TEXT_LIMIT_CHARS:
        raise InvalidInput(
            f"{kind} has {len(value)} characters; 1 to {TEXT_LIMIT_CHARS} are allowed"
        )
    if not value.isprintable():  # nor are NUL and lone surrogates, which no database takes
        raise InvalidInput(f"{kind} {value!r} contains characters that cannot be printed")
    return str(value)
