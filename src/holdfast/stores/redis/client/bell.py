"""The bell announces writes of other processes: one blocking read per partition while one waits.

The bell is a stream of a few entries. It is read from an id that was taken before any poll, so no
entry between a poll and the wait for it is missed (docs/internals/decisions/0007).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from holdfast.domain.errors import StoreError
from holdfast.ports import Topic
from holdfast.stores.redis.client.client import RedisClient, unless_foreign
from holdfast.stores.redis.keys import RINGS, KeyNames

BLOCK_SECONDS = 5.0
RETRY_SECONDS = 0.5

log = logging.getLogger("holdfast.stores.redis.bell")


class Bells:
    def __init__(
        self, client: RedisClient, of: Sequence[KeyNames], notify: Callable[[Topic], None]
    ) -> None:
        self._client, self._of, self._notify = client, of, notify
        self._last: dict[str, str] = {}
        self._listeners: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        for keys in self._of:
            self._last[keys.prefix] = await self._newest(keys)

    def listen(self) -> None:
        """Start to listen on the calling event loop, unless that has been done."""
        if not self._listeners or self._listeners[0].get_loop().is_closed():
            self._listeners = [asyncio.create_task(self._follow(keys)) for keys in self._of]

    async def close(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)

    async def _newest(self, keys: KeyNames) -> str:
        (reply,) = await self._client.many(
            keys, [("XREVRANGE", keys("bell"), "+", "-", "COUNT", 1)]
        )
        newest = unless_foreign(reply)
        return str(newest[0][0].decode()) if newest else "0-0"

    async def _follow(self, keys: KeyNames) -> None:
        lost = False
        while True:
            try:
                if lost:  # after a restart or failover the ids may be lower
                    self._last[keys.prefix] = await self._newest(keys)
                    lost = False
                    self._ring(Topic)
                await self._poll(keys)
            except StoreError as error:
                log.debug("cannot listen for changes of %s: %s", keys.prefix, error)
                lost = True
                await asyncio.sleep(RETRY_SECONDS)

    async def _poll(self, keys: KeyNames) -> None:
        last = self._last[keys.prefix]
        rings = await self._client.listen(keys, last, block_seconds=BLOCK_SECONDS)
        for entry, fields in rings:
            self._last[keys.prefix] = entry
            self._ring(topic for topic in Topic if topic.encode() in fields)
        if len(rings) >= RINGS:  # older entries may have been dropped
            self._ring(Topic)

    def _ring(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._notify(topic)
