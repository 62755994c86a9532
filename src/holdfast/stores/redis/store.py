"""Redis behind the Store port: each verb goes to the partition that has the task.

A single server or Sentinel has one partition, a Cluster has many (`partitions.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from holdfast.domain import names
from holdfast.domain.audit import Audit, Chain
from holdfast.domain.errors import (
    PartlyUnavailable,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Check,
    Claimed,
    Clock,
    Detail,
    Due,
    ErrorGroup,
    Filter,
    Finding,
    Kept,
    Page,
    Peek,
    Renewal,
    Stats,
    Switch,
    TenantView,
    Thrown,
    Timings,
    Topic,
    WorkerInfo,
)
from holdfast.stores.redis.admin import audit_chain, audit_seal
from holdfast.stores.redis.admin import switches as switching
from holdfast.stores.redis.client import address, checks, format
from holdfast.stores.redis.client.bell import Bells
from holdfast.stores.redis.client.client import Link
from holdfast.stores.redis.encoding import stage_timings
from holdfast.stores.redis.keys import Keys, prefixes
from holdfast.stores.redis.partition import Partition, Terms, Time
from holdfast.stores.redis.partitions import Partitions, everything, nowhere, tried
from holdfast.stores.redis.plans.store import RedisPlans
from holdfast.stores.redis.repair import doctor
from holdfast.stores.redis.repair.torn_writes import Mender
from holdfast.stores.redis.retention import prune, prune_audit
from holdfast.stores.redis.tasks import writes
from holdfast.stores.redis.tasks.claims import Claims
from holdfast.stores.redis.triggers.store import RedisTriggers
from holdfast.stores.redis.views import counts, error_groups, find, reads
from holdfast.stores.signals import Signals

log = logging.getLogger("holdfast.stores.redis.store")

BEAT_SHARE = 0.15  # of a lease: a worker beats at least every third of it


class RedisStore:
    """``must_exist``: whoever only looks makes none. ``time`` gives a test's clock to the scripts,
    in the place of the server's."""

    durable = False  # until it was looked at

    def __init__(
        self,
        url: str,
        clock: Clock,
        namespace: str = "executor",
        *,
        terms: Terms | None = None,
        time: Time | None = None,
        must_exist: bool = False,
    ) -> None:
        self._namespace = names.check("namespace", namespace)
        self._must_exist = must_exist
        self._address = address.parse(url)
        self.url = self._address.shown
        self._clock = clock
        self._link = Link(self._address)
        clustered = self._address.clustered
        self._keys = [
            Keys(prefix)
            for prefix in prefixes(namespace, self._address.partitions, clustered=clustered)
        ]
        self._parts = Partitions(
            [Partition(self._link, k, terms or Terms(), time, clock.steady) for k in self._keys]
        )
        for part in self._parts:
            part.partitions = len(self._parts)
        self._claims = Claims(self._parts, clock)
        self._mender = Mender(self._parts)
        self._triggers, self._plans = RedisTriggers(self._parts), RedisPlans(self._parts)
        self._signals = Signals(clock)
        self._bells = Bells(self._link, self._keys, self._signals.notify)
        self._checks: list[Check] = []

    @property
    def triggers(self) -> RedisTriggers:
        return self._triggers

    @property
    def plans(self) -> RedisPlans:
        return self._plans

    async def open(self) -> None:
        await self._link.open()
        try:
            self._checks = await checks.look(self._link, self._keys, self._clock)
            await format.make_ours(self._parts, self._namespace, must_exist=self._must_exist)
            for part in self._parts:
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
        await self._mender.close()
        await self._bells.close()
        await self._link.close()

    async def detach(self) -> None:
        await self._link.detach()

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        return self._parts.home(task_id, tenant=tenant, key=key)

    def beside(self, name: str, task_id: str) -> str:
        return self._parts.beside(name, self._parts.with_id(task_id))

    # -- writes

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        async def ask(part: Partition, some: list[Submission]) -> list[Insertion]:
            return await writes.insert(part, some, depth_limit)

        return await self._parts.spread(
            batch, lambda s: self._parts.with_task(s.task), ask, nowhere
        )

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        asked = writes.Claim(
            worker=worker, request=request, queues=queues, lease_seconds=lease_seconds
        )
        return await self._claims.claim(asked, limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        def part_of(transition: Transition) -> Partition:
            part = self._parts.with_any(transition.after)
            return self._parts.with_follows(part, transition.follows)

        return await self._parts.spread(batch, part_of, writes.apply, nowhere)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def ask(part: Partition, some: list[Renewal]) -> list[bool]:
            """One that hangs must not keep the others' answers back for too long."""
            try:
                async with asyncio.timeout(lease_seconds * BEAT_SHARE if many else None):
                    return await writes.renew(part, beat, some, lease_seconds)
            except TimeoutError:
                raise StoreUnavailable(f"{part.keys.prefix} does not answer") from None

        many = len(self._parts) > 1
        if not any(self._parts.of_task(r.task_id) is self._parts.first for r in batch):
            try:
                await ask(self._parts.first, [])
            except StoreUnavailable as error:
                if not batch:
                    raise
                log.warning("%s: a worker's beat is not seen: %s", self.url, error)
        return await self._parts.spread(
            batch, lambda r: self._parts.of_task(r.task_id), ask, lambda _: False
        )

    async def leave(self, worker: str) -> None:
        self._claims.forget(worker)
        await everything(writes.leave(part, worker) for part in self._parts)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        parts = self._parts
        found, missed = await tried(
            writes.expire(part, limit, alone_from=alone_from if count_crashes else None)
            for part in parts
        )
        self._mender.begin()
        if missed is not None:
            raise PartlyUnavailable(missed, found)
        return sum(n for n in found if not isinstance(n, StoreError))

    async def promote(self, *, limit: int) -> Due:
        found = await everything(writes.promote(part, limit) for part in self._parts)
        waits = [due.next_seconds for due in found if due.next_seconds is not None]
        return Due(count=sum(due.count for due in found), next_seconds=min(waits, default=None))

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        if kind is Kept.AUDIT:
            return await prune_audit.prune(
                self._parts, older_than_seconds=older_than_seconds, limit=limit, dry_run=dry_run
            )
        pruned, live = 0, None
        for part in self._parts:
            pruned += await prune.prune(
                part,
                kind,
                older_than_seconds=older_than_seconds,
                limit=limit - pruned,
                dry_run=dry_run,
                ignore_keep=ignore_keep,
                live=live,
            )
            if kind is Kept.WORKERS and live is None:
                live = await prune.live_workers(self._parts.first)
        return pruned

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        return await doctor.reconcile(list(self._parts), every_seconds)

    async def audit(self, entry: Audit) -> None:
        await writes.audit(self._parts.of_task(entry.task_id) or self._parts.first, entry)

    async def seal(self, *, limit: int) -> int:
        return await audit_seal.seal(self._parts, limit)

    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        return await switching.throw(self._parts, switch, name, on=on, audit=audit, until=until)

    async def observe(self, batch: Sequence[Timings]) -> None:
        await stage_timings.observe(self._parts.first, batch)

    # -- reads

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._parts.spread(ids, self._parts.of_task, reads.load, lambda _: None)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._parts.spread(ids, self._parts.of_task, reads.peek, lambda _: None)

    async def detail(self, task_id: str) -> Detail | None:
        part = self._parts.of_task(task_id)
        return await reads.detail(part, task_id) if part else None

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        part = self._parts.of_task(task_id)
        return await reads.checkpoint(part, task_id) if part else None

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        parts = [self._parts.of_tenant(where.tenant)] if where.tenant else [*self._parts]
        pages = await everything(find.find(part, where, limit, cursor) for part in parts)
        return find.merge_pages(pages, limit)

    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]:
        return await self._parts.spread(names, self._parts.of_tenant, reads.tenants, nowhere)

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        return await reads.workers(self._parts.first, live_within_seconds)

    async def stats(self) -> Stats:
        return counts.merge_stats(await everything(counts.stats(part) for part in self._parts))

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        return await audit_chain.audits(self._parts, limit, int(cursor or 0))

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        return await audit_chain.chain(self._parts, after, limit)

    async def switches(self) -> Sequence[Thrown]:
        return await switching.switches(self._parts)

    async def errors(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await error_groups.errors(self._parts, limit)

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]:
        return await reads.line(self._parts.of_tenant(tenant), tenant, limit)

    async def doctor(
        self, *, fix: bool, limit: int, seen: Callable[[int], None] | None = None
    ) -> Sequence[Finding]:
        found: list[Finding] = []
        tally = doctor.Tally(seen)
        for part in self._parts:
            found += await doctor.examine(part, fix=fix, limit=limit - len(found), tally=tally)
        return found

    async def checks(self) -> Sequence[Check]:
        self._checks = await checks.look(self._link, self._keys, self._clock)
        self.durable = checks.is_durable(self._checks)
        return self._checks

    # -- signals

    def ticket(self, topic: Topic) -> int:
        return self._signals.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        self._bells.listen()
        await self._signals.wait(topic, ticket, timeout=timeout)
