"""One partition: its keys, its terms, and how its scripts are run."""

from __future__ import annotations

import logging
import time as clocks
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.domain.errors import StoreError
from holdfast.stores.redis import scripts
from holdfast.stores.redis.keys import Keys
from holdfast.stores.redis.link import Link, Script

TOMBSTONE_SECONDS = 24 * 3600
LOCK_SECONDS = 9000
CHECKPOINT_SECONDS = 7 * 86_400
LATE_SECONDS = 1.0  # on its way: the server, or the way to it, has stood still
# Elements of one script: the server does nothing else meanwhile, for 5 ms at most.
BATCH = 50
MOVES = 25  # those that claim, finish or take back cost twice as much

log = logging.getLogger(__name__)

Time = Callable[[], tuple[float, float]]  # for leases and due times; for everything else


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is kept."""

    lock_seconds: int = LOCK_SECONDS
    checkpoint_seconds: int = CHECKPOINT_SECONDS
    tombstone_seconds: int = TOMBSTONE_SECONDS


class Partition:
    """``time``: a test's clock in the place of the server's."""

    def __init__(
        self,
        link: Link,
        keys: Keys,
        terms: Terms,
        time: Time | None = None,
        steady: Callable[[], float] = clocks.monotonic,
    ) -> None:
        self.link, self.keys, self.terms = link, keys, terms
        self._time, self.steady = time, steady
        self._ahead: float | None = None  # the server's time minus our steady one, as last heard
        self._writes = 0  # of the server, as far as it was answered

    async def call(self, script: Script, *args: str | bytes | float, again: bool = True) -> Any:
        return await self.link.call(script, self.keys, [self.now(), *args], repeatable=again)

    async def write(self, script: Script, *args: str | bytes | float) -> Any:
        """A call whose answer tells how much had been written before it."""
        answered = self._writes
        answer, writes, written = await self.call(script, *args)
        before = writes - written
        if written and before < answered:
            await self._note_loss(answered, before)
        elif written:
            self._writes = max(self._writes, writes)
        return answer

    async def _note_loss(self, answered: int, before: int) -> None:
        try:
            lost, self._writes = await self.call(scripts.GONE_BACK, answered, before)
        except StoreError:
            return  # the next write will notice
        if lost:
            log.error(
                "%s: %d writes that had been answered are gone: a failover or a restart lost them",
                self.keys.prefix,
                lost,
            )

    def heard(self, server_now: float, asked_at: float) -> None:
        """From before it was asked: that errs on the side of the longer lease."""
        self._ahead = server_now - asked_at

    def now(self) -> str:
        """What the scripts are told about the time: they have the server's, and learn from us
        by when they should have been run (see common.lua)."""
        if self._time is not None:
            return "{:.6f} {:.6f}".format(*self._time())
        if self._ahead is None:
            return ""
        return f"by {self.steady() + self._ahead + LATE_SECONDS:.6f}"
