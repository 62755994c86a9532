"""Repair of a partition in which a refused command left a script half-way.

A script is not rolled back. When the server refuses one of its commands in the middle, because the
user's rights were reduced meanwhile, the writes before it stay. The process that notices this marks
the partition as torn. When the rights are back, it is repaired as `holdfast doctor --fix` does.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress

from holdfast.domain.backoff import doubled_seconds
from holdfast.domain.errors import StoreError
from holdfast.stores.redis.client.client import unless_foreign
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.repair import doctor
from holdfast.stores.redis.repair.token_lock import TokenLock
from holdfast.stores.redis.views.walks import Pace

log = logging.getLogger("holdfast.stores.redis.mending")

AGAIN_SECONDS = (1.0, 64.0)  # the pause after a refused repair, or one by another process
LOCK_SECONDS = 10.0  # extended while it is needed; a process that died blocks others no longer
APART_SECONDS = 1.0  # how far our estimate of the server's time may be off
STAY_TRIES = 6  # repairs while findings stay, such as counts of a busy store; the pause doubles


class Mender:
    """Repairs torn partitions in the background, one at a time."""

    def __init__(self, parts: Iterable[Partition]) -> None:
        self._parts = list(parts)
        self.task: asyncio.Task[None] | None = None
        self._token = secrets.token_hex(8)  # the same for each try, to find its own lock
        self._not_before: dict[Partition, float] = {}
        self._stays: dict[Partition, int] = {}  # tries that left findings

    def begin(self) -> None:
        """Start a repair if something is torn and no repair runs here."""
        torn = [part for part in self._parts if part.torn_at is not None]
        if not torn or (self.task is not None and not self.task.done()):
            return
        due = [p for p in torn if p.steady() >= self._not_before.get(p, float("-inf"))]
        if due:
            self.task = asyncio.create_task(self._mend_all(due))

    async def close(self) -> None:
        task, self.task = self.task, None
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        task.cancel()
        await asyncio.wait({task})

    async def _mend_all(self, torn: Iterable[Partition]) -> None:
        for part in torn:
            try:
                await self._mend(part)
            except StoreError as error:
                log.warning(
                    "%s: a refused command left a script half-way; it cannot be repaired yet: %s",
                    part.keys.prefix,
                    error,
                )
            pause = doubled_seconds(AGAIN_SECONDS, self._stays.get(part, 0))
            self._not_before[part] = part.steady() + pause

    async def _mend(self, part: Partition) -> None:
        """Compare and repair a partition, unless another process has done so since it was torn."""
        torn_at = part.torn_at
        lock = TokenLock(part, "mending", self._token)
        if torn_at is None or not await lock.acquire(LOCK_SECONDS):
            return
        stays = False
        try:
            if await _mended_at(part) < torn_at + APART_SECONDS:
                stays = await _examine(part, lock.keep(LOCK_SECONDS))
        finally:
            with suppress(StoreError):  # the next try finds the lock again, and it ends by itself
                await lock.release()
        if part.torn_at == torn_at:  # otherwise it was torn again meanwhile
            self._judge(part, stays=stays)

    def _judge(self, part: Partition, *, stays: bool) -> None:
        tries = self._stays.pop(part, 0) + 1
        part.torn_at = None
        if stays and tries < STAY_TRIES:
            self._stays[part] = tries
            part.note_torn()


async def _examine(part: Partition, pace: Pace) -> bool:
    """Repair what can be derived, and return whether some finding could not be repaired."""
    began = (await part.server_time()).now
    log.warning("%s: a command was refused inside a script; repairing", part.keys.prefix)
    findings = await doctor.examine(part, fix=True, limit=doctor.AT_ONCE, pace=pace)
    for finding in findings:
        log.warning("doctor finding %s", finding)
    await part.client.many(part.keys, [("HSET", part.keys("meta"), "mendedAt", f"{began:.6f}")])
    return not all(finding.mended for finding in findings)


async def _mended_at(part: Partition) -> float:
    (reply,) = await part.client.many(part.keys, [("HGET", part.keys("meta"), "mendedAt")])
    return float(unless_foreign(reply) or 0)
