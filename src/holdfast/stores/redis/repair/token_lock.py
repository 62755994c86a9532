"""A lock that one process holds at a time: a key with the holder's token, which expires."""

from __future__ import annotations

import msgspec

from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.views.walks import Pace, at_once


class TokenLock(msgspec.Struct, frozen=True):
    part: Partition
    kind: str  # the kind of its key
    token: str

    @property
    def _key(self) -> str:
        return self.part.keys(self.kind)

    def _set(self, seconds: float) -> tuple[str | int, ...]:
        return "SET", self._key, self.token, "PX", max(1, round(seconds * 1000))

    async def acquire(self, seconds: float) -> bool:
        """Acquire the lock, and return whether its token is ours; a repeat finds its own lock."""
        commands = [(*self._set(seconds), "NX"), ("GET", self._key)]
        _, holder = await self.part.client.many(self.part.keys, commands)
        return bool(holder == self.token.encode())

    async def extend(self, seconds: float) -> None:
        await self.part.client.many(self.part.keys, [self._set(seconds)])

    async def release(self) -> None:
        (holder,) = await self.part.client.many(self.part.keys, [("GET", self._key)])
        if holder == self.token.encode():
            await self.part.client.many(self.part.keys, [("DEL", self._key)])

    def keep(self, seconds: float, pace: Pace = at_once) -> Pace:
        """Return the pace of a walk that extends the lock while it takes long."""
        locked_at = self.part.steady()

        async def pace_and_extend() -> None:
            nonlocal locked_at
            await pace()
            if self.part.steady() - locked_at > seconds / 3:
                await self.extend(seconds)
                locked_at = self.part.steady()

        return pace_and_extend
