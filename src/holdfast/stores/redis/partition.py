"""One partition: its keys, its terms, and how its scripts are run."""

from __future__ import annotations

import logging
import time as clocks
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.domain.errors import StoreError
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Link, Script
from holdfast.stores.redis.client.faults import CommandDenied
from holdfast.stores.redis.encoding.replies import ServerTime, named
from holdfast.stores.redis.keys import DENIED, TORN, Keys

TOMBSTONE_SECONDS = 24 * 3600
LOCK_SECONDS = 9000
CHECKPOINT_SECONDS = 7 * 86_400
FORMAT = 1  # of what is stored
EMPTIED = (
    "the store was emptied, or its key meta was removed: by FLUSHALL or FLUSHDB, by a restart "
    "without its data, or by a maxmemory-policy that evicts. What is gone is not done; submit it "
    "again with the same keys"
)
LATE_SECONDS = 1.0  # on its way: the server, or the way to it, has stood still
# Elements of one script: the server does nothing else meanwhile, for 5 ms at most.
BATCH = 50  # submits, or looks
CLAIMS = 64
MOVES = 24  # those that finish or take back, with a tenant's line behind each

log = logging.getLogger("holdfast.stores.redis.partition")

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
        self._strangers: set[str] = set()
        self._writes = 0  # of the server, as far as it was answered
        self.partitions = 1  # of the store
        self.torn_at: float | None = None  # by the server's time: a script was stopped half-way

    async def call(self, script: Script, *args: str | bytes | float, again: bool = True) -> Any:
        try:
            return await self.link.call(script, self.keys, [self.now(), *args], repeatable=again)
        except CommandDenied:
            await self._mark_torn()
            raise

    def note_torn(self) -> float:
        """Remember that a command was refused inside a script: see `mending.py`."""
        ahead = self._ahead or 0.0
        self.torn_at = self._time()[0] if self._time is not None else self.steady() + ahead
        return self.torn_at

    async def _mark_torn(self) -> None:
        """Tell the workers, too: this process may have no sweeps, or end."""
        marked = "HSET", self.keys("meta"), "tornAt", f"{self.note_torn():.6f}"
        with suppress(StoreError):
            await self.link.many(self.keys, [marked])

    async def write(self, script: Script, *args: str | bytes | float) -> Any:
        """A call whose answer tells how much had been written before it."""
        answered = self._writes
        answer, writes, written, *told = await self.call(script, *args)
        await self._tell(told)
        before = writes - written
        if written and before < answered:
            await self._note_loss(answered, before)
        elif written:
            self._writes = max(self._writes, writes)
        return answer

    async def _tell(self, told: Sequence[Sequence[bytes]]) -> None:
        """Keys of another program where our indexes belong; once for each."""
        names = {name.decode(errors="replace") for some in told for name in some}
        if DENIED in names:
            names.remove(DENIED)
            await self._mark_torn()
        if TORN in names:
            names.remove(TORN)
            if self.torn_at is None:
                self.note_torn()
        for name in sorted(names - self._strangers):
            log.error(
                "%s holds something of another program: what belongs there is left out; "
                "rename it, then run `holdfast doctor --fix`",
                name,
            )
        self._strangers |= names

    async def _note_loss(self, answered: int, before: int) -> None:
        try:
            reply = named(await self.call(scripts.GONE_BACK, answered, before))
        except StoreError:
            return  # the next write will notice
        lost, self._writes = reply["lost"], reply["writes"]
        if lost:
            log.error(
                "%s: %d writes that had been answered are gone: a failover or a restart lost them",
                self.keys.prefix,
                lost,
            )

    async def note_emptied(self) -> None:
        """Say that the store was emptied under us, and make it one again: see remake.lua."""
        if await self.call(scripts.REMAKE, FORMAT, self.partitions):
            log.critical("%s: %s", self.keys.prefix, EMPTIED)

    async def hear(self) -> None:
        """Learn the server's time."""
        asked_at = self.steady()
        self.heard((await self.server_time()).now, asked_at)

    async def server_time(self) -> ServerTime:
        reply = named(await self.call(scripts.CLOCK))
        return ServerTime(float(reply["now"]), float(reply["wall"]))

    def gives_up(self) -> str:
        """Shortly before, by the server's time, a call sent now is not waited for any more."""
        if self._time is not None or self._ahead is None:
            return ""
        return f"{self.steady() + self._ahead + 0.9 * self.link.address.timeout_seconds:.6f}"

    def heard(self, server_now: float, asked_at: float) -> None:
        """From before it was asked: that errs on the side of the longer lease."""
        self._ahead = server_now - asked_at

    def now(self) -> str:
        """What the scripts are told about the time: they have the server's, and learn from us
        by when they should have been run (see shared/time.lua)."""
        if self._time is not None:
            return "{:.6f} {:.6f}".format(*self._time())
        if self._ahead is None:
            return ""
        return f"by {self.steady() + self._ahead + LATE_SECONDS:.6f}"
