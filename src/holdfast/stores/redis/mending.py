"""Repair of what a refused command has left half-way.

A script is not rolled back. When the server refuses one of its commands in the middle, because the
user's rights were narrowed meanwhile, what came before it stays. Whoever notices that marks the
partition as torn; as soon as the rights are back it is mended as `holdfast doctor --fix` does.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable

from holdfast.domain.errors import StoreError
from holdfast.stores.redis import doctor, scripts
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.reads import unless_foreign

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0  # after one that was refused, or that another process makes
LOCK_SECONDS = 60.0  # of one that has died


class Mender:
    """Mends torn partitions, one walk at a time, beside whatever else is done."""

    def __init__(self, parts: Iterable[Partition]) -> None:
        self._parts = list(parts)
        self.task: asyncio.Task[None] | None = None
        self._not_before = float("-inf")

    def begin(self) -> None:
        """Start to mend if something is torn and nothing is being mended here."""
        torn = [part for part in self._parts if part.torn_at is not None]
        if not torn or (self.task is not None and not self.task.done()):
            return
        if torn[0].steady() >= self._not_before:
            self.task = asyncio.create_task(self._mend_all(torn))

    async def close(self) -> None:
        task, self.task = self.task, None
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        task.cancel()
        await asyncio.wait({task})

    async def _mend_all(self, torn: Iterable[Partition]) -> None:
        for part in torn:
            try:
                await mend(part)
            except StoreError as error:
                log.warning("%s is torn and cannot be mended yet: %s", part.keys.prefix, error)
            if part.torn_at is not None:
                self._not_before = part.steady() + AGAIN_SECONDS


async def mend(part: Partition) -> None:
    """Compare and repair the partition, unless another process has done so since it was torn."""
    torn_at, token = part.torn_at, secrets.token_hex(8)
    if torn_at is None or not await _is_locked(part, token):
        return
    try:
        if await _mended_at(part) < torn_at:
            began, _ = await part.call(scripts.CLOCK)
            log.warning("%s: a command was refused inside a script: mending", part.keys.prefix)
            for found in await doctor.examine(part, fix=True, limit=doctor.AT_ONCE):
                told = " (mended)" if found.mended else ""
                log.warning("%s %s %s%s", found.invariant, found.task_id or "-", found.says, told)
            await part.link.many(
                part.keys, [("HSET", part.keys("meta"), "mendedAt", began.decode())]
            )
        if part.torn_at == torn_at:  # else it was torn again meanwhile
            part.torn_at = None
    finally:
        await _unlock(part, token)


async def _mended_at(part: Partition) -> float:
    (found,) = await part.link.many(part.keys, [("HGET", part.keys("meta"), "mendedAt")])
    return float(unless_foreign(found) or 0)


async def _is_locked(part: Partition, token: str) -> bool:
    """Told by the token: what is sent again finds its own lock."""
    key = part.keys("mending")
    asked = [("SET", key, token, "PX", round(LOCK_SECONDS * 1000), "NX"), ("GET", key)]
    _, holder = await part.link.many(part.keys, asked)
    return bool(holder == token.encode())


async def _unlock(part: Partition, token: str) -> None:
    key = part.keys("mending")
    (holder,) = await part.link.many(part.keys, [("GET", key)])
    if holder == token.encode():
        await part.link.many(part.keys, [("DEL", key)])
