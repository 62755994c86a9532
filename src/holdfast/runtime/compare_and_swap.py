"""A compare-and-swap loads a record, decides, writes, and begins again if it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.domain.errors import Contended, Refused

S = TypeVar("S")
W = TypeVar("W")

TRIES = 20  # each lost to another writer of the same record


async def compare_and_swap(
    what: str,
    load: Callable[[], Awaitable[S]],
    write: Callable[[S], Awaitable[W | None]],
    *,
    on_refusal: Callable[[S, Refused], Awaitable[object]] | None = None,
) -> W:
    """Return what ``write`` returns; None means that the record has changed since it was loaded.

    ``on_refusal`` records a refusal before it is raised. Raise `Contended` after so many attempts.
    Not for a holder's commit (`executor.py`), which has the changed record already, nor for a bulk
    round (`actions.py`), which writes many tasks at once and counts those that changed.
    """
    for _ in range(TRIES):
        record = await load()
        try:
            written = await write(record)
        except Refused as error:
            if on_refusal is not None:
                await on_refusal(record, error)
            raise
        if written is not None:
            return written
    raise Contended(what, TRIES)
