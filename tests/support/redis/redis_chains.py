"""Several partitions on one server, and the chain of audits over them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.domain.audit import Audit, Chain, first_break
from holdfast.domain.task.task import By
from holdfast.stores.redis.admin import audit_chain, audit_seal
from holdfast.stores.redis.client import address
from holdfast.stores.redis.client.client import RedisClient
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.partition import Partition, Partitions, RetentionTerms
from holdfast.stores.redis.retention import prune_audit
from holdfast.testing.clock import ManualClock
from verify.servers import RedisServer

ALL = 10_000
COUNT = 3  # partitions


class Parts:
    """Partitions beside each other on one server, as they would be in a Cluster."""

    def __init__(self, link: RedisClient, namespace: str) -> None:
        self.clock = ManualClock()
        keys = [KeyNames(f"{namespace}-{n}") for n in range(COUNT)]
        self.list = [Partition(link, k, RetentionTerms(), self.clock.times) for k in keys]
        self.all = Partitions(self.list)
        self._number = 0

    async def write(self, number: int, count: int = 1) -> list[str]:
        return [await self._write(number) for _ in range(count)]

    async def _write(self, number: int) -> str:
        self._number += 1
        self.clock.advance(1)
        told = entry(f"entry-{self._number:03}", self.clock.now())
        await audit_chain.write_audit(self.list[number], told)
        return told.task_id

    async def write_all(self, count: int) -> list[str]:
        return [(await self.write(n % COUNT))[0] for n in range(count)]

    async def seal(self, limit: int = ALL) -> int:
        return await audit_seal.seal(self.all, limit)

    async def chain(self, after: int = 0, limit: int = ALL) -> Chain:
        return await audit_chain.chain(self.all, after, limit)

    async def prune(self, older: float, *, limit: int = ALL) -> int:
        return await prune_audit.prune(
            self.all, older_than_seconds=older, limit=limit, dry_run=False
        )

    async def sealed(self) -> list[str]:
        """Return the entries of the chain, after checking that it is unbroken."""
        found = await self.chain()
        assert first_break(found.base, found.links) is None
        assert found.head == (found.links[-1].anchor if found.links else found.base)
        return [link.entry.task_id for link in found.links]

    async def seen(self, limit: int = ALL, start: int = 0) -> list[str]:
        return [one.task_id for one in await audit_chain.audits(self.all, limit, start)]

    async def waiting(self) -> list[int]:
        boxes = [await audit_chain.outbox(n, part, 0, -1) for n, part in enumerate(self.list)]
        return [box.length for box in boxes]

    async def ask(self, number: int, command: str, kind: str, *args: Any) -> Any:
        part = self.list[number]
        [reply] = await part.client.many(part.keys, [(command, part.keys(kind), *args)])
        return reply

    async def went_back(self, number: int, meta: Any, bodies: list[bytes]) -> None:
        """Set a partition back, as after a failover to a replica that had only this."""
        await self.ask(number, "HSET", "meta", "sealed", meta or 0)
        await self.ask(number, "DEL", "audit")
        await self.ask(number, "RPUSH", "audit", *bodies)


def entry(task_id: str, at: float) -> Audit:
    by = By(actor="ada", reason="because")
    return Audit(task_id=task_id, command="pause", by=by, at=at, before="A", after="B")


@asynccontextmanager
async def opened(server: RedisServer, namespace: str) -> AsyncIterator[Parts]:
    link = RedisClient(address.parse(server.url))
    await link.open()
    try:
        yield Parts(link, namespace)
    finally:
        await link.close()
