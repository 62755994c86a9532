"""One partition: its keys, its terms, and how its scripts are run."""

from __future__ import annotations

import logging
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
BATCH = 50  # elements of one script: the server does nothing else meanwhile

log = logging.getLogger(__name__)

Time = Callable[[], tuple[float, float]]  # for leases and due times; for everything else


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is kept."""

    lock_seconds: int = LOCK_SECONDS
    checkpoint_seconds: int = CHECKPOINT_SECONDS
    tombstone_seconds: int = TOMBSTONE_SECONDS


class Partition:
    """``time``: a test's clock in the place of the server's."""

    def __init__(self, link: Link, keys: Keys, terms: Terms, time: Time | None = None) -> None:
        self.link, self.keys, self.terms = link, keys, terms
        self._time = time
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

    def now(self) -> str:
        """What the scripts are told about the time: nothing, they have the server's."""
        return "" if self._time is None else "{:.6f} {:.6f}".format(*self._time())
