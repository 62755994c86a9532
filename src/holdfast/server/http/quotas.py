"""How many requests may be under way at once, of each token and in all. Counted in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.domain.errors import HoldfastError


class Quota:
    """Places for one kind of request."""

    def __init__(
        self,
        *,
        total: int,
        of_token: int,
        full: Callable[[int], HoldfastError],
        token_full: Callable[[int], HoldfastError],
    ) -> None:
        """``full`` and ``token_full`` make the refusal out of the number of places."""
        self._total, self._of_token = total, of_token
        self._full, self._token_full = full, token_full
        self._taken = 0
        self._by_token = Counter[str]()

    @property
    def taken(self) -> int:
        return self._taken

    def taken_by(self, token_id: str) -> int:
        """Return how many places a token has."""
        return self._by_token.get(token_id, 0)

    @contextmanager
    def place(self, token_id: str) -> Iterator[None]:
        """Take a place for one request, and give it back at its end."""
        if self._by_token[token_id] >= self._of_token:
            raise self._token_full(self._of_token)
        if self._taken >= self._total:
            raise self._full(self._total)
        self._taken += 1
        self._by_token[token_id] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._by_token[token_id] -= 1
            if not self._by_token[token_id]:
                del self._by_token[token_id]
