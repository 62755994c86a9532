"""Tasks as a busy application makes them, and a worker that ends them at once."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from holdfast.clock import SystemClock, new_id
from holdfast.domain.task import decide
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Inserted, Submission
from holdfast.ports import Claimed, Kept
from holdfast.stores.redis.partition import BATCH, MOVES, TOMBSTONE_SECONDS
from holdfast.stores.redis.store import RedisStore

PAYLOAD = b'"' + b"x" * 198 + b'"'  # 200 bytes
TYPE = "mail.send"
WORKER = "bench-1"
LEASE_SECONDS = 600.0
NO_LIMIT = 1 << 40


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of the tasks: over how many tenants (0: none), and whether each has a key."""

    name: str
    tenants: int = 0
    keyed: bool = True

    def over(self, tenants_max: int) -> Load:
        return msgspec.structs.replace(self, tenants=min(self.tenants, tenants_max))

    def tenant_of(self, number: int) -> str | None:
        return f"t-{number % self.tenants:05d}" if self.tenants else None

    def key_of(self, number: int) -> str | None:
        return f"order-{number}" if self.keyed else None


@asynccontextmanager
async def open_store(url: str, *, ahead_seconds: float = 0.0) -> AsyncIterator[RedisStore]:
    """Open a store; with ``ahead_seconds`` its clock is that much later."""
    clock = SystemClock()

    def later() -> tuple[float, float]:
        return clock.now() + ahead_seconds, clock.now() + ahead_seconds

    store = RedisStore(url, clock, time=later if ahead_seconds else None)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class RedisBatchWorker:
    """Submits, claims and finishes in the batches that the store makes of them."""

    def __init__(self, store: RedisStore, load: Load, numbers: count[int]) -> None:
        self.store, self._load, self._numbers = store, load, numbers
        self._clock, self._chance = SystemClock(), random.Random()

    def submissions(self, number: int = BATCH) -> list[Submission]:
        """Tasks that are not kept: what stays of them is a tombstone."""
        digest = hashlib.blake2s(TYPE.encode() + b"\n" + PAYLOAD).hexdigest()
        return [decide.submit(self._task(), PAYLOAD, digest) for _ in range(number)]

    async def insert(self, batch: Sequence[Submission]) -> None:
        answers = await self.store.tasks.insert(batch, depth_limit=NO_LIMIT)
        assert all(isinstance(answer, Inserted) for answer in answers), answers

    async def claim(self) -> Sequence[Claimed]:
        return await self.store.tasks.claim(
            WORKER,
            request=f"{self._chance.getrandbits(64):x}",
            queues=("default",),
            limit=MOVES,
            lease_seconds=LEASE_SECONDS,
        )

    async def finish(self, claimed: Sequence[Claimed]) -> None:
        now = self._clock.now()
        done = decide.Done(result=b'"sent"', data={}, started_at=now, duration_seconds=0.1)
        outcomes = await self.store.tasks.apply(
            [decide.complete(one.task, done, now=now) for one in claimed]
        )
        assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes

    def _task(self) -> Task:
        number, now = next(self._numbers), self._clock.now()
        return Task(
            id=new_id(self._clock, self._chance),
            type=TYPE,
            tenant=self._load.tenant_of(number),
            key=self._load.key_of(number),
            stages=(TYPE,),
            keep_seconds=0.0,
            created_at=now,
            status=Status.PENDING,
            status_since=now,
            updated_at=now,
        )


async def prune_tombstones(url: str) -> int:
    """Prune the tombstones as if their day were over."""
    async with open_store(url, ahead_seconds=2.0 * TOMBSTONE_SECONDS) as store:
        return await store.admin.prune(
            Kept.TOMBSTONES, older_than_seconds=0.0, limit=NO_LIMIT, dry_run=False
        )
