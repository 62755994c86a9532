"""The number of live streams is bounded: in all, and for each token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast.server.http.problems import TooManyOfToken, TooManyStreams

STREAMS_MAX = 400  # at once, of one process: half of its connections stay for others
STREAMS_OF_TOKEN_MAX = 50


class StreamQuota:
    """The places for streams of tasks, plans and alerts together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_token = Counter[str]()

    @property
    def taken(self) -> int:
        return self._by_token.total()

    def take(self, token_id: str) -> Callable[[], None]:
        """Take a place for a stream of the token; the function that is returned gives it back."""
        if self.taken >= (limit := min(STREAMS_MAX, self._limit)):
            raise TooManyStreams(f"{limit} streams are open here already")
        if self._by_token[token_id] >= STREAMS_OF_TOKEN_MAX:
            raise TooManyOfToken(f"{STREAMS_OF_TOKEN_MAX} streams of this token are open already")
        self._by_token[token_id] += 1

        def leave() -> None:
            self._by_token[token_id] -= 1
            if not self._by_token[token_id]:
                del self._by_token[token_id]

        return leave
