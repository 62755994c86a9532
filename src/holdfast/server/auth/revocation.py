"""Revocations end long requests whose token counts no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.server.auth.tokens import Token

POLL_SECONDS = 1.0


class _Watched:
    def __init__(self) -> None:
        self.requests = 0
        self.revoked = asyncio.Event()


class Revocations:
    """The tokens of this process's long requests: one task checks them all, once a second."""

    def __init__(self, find: Callable[[str], Token | None]) -> None:
        """Ask ``find`` for the token with an id; it returns None for one that no longer counts."""
        self._find = find
        self._watched: dict[Token, _Watched] = {}
        self._watcher: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, token: Token) -> Iterator[asyncio.Event]:
        """Yield what is set when the token has expired, was revoked or changed."""
        watched = self._watched.setdefault(token, _Watched())
        watched.requests += 1
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._run())
        try:
            yield watched.revoked
        finally:
            watched.requests -= 1
            if not watched.requests and self._watched.get(token) is watched:
                del self._watched[token]

    async def _run(self) -> None:
        try:
            while self._watched:
                await asyncio.sleep(POLL_SECONDS)
                self._check_tokens()
        finally:
            self._watcher = None

    def _check_tokens(self) -> None:
        for token in [one for one in self._watched if self._find(one.id) != one]:
            self._watched.pop(token).revoked.set()

    async def close(self) -> None:
        await cancel_and_wait(self._watcher)
