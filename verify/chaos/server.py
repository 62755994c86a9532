"""The store's server, which is killed too."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from verify.servers import RedisServer

TIMEOUT = "0.5"
PATIENT_TIMEOUT = "60"
AWAY_SECONDS = (0.0, 2.0)
SPARED_SECONDS = 0.5  # after it has come back


class Server:
    """A redis-server of our own.

    It writes and syncs before it answers. With ``everysec``, a kill -9 may lose what was answered
    during a sync, because the server then keeps the write in its own memory.
    """

    def __init__(
        self, folder: Path, chance: random.Random, *, durable: bool, straight: bool
    ) -> None:
        folder.mkdir()
        self._options = "" if straight else "&straight=off"
        self._server = RedisServer(folder=folder, appendonly=durable, appendfsync="always")
        self._chance = chance
        self._killed_at = 0.0
        self._back_at: float | None = None
        self._spared_until = 0.0
        self.kills = 0
        self.away_seconds = 0.0

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        return f"{self._server.url}/0?timeout={TIMEOUT}{self._options}"

    @property
    def patient_url(self) -> str:
        """Return the URL for the judge, with a long timeout: nobody kills the server any more."""
        return f"{self._server.url}/0?timeout={PATIENT_TIMEOUT}"

    @property
    def version(self) -> str:
        with self._server.client() as client:
            return f"Redis {client.info('server')['redis_version']}"

    @property
    def is_away(self) -> bool:
        return self._back_at is not None

    def strike(self) -> None:
        """Kill the server, unless it is away or has just come back."""
        now = time.monotonic()
        if self.is_away or now < self._spared_until:
            return
        self._server.kill()
        self.kills += 1
        self._killed_at, self._back_at = now, now + self._chance.uniform(*AWAY_SECONDS)

    def come_back(self, *, at_once: bool = False) -> None:
        """Start the server again if it is time."""
        if self._back_at is None or (time.monotonic() < self._back_at and not at_once):
            return
        self._server.start()
        now = time.monotonic()
        self.away_seconds += now - self._killed_at
        self._back_at, self._spared_until = None, now + SPARED_SECONDS
