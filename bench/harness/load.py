"""A worker without stages on any store: it submits, claims and finishes through the port."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.clock import SystemClock, new_id
from holdfast.domain.task import decide
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Inserted, Submission
from holdfast.engine.store_url import store_from_url
from holdfast.ports import Claimed, Store

PAYLOAD = b"12345"
TYPE = "bench.noop"
WORKER = "bench-1"
BATCH = 128  # a worker's slots, as they come
INSERTED = 500
LEASE_SECONDS = 600.0
KEEP_SECONDS = 30 * 86_400.0  # the default: what is settled stays
NO_LIMIT = 1 << 40


class BatchWorker:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._clock, self._chance = SystemClock(), random.Random()
        self._digest = hashlib.blake2s(TYPE.encode() + b"\n" + PAYLOAD).hexdigest()

    async def insert(self, number: int) -> None:
        for done in range(0, number, INSERTED):
            batch = [self._submission() for _ in range(min(INSERTED, number - done))]
            answers = await self.store.tasks.insert(batch, depth_limit=NO_LIMIT)
            assert all(isinstance(answer, Inserted) for answer in answers), answers

    async def end(self, number: int) -> float:
        """Claim and finish so many tasks; return the seconds that the store took."""
        seconds, ended = 0.0, 0
        while ended < number:
            begun = time.perf_counter()
            claimed = await self._claim(min(BATCH, number - ended))
            seconds += time.perf_counter() - begun
            if not claimed:
                raise RuntimeError(f"{number - ended} tasks were not handed out")
            seconds += await self._finish(claimed)
            ended += len(claimed)
        return seconds

    async def _claim(self, limit: int) -> Sequence[Claimed]:
        return await self.store.tasks.claim(
            WORKER,
            request=f"{self._chance.getrandbits(64):x}",
            queues=("default",),
            limit=limit,
            lease_seconds=LEASE_SECONDS,
        )

    async def _finish(self, claimed: Sequence[Claimed]) -> float:
        now = self._clock.now()
        done = decide.Done(result=b"null", data={}, started_at=now, duration_seconds=0.0)
        transitions = [decide.complete(one.task, done, now=now) for one in claimed]
        begun = time.perf_counter()
        outcomes = await self.store.tasks.apply(transitions)
        seconds = time.perf_counter() - begun
        assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes
        return seconds

    def _submission(self) -> Submission:
        now = self._clock.now()
        task = Task(
            id=self.store.partitioned_id(new_id(self._clock, self._chance), tenant=None, key=None),
            type=TYPE,
            stages=(TYPE,),
            keep_seconds=KEEP_SECONDS,
            created_at=now,
            status=Status.PENDING,
            status_since=now,
            updated_at=now,
        )
        return decide.submit(task, PAYLOAD, self._digest)


@asynccontextmanager
async def open_batch_worker(url: str) -> AsyncIterator[BatchWorker]:
    store = store_from_url(url, SystemClock(), "executor")
    await store.open()
    try:
        yield BatchWorker(store)
    finally:
        await store.close()
