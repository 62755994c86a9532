"""Redis behind the Store port: each verb goes to the partition that has the task.

A single server or Sentinel has one partition, a Cluster has many; a task's partition follows from
its tenant, else its key, else its id, and is part of its id.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from holdfast.domain import names
from holdfast.domain.checkpoint import Checkpoint
from holdfast.domain.errors import (
    InvalidInput,
    PartlyUnavailable,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task import Task
from holdfast.domain.transition import Audit, Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Check,
    Claimed,
    Clock,
    Detail,
    Due,
    Filter,
    Finding,
    Kept,
    Page,
    Peek,
    Renewal,
    Stats,
    TenantView,
    Topic,
    WorkerInfo,
)
from holdfast.stores import codec
from holdfast.stores.redis import (
    address,
    checks,
    counts,
    doctor,
    find,
    opening,
    prune,
    reads,
    verbs,
)
from holdfast.stores.redis.bell import Bells
from holdfast.stores.redis.keys import Keys, number_of, prefixes
from holdfast.stores.redis.link import Link
from holdfast.stores.redis.partition import Partition, Terms, Time
from holdfast.stores.signals import Signals

log = logging.getLogger(__name__)

ASK_ALL_SECONDS = 5.0
BEAT_SHARE = 0.15  # of a lease: a worker beats at least every third of it

T = TypeVar("T")
U = TypeVar("U")


class RedisStore:
    """``time`` gives a test's clock to the scripts, in the place of the server's."""

    durable = False  # until it was looked at

    def __init__(
        self,
        url: str,
        clock: Clock,
        namespace: str = "executor",
        *,
        terms: Terms | None = None,
        time: Time | None = None,
    ) -> None:
        names.check("namespace", namespace)
        self._address = address.parse(url)
        self.url = self._address.shown
        self._clock = clock
        self._link = Link(self._address)
        clustered = self._address.clustered
        self._partitions = [
            Partition(self._link, Keys(prefix), terms or Terms(), time, clock.steady)
            for prefix in prefixes(namespace, self._address.partitions, clustered=clustered)
        ]
        self._first = self._partitions[0]  # what belongs to no task is kept there
        self._signals = Signals(clock)
        self._bells = Bells(self._link, [p.keys for p in self._partitions], self._signals.notify)
        self._last_claims: dict[str, str] = {}
        self._empty_claims: dict[str, str] = {}
        self._asked_all_at = -ASK_ALL_SECONDS
        self._checks: list[Check] = []

    async def open(self) -> None:
        await self._link.open()
        try:
            self._checks = await checks.look(self._link, self._keys(), self._clock)
            for part in self._partitions:
                await opening.make_ours(part, len(self._partitions))
                await part.hear()
            await self._bells.open()
        except BaseException:
            await self._link.close()
            raise
        self.durable = checks.is_durable(self._checks)
        for check in self._checks:
            if not check.good:
                log.warning("%s: %s: %s", self.url, check.name, check.says)

    async def close(self) -> None:
        await self._bells.close()
        await self._link.close()

    async def detach(self) -> None:
        await self._link.detach()

    # -- where

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        if len(self._partitions) == 1:
            return task_id
        return f"{task_id}.p{number_of(self._number(tenant or key or task_id))}"

    def _number(self, name: str) -> int:
        return zlib.crc32(name.encode()) % len(self._partitions)

    def _part_of_tenant(self, tenant: str) -> Partition:
        return self._partitions[self._number(tenant)]

    def _part_of(self, task_id: str) -> Partition | None:
        """None: no task here can have that id."""
        if len(self._partitions) == 1:
            return self._first
        found = re.search(r"\.p(\d+)$", task_id)
        number = int(found[1]) if found else -1
        return self._partitions[number] if 0 <= number < len(self._partitions) else None

    def _part_with(self, task: Task) -> Partition:
        part, own = self._part_of(task.id), task.id
        if len(self._partitions) > 1:
            own = self.home(task.id.rpartition(".p")[0], tenant=task.tenant, key=task.key)
        if part is None or own != task.id:
            raise InvalidInput(f"task id {task.id!r} was not made by this store's home()")
        return part

    def _keys(self) -> list[Keys]:
        return [part.keys for part in self._partitions]

    async def _spread(
        self,
        batch: Sequence[T],
        part_of: Callable[[T], Partition | None],
        ask: Callable[[Partition, list[T]], Awaitable[Sequence[U]]],
        otherwise: Callable[[T], U],
    ) -> list[U]:
        """Each element asked of its partition, the answers in the order of the batch."""
        places: defaultdict[Partition, list[int]] = defaultdict(list)
        answers: dict[int, U] = {}
        for place, one in enumerate(batch):
            part = part_of(one)
            if part is None:
                answers[place] = otherwise(one)
            else:
                places[part].append(place)
        asked = (ask(part, [batch[i] for i in at]) for part, at in places.items())
        found, missed = await _tried(asked)
        for at, some in zip(places.values(), found, strict=True):
            told: Sequence[Any] = some if not isinstance(some, StoreError) else [some] * len(at)
            if isinstance(some, PartlyUnavailable):
                told = some.answers
            answers.update(zip(at, told, strict=True))
        answered = [answers[place] for place in range(len(batch))]
        if missed is not None:
            raise PartlyUnavailable(missed, answered)
        return answered

    # -- writes

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        for submission in batch:
            codec.check_task(submission.task)

        async def ask(part: Partition, some: list[Submission]) -> list[Insertion]:
            return await verbs.insert(part, some, depth_limit)

        return await self._spread(batch, lambda s: self._part_with(s.task), ask, _nowhere)

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        if self._empty_claims.get(worker) == request:
            return []
        asked = verbs.Claim(
            worker=worker, request=request, queues=queues, lease_seconds=lease_seconds
        )
        claimed = await self._given_before(asked) or await self._claim(asked, limit)
        if not claimed:
            self._empty_claims[worker] = request
        return claimed

    async def _given_before(self, asked: verbs.Claim) -> list[Claimed]:
        """By any partition, when the request is sent again. One partition sees to that itself."""
        repeated = self._last_claims.get(asked.worker) == asked.request
        self._last_claims[asked.worker] = asked.request
        if len(self._partitions) == 1 or not repeated:
            return []
        nothing_new = msgspec.structs.replace(asked, queues=())
        asking = (verbs.claim(part, nothing_new, limit=0) for part in self._partitions)
        found, _ = await _tried(asking)
        return [one for some in found if not isinstance(some, StoreError) for one in some[0]]

    async def _claim(self, asked: verbs.Claim, limit: int) -> list[Claimed]:
        claimed: list[Claimed] = []
        missed: StoreUnavailable | None = None
        got: Counter[Partition] = Counter()
        for part, queues in await self._worth_asking(asked):
            if len(claimed) >= limit:
                break
            try:
                more, got[part] = await verbs.claim(
                    part,
                    msgspec.structs.replace(asked, queues=queues),
                    limit=limit - len(claimed),
                    got=got[part],
                )
            except StoreUnavailable as error:
                missed = error
                continue
            claimed += more
        if missed is not None:
            raise PartlyUnavailable(missed, claimed) if claimed else missed
        return claimed

    async def _worth_asking(self, asked: verbs.Claim) -> list[tuple[Partition, Sequence[str]]]:
        """Each queue in the partitions that have something in it, then the next queue."""
        if len(self._partitions) == 1:
            return [(self._first, asked.queues)]
        start = self._number(asked.request)
        rotated = self._partitions[start:] + self._partitions[:start]
        now = self._clock.steady()
        if now - self._asked_all_at > ASK_ALL_SECONDS:  # counts follow; the queues are the truth
            self._asked_all_at = now
            return [(part, [queue]) for queue in asked.queues for part in rotated]
        found, _ = await _tried(verbs.waiting(part, asked.queues) for part in rotated)
        return [
            (part, [queue])
            for n, queue in enumerate(asked.queues)
            for part, waiting in zip(rotated, found, strict=True)
            if not isinstance(waiting, StoreError) and waiting[n]
        ]

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        for transition in batch:
            codec.check_task(transition.after)
        return await self._spread(batch, lambda t: self._part_with(t.after), verbs.apply, _nowhere)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def ask(part: Partition, some: list[Renewal]) -> list[bool]:
            """One that hangs must not keep the others' answers back for too long."""
            try:
                async with asyncio.timeout(lease_seconds * BEAT_SHARE if many else None):
                    return await verbs.renew(part, beat, some, lease_seconds)
            except TimeoutError:
                raise StoreUnavailable(f"{part.keys.prefix} does not answer") from None

        many = len(self._partitions) > 1
        if not any(self._part_of(r.task_id) is self._first for r in batch):
            try:
                await ask(self._first, [])
            except StoreUnavailable as error:
                if not batch:
                    raise
                log.warning("%s: a worker's beat is not seen: %s", self.url, error)
        return await self._spread(batch, lambda r: self._part_of(r.task_id), ask, lambda _: False)

    async def leave(self, worker: str) -> None:
        self._last_claims.pop(worker, None)
        self._empty_claims.pop(worker, None)
        await _all(verbs.leave(part, worker) for part in self._partitions)

    async def expire(self, *, limit: int, count_crashes: bool) -> int:
        parts = self._partitions
        found, missed = await _tried(
            verbs.expire(part, limit, count_crashes=count_crashes) for part in parts
        )
        if missed is not None:
            raise PartlyUnavailable(missed, found)
        return sum(n for n in found if not isinstance(n, StoreError))

    async def promote(self, *, limit: int) -> Due:
        found = await _all(verbs.promote(part, limit) for part in self._partitions)
        waits = [due.next_seconds for due in found if due.next_seconds is not None]
        return Due(count=sum(due.count for due in found), next_seconds=min(waits, default=None))

    async def prune(
        self, kind: Kept, *, older_than_seconds: float, limit: int, dry_run: bool
    ) -> int:
        pruned, live = 0, None
        for part in self._partitions:
            pruned += await prune.prune(
                part,
                kind,
                older_than_seconds=older_than_seconds,
                limit=limit - pruned,
                dry_run=dry_run,
                live=live,
            )
            if kind is Kept.WORKERS and live is None:
                live = await prune.live_workers(self._first)
        return pruned

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        return await doctor.reconcile(self._partitions, every_seconds)

    async def audit(self, entry: Audit) -> None:
        await verbs.audit(self._part_of(entry.task_id) or self._first, entry)

    # -- reads

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._spread(ids, self._part_of, reads.load, lambda _: None)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._spread(ids, self._part_of, reads.peek, lambda _: None)

    async def detail(self, task_id: str) -> Detail | None:
        part = self._part_of(task_id)
        return await reads.detail(part, task_id) if part else None

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        part = self._part_of(task_id)
        return await reads.checkpoint(part, task_id) if part else None

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        parts = [self._part_of_tenant(where.tenant)] if where.tenant else self._partitions
        pages = await _all(find.find(part, where, limit, cursor) for part in parts)
        return find.merge_pages(pages, limit)

    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]:
        return await self._spread(names, self._part_of_tenant, reads.tenants, _nowhere)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        return await reads.workers(self._first, live_within_seconds)

    async def stats(self) -> Stats:
        return counts.merge_stats(await _all(counts.stats(part) for part in self._partitions))

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        start = int(cursor or 0)
        if len(self._partitions) == 1:
            return await reads.audits(self._first, limit, start)
        found = await _all(reads.audits(part, start + limit, 0) for part in self._partitions)
        return reads.merge_audits(found, limit, start)

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]:
        return await reads.line(self._part_of_tenant(tenant), tenant, limit)

    async def doctor(self, *, fix: bool, limit: int) -> Sequence[Finding]:
        found: list[Finding] = []
        for part in self._partitions:
            found += await doctor.examine(part, fix=fix, limit=limit - len(found))
        return found

    async def checks(self) -> Sequence[Check]:
        self._checks = await checks.look(self._link, self._keys(), self._clock)
        return self._checks

    # -- signals

    def ticket(self, topic: Topic) -> int:
        return self._signals.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        self._bells.listen()
        await self._signals.wait(topic, ticket, timeout=timeout)


def _nowhere(one: object) -> NoReturn:
    raise AssertionError(f"{one} has no partition")


async def _tried(
    asked: Iterable[Awaitable[T]],
) -> tuple[list[T | StoreUnavailable], StoreUnavailable | None]:
    """Every answer, with errors in place, and the last of these. Raised if there is nothing else,
    and at once if it is not that a server is away."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    answers: list[T | StoreUnavailable] = []
    missed = None
    for one in found:
        if isinstance(one, StoreUnavailable):
            missed = one
        elif isinstance(one, BaseException):
            raise one
        answers.append(one)
    if missed is not None and all(isinstance(one, StoreUnavailable) for one in found):
        raise missed
    return answers, missed


async def _all(asked: Iterable[Awaitable[T]]) -> list[T]:
    """Every answer is waited for, then the first error is raised: nothing is left running."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]
