"""A store as it is after a month of work: settled tasks, and suspended ones beside them.

All of it is written through the port, by the engine's own decisions; only the times are made up, so
that the month is over in minutes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from bench.harness.load import KEEP_SECONDS, LEASE_SECONDS, NO_LIMIT, WORKER
from holdfast.clock import new_ids
from holdfast.domain.task import decide, operate
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By, Failure, FailureKind, Task
from holdfast.domain.task.transition import Applied, Inserted, Transition
from holdfast.ports import Claimed, Store
from holdfast.testing.clock import ManualClock

T = TypeVar("T")

TYPES = tuple(f"bench.type-{n:02d}" for n in range(20))
QUEUES = tuple(f"queue-{n}" for n in range(3))
TENANTS = tuple(f"t-{n:03d}" for n in range(500))
CAUSES = tuple(f"Error{n:03d}" for n in range(300))
PLAN = "rollout"
MONTH_SECONDS = 30 * 86_400.0
CHUNK = 5_000  # tasks that are put there, and settled before the next
BATCH = 1_000
CANCELLED, ROLLED_BACK = 0.03, 0.005  # of the tasks
SUSPENDED_SHARE = 0.02  # so many more than the settled
PLANNED_SHARE = 0.01
PAYLOAD = b'{"version":7}'
BY = By(actor="bench", origin="127.0.0.1", reason="no longer wanted")


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    ids: list[str]  # the newest first
    first_at: float
    last_at: float
    fingerprints: list[str]  # of what is suspended
    audits: int


class Filler:
    """``await Filler(store).fill(1_000_000)``"""

    def __init__(self, store: Store, *, now: float | None = None) -> None:
        self._store = store
        self._chance = random.Random(7)
        self._clock = ManualClock()
        self._ends_at = time.time() if now is None else now
        self._ids: list[str] = []
        self._fingerprints: set[str] = set()
        self._asked = 0

    async def fill(self, settled: int, go_on: Callable[[], None] = lambda: None) -> Filled:
        """``go_on`` is called now and then, and may raise."""
        suspended = max(1, int(settled * SUSPENDED_SHARE))
        step = MONTH_SECONDS / (settled + suspended)
        first_at = self._ends_at - MONTH_SECONDS
        self._clock.advance(first_at - self._clock.now())
        for done in range(0, settled, CHUNK):
            go_on()
            await self._settle(min(CHUNK, settled - done), step)
        for done in range(0, suspended, CHUNK):
            go_on()
            await self._suspend(min(CHUNK, suspended - done), step)
        while await self._store.admin.seal(limit=BATCH):
            go_on()
        return Filled(
            ids=sorted(self._ids, reverse=True),
            first_at=first_at,
            last_at=self._ends_at,
            fingerprints=sorted(self._fingerprints),
            audits=self._asked,
        )

    async def _settle(self, number: int, step: float) -> None:
        ids = await self._insert(number, step)
        cut = int(number * CANCELLED)
        await self._ask(ids[:cut], operate.cancel)
        back = set(ids[cut : cut + int(number * ROLLED_BACK)])
        await self._work(lambda task: self._fail(task) if task.id in back else self._finish(task))
        await self._ask(sorted(back), operate.rollback)
        await self._work(lambda task: decide.rolled_back(task, now=self._clock.now()))

    async def _suspend(self, number: int, step: float) -> None:
        await self._insert(number, step)
        await self._work(self._fail)

    async def _insert(self, number: int, step: float) -> list[str]:
        tasks = [self._task(step) for _ in range(number)]
        for batch in _batches(tasks):
            made = [decide.submit(task, PAYLOAD, "") for task in batch]
            answers = await self._store.tasks.insert(made, depth_limit=NO_LIMIT)
            assert all(isinstance(answer, Inserted) for answer in answers), answers
        ids = [task.id for task in tasks]
        self._ids += ids
        return ids

    def _task(self, step: float) -> Task:
        self._clock.advance(step)
        now, pick = self._clock.now(), self._chance.choice
        [made], tenant = new_ids(self._clock, self._chance, 1), pick(TENANTS)
        kind = pick(TYPES)
        return Task(
            id=self._store.partitioned_id(made, tenant=tenant, key=None),
            type=kind,
            tenant=tenant,
            queue=pick(QUEUES),
            plan=PLAN if self._chance.random() < PLANNED_SHARE else None,
            stages=(kind,),
            keep_seconds=2 * KEEP_SECONDS,
            created_at=now,
            status=Status.PENDING,
            status_since=now,
            updated_at=now,
        )

    async def _work(self, decided: Callable[[Task], Transition]) -> None:
        """Claim tasks and apply the decided transitions until no task is left."""
        while claimed := await self._claim():
            await self._apply([decided(one.task) for one in claimed])

    async def _claim(self) -> Sequence[Claimed]:
        return await self._store.tasks.claim(
            WORKER,
            request=f"{self._chance.getrandbits(64):x}",
            queues=QUEUES,
            limit=BATCH,
            lease_seconds=LEASE_SECONDS,
        )

    def _finish(self, task: Task) -> Transition:
        now = self._clock.now()
        done = decide.Done(result=b"7", data={}, started_at=now, duration_seconds=0.0)
        return decide.complete(task, done, now=now)

    def _fail(self, task: Task) -> Transition:
        now = self._clock.now()
        failure = Failure(
            kind=FailureKind.PERMANENT,
            error=self._chance.choice(CAUSES),
            message="it did not work",
            stage="run",
            attempt=1,
            at=now,
        )
        self._fingerprints.add(failure.fingerprint)
        return decide.suspend(task, failure, now=now)

    async def _ask(
        self, ids: Sequence[str], command: Callable[[Task, operate.OperatorRequest], Transition]
    ) -> None:
        """Apply an operator's command to these tasks; the audit log records the operator."""
        for batch in _batches(ids):
            tasks = [task for task in await self._store.views.load(batch) if task is not None]
            await self._apply([command(task, self._asking()) for task in tasks])

    def _asking(self) -> operate.OperatorRequest:
        self._asked += 1
        return operate.OperatorRequest(by=BY, now=self._clock.now(), request=f"ask-{self._asked}")

    async def _apply(self, batch: Sequence[Transition]) -> None:
        outcomes = await self._store.tasks.apply(batch)
        assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[n : n + BATCH] for n in range(0, len(items), BATCH)]
