"""SQLite behind the Store port: writes go to the one writer, reads to the readers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import apsw

from holdfast.domain.audit import Audit, Chain
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
from holdfast.ports.backup import Copy
from holdfast.stores.signals import Signals
from holdfast.stores.sqlite.admin import audit as auditing
from holdfast.stores.sqlite.admin import doctor, prune, repair
from holdfast.stores.sqlite.admin import switches as switching
from holdfast.stores.sqlite.file import clock as boot
from holdfast.stores.sqlite.file import faults
from holdfast.stores.sqlite.file.backup import Copying
from holdfast.stores.sqlite.file.clock import StoreClock
from holdfast.stores.sqlite.file.guard import GUARD
from holdfast.stores.sqlite.file.identity import Identity
from holdfast.stores.sqlite.file.opened import Open
from holdfast.stores.sqlite.file.readers import Readers
from holdfast.stores.sqlite.file.schema import LOCK_SECONDS, open_writer, patiently
from holdfast.stores.sqlite.file.writer import Writer
from holdfast.stores.sqlite.plans.store import SqlitePlans
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.tasks import apply as applying
from holdfast.stores.sqlite.tasks import claim as claiming
from holdfast.stores.sqlite.tasks import queue
from holdfast.stores.sqlite.triggers.store import SqliteTriggers
from holdfast.stores.sqlite.views import find, measures, reads

CLOSE_SECONDS = 30.0

log = logging.getLogger("holdfast.stores.sqlite.store")


class SqliteStore:
    """``boot_id`` names the machine's present start; tests give one to play a restart."""

    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock,
        namespace: str = "executor",
        *,
        boot_id: str | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._clock, self._namespace = clock, namespace
        self._boot_id, self._lock_seconds = boot_id, lock_seconds
        self._signals = Signals(clock)
        self._empty_claims: dict[str, str] = {}
        self._opened: Open | None = None
        self._triggers = SqliteTriggers(self._open_here)
        self._plans = SqlitePlans(self._open_here)

    @property
    def triggers(self) -> SqliteTriggers:
        return self._triggers

    @property
    def plans(self) -> SqlitePlans:
        return self._plans

    async def open(self) -> None:
        if self._opened is None:
            self._opened = await asyncio.to_thread(self._open)

    def _open(self) -> Open:
        boot_id = self._boot_id or boot.read_boot_id()
        db = self._connect()
        try:
            clock = self._set_clock(db, boot_id)
            identity = Identity(self.path)
            readers = Readers(self.path, identity)
        except BaseException:
            db.close()
            raise
        GUARD.protect(self.path, identity.inodes)
        writer = Writer(
            db,
            self.path,
            clock,
            self._signals.notify,
            self._connect,
            identity=identity,
            lock_seconds=self._lock_seconds,
        )
        return Open(os.getpid(), clock, writer, readers, identity)

    def _connect(self) -> apsw.Connection:
        return open_writer(self.path, namespace=self._namespace, lock_seconds=self._lock_seconds)

    def _set_clock(self, db: apsw.Connection, boot_id: str) -> StoreClock:
        try:
            patiently(lambda: db.execute(SQL["begin_writing"]), seconds=self._lock_seconds)
            clock = boot.set_clock(db, self._clock, boot_id)
            db.execute(SQL["commit"])
        except apsw.Error as error:
            raise faults.translated(error, self.path, db.system_errno) from error
        return clock

    async def close(self) -> None:
        if self._opened is None:
            return
        opened, self._opened = self._open_here(), None
        await asyncio.to_thread(self._close, opened)

    async def detach(self) -> None:
        """Nothing belongs to a loop."""

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        del tenant, key
        return task_id

    def beside(self, name: str, task_id: str) -> str:
        del task_id
        return name

    def _close(self, opened: Open) -> None:
        if not opened.writer.close(timeout=CLOSE_SECONDS):
            log.error("writes to %s did not end in %g s", self.path, CLOSE_SECONDS)
        opened.readers.close()
        GUARD.release(opened.identity.inodes)

    def _open_here(self) -> Open:
        if self._opened is None:
            raise faults.not_open(self.path)
        if self._opened.pid != os.getpid():
            raise faults.after_fork(self.path)
        return self._opened

    @property
    def _writer(self) -> Writer:
        return self._open_here().writer

    @property
    def _readers(self) -> Readers:
        return self._open_here().readers

    # -- writes

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        new = [queue.new(submission) for submission in batch]
        work = partial(queue.insert, batch=new, depth_limit=depth_limit)
        return await self._writer.do(work, weight=len(batch))

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        asked = claiming.ClaimRequest(
            worker=worker,
            request=request,
            queues=queues,
            limit=limit,
            lease_seconds=lease_seconds,
        )
        work = partial(claiming.claim, asked=asked, empty=self._empty_claims)
        return await self._writer.do(work, weight=limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        writes = [applying.write(transition) for transition in batch]
        weight = len(writes) + sum(len(write.follows) for write in writes)
        return await self._writer.do(partial(applying.apply, batch=writes), weight=weight)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        work = partial(claiming.renew, beat=beat, batch=batch, lease_seconds=lease_seconds)
        return await self._writer.do(work, weight=len(batch))

    async def leave(self, worker: str) -> None:
        await self._writer.do(partial(claiming.leave, worker=worker))
        self._empty_claims.pop(worker, None)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        work = partial(
            queue.expire, limit=limit, count_crashes=count_crashes, alone_from=alone_from
        )
        return await self._writer.do(work, weight=limit)

    async def promote(self, *, limit: int) -> Due:
        return await self._writer.do(partial(queue.promote, limit=limit), weight=limit)

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        return await prune.in_steps(
            self._writer,
            kind,
            older_than_seconds,
            limit,
            dry_run=dry_run,
            ignore_keep=ignore_keep,
        )

    async def audit(self, entry: Audit) -> None:
        await self._writer.do(partial(auditing.audit, entry=entry))

    async def seal(self, *, limit: int) -> int:
        """Audits are linked as they are written."""
        del limit
        return 0

    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        work = partial(switching.throw, switch=switch, name=name, audit=audit, until=until, on=on)
        return await self._writer.do(work)

    async def observe(self, batch: Sequence[Timings]) -> None:
        await self._writer.do(partial(measures.observe, batch=batch), weight=len(batch))

    # -- reads

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._readers.do(partial(reads.load, ids=ids))

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._readers.do(partial(reads.peek, ids=ids))

    async def detail(self, task_id: str) -> Detail | None:
        return await self._readers.do(partial(reads.detail, task_id=task_id))

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        return await self._readers.do(partial(reads.checkpoint, task_id=task_id))

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._readers.do(partial(find.find, where=where, limit=limit, cursor=cursor))

    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]:
        return await self._readers.do(partial(reads.tenants, names=names))

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        now = self._open_here().clock.now()
        read = partial(reads.workers, now=now, live_within_seconds=live_within_seconds)
        return await self._readers.do(read)

    async def stats(self) -> Stats:
        clock = self._open_here().clock
        return await self._readers.do(partial(measures.stats, clock=clock))

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        return await self._readers.do(partial(auditing.audits, limit=limit, cursor=cursor))

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        return await self._readers.do(partial(auditing.chain, after=after, limit=limit))

    async def switches(self) -> Sequence[Thrown]:
        return await self._readers.do(switching.switches)

    async def errors(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await self._readers.do(partial(measures.errors, limit=limit))

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]:
        return await self._readers.do(partial(reads.line, tenant=tenant, limit=limit))

    async def doctor(
        self, *, fix: bool, limit: int, seen: Callable[[int], None] | None = None
    ) -> Sequence[Finding]:
        opened = self._open_here()
        found = await opened.readers.do(partial(doctor.examine, limit=limit, seen=seen))
        if not fix:
            return [doctor.told(complaint) for complaint in found]
        return [
            finding
            for start in range(0, len(found), repair.BATCH)
            for finding in await opened.writer.do(
                partial(repair.mend, complaints=found[start : start + repair.BATCH]),
                weight=repair.BATCH,
            )
        ]

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        """Nobody but us writes to the file, and a row and its indexes cannot part."""
        del every_seconds
        return ()

    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy the store as it is now into a new file, while everything goes on."""
        opened = self._open_here()
        copying = Copying(self.path, Path(target), namespace=self._namespace)
        GUARD.protect(self.path, opened.identity.inodes)  # longer than the store, if it must be
        try:
            return await copying.run()
        finally:
            GUARD.release(opened.identity.inodes)

    async def checks(self) -> Sequence[Check]:
        says = "every commit is synced to the disk before it is answered"
        return [Check(name="persistence", good=True, says=says)]

    # -- signals

    def ticket(self, topic: Topic) -> int:
        return self._signals.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        with self._writer.watching():
            await self._signals.wait(topic, ticket, timeout=timeout)
