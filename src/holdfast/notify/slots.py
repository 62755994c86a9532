"""Sharers divide a number of slots: each may take as many as are left free.

The first one alone gets half of them, a second one half of the remainder, and the next one still
finds a slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Shares:
    def __init__(self, slots: int) -> None:
        self._free = slots
        self._taken = Counter[Hashable]()

    def has_room(self, *sharers: Hashable) -> bool:
        """Return whether each of the sharers may take one more slot."""
        return all(self._taken[sharer] < self._free for sharer in sharers)

    @contextmanager
    def place(self, *sharers: Hashable) -> Iterator[None]:
        """Take a slot, which counts for each of the sharers."""
        self._free -= 1
        self._taken.update(sharers)
        try:
            yield
        finally:
            self._free += 1
            self._taken.subtract(sharers)
            for sharer in sharers:
                if not self._taken[sharer]:
                    del self._taken[sharer]
