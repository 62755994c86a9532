"""One group of writes: what it has read, counted and promised, until it is committed.

Numbers, tenants and counts are kept here while the group runs and written once at its end. If
anything goes wrong the whole thing is thrown away and the transaction rolled back, so it never
has to undo a part of itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.events import Event
from holdfast.domain.state import Status
from holdfast.domain.task import Place, Task
from holdfast.ports import Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.boot import StoreClock
from holdfast.stores.sqlite.statements import SQL

WAITING = frozenset({Place.READY, Place.LINE, Place.LATER})

log = logging.getLogger(__name__)


class Tenant(msgspec.Struct, kw_only=True):
    active: int | None = None
    fence: int = 0
    waiting: int = 0


class Txn:
    def __init__(self, db: apsw.Connection, clock: StoreClock) -> None:
        self.db = db
        self.now = clock.now()  # leases and due times
        self.wall = clock.wall()  # everything else
        self.boot = clock.boot
        self.topics: set[Topic] = set()
        self.shrink = False  # pages were freed: give them back after the commit
        self._tenants: dict[str, Tenant] = {}
        self._tenants_read: dict[str, tuple[int | None, int, int]] = {}
        self._totals: Counter[tuple[str, str, str]] = Counter()
        self._depths: dict[str, int] = {}
        self._moves: Counter[tuple[Status, Status]] = Counter()
        self._dwell: dict[tuple[Status, Status], float] = {}
        self._refused: Counter[str] = Counter()
        numbers: tuple[int, int, int] = self.row("sequences_get")
        self._numbers = self._task, self._ready, self._fence = numbers

    # -- statements

    def run(self, name: str, *values: Any) -> apsw.Cursor:
        return self.db.execute(SQL[name], values)

    def row(self, name: str, *values: Any) -> Any:
        return self.db.execute(SQL[name], values).fetchone()

    def rows(self, name: str, *values: Any) -> list[Any]:
        return self.db.execute(SQL[name], values).fetchall()

    # -- numbers that rise

    def next_task(self) -> int:
        self._task += 1
        return self._task

    def next_ready(self) -> int:
        self._ready += 1
        return self._ready

    def next_fence(self) -> int:
        self._fence += 1
        return self._fence

    def raise_numbers(self, *, task: int, fence: int) -> None:
        self._task, self._fence = max(self._task, task), max(self._fence, fence)

    # -- records

    def find(self, task_id: str) -> Task | None:
        found = self.row("task_get", task_id)
        return self.read(*found) if found else None

    def read(self, n: int, record: bytes, until: float | None = None) -> Task | None:
        """None: it cannot be read. One bad row must not stop its neighbours."""
        try:
            return codec.decode_leased(record, until)
        except SerialisationError as error:
            log.warning("task number %d is unreadable; see `holdfast doctor`: %s", n, error)
            return None

    def add(self, task: Task, digest: str, *, ready: int | None, line: int | None) -> None:
        self.run(
            "task_add",
            task.order,
            task.id,
            task.tenant,
            task.plan,
            task.queue,
            task.type,
            task.hold,
            task.status,
            task.place,
            task.version,
            task.failure.fingerprint if task.failure else None,
            ready,
            line,
            digest,
            codec.encode_task(task),
        )
        self.count_place(task, 1)

    def put(
        self, before: Task, after: Task, *, ready: int | None = None, line: int | None = None
    ) -> None:
        """Write a record that goes to another place."""
        lease, failure, settled_at = after.lease, after.failure, after.settled_at
        self.run(
            "task_put",
            after.status,
            after.place,
            after.version,
            failure.fingerprint if failure else None,
            ready,
            line,
            after.due,
            lease.id if lease else None,
            self.boot if lease else None,
            lease.until if lease else None,
            settled_at,
            None if settled_at is None else settled_at + after.keep_seconds,
            after.updated_at if after.suspended else None,
            codec.encode_task(after),
            after.order,
        )
        self.count_place(before, -1)
        self.count_place(after, 1)

    def stay(self, before: Task, after: Task) -> None:
        """Write a record that stays where it is, without touching an index if that can be."""
        same = before.status is after.status and before.failure == after.failure
        if same and not after.suspended:
            self.run("task_stay", after.version, codec.encode_task(after), after.order)
            return
        failure, settled_at = after.failure, after.settled_at
        self.run(
            "task_stay_marked",
            after.version,
            after.status,
            failure.fingerprint if failure else None,
            settled_at,
            None if settled_at is None else settled_at + after.keep_seconds,
            after.updated_at if after.suspended else None,
            codec.encode_task(after),
            after.order,
        )
        self.count_place(before, -1)
        self.count_place(after, 1)

    def lease(self, before: Task, after: Task) -> None:
        lease = after.lease
        assert lease is not None
        self.run(
            "task_lease",
            after.status,
            after.place,
            after.version,
            lease.id,
            self.boot,
            lease.until,
            codec.encode_task(after),
            after.order,
        )
        self.count_place(before, -1)
        self.count_place(after, 1)

    def log(self, n: int, version: int, request: str, events: Iterable[Event]) -> None:
        self.run("event_add", n, version, request, codec.encode(events))

    # -- tenants

    def tenant(self, name: str) -> Tenant:
        """To be changed in place; written at the end."""
        found = self._tenants.get(name)
        if found is None:
            read = active, fence, waiting = self.row("tenant_get", name) or (None, 0, 0)
            found = Tenant(active=active, fence=fence, waiting=waiting)
            self._tenants[name], self._tenants_read[name] = found, read
        return found

    def forget_tenant(self, name: str) -> None:
        """If no task of it is left."""
        self.run("tenant_forget", name)
        if self.db.changes():
            self._tenants.pop(name, None)

    # -- counts

    def count_place(self, task: Task, by: int) -> None:
        self._totals[task.queue, task.place, task.status] += by
        if task.place in WAITING and task.queue in self._depths:
            self._depths[task.queue] += by

    def correct_total(self, queue: str, place: str, status: str, by: int) -> None:
        self._totals[queue, place, status] += by
        self._depths.pop(queue, None)

    def count_move(self, before: Task, after: Task) -> None:
        if before.status is not after.status:
            move = before.status, after.status
            dwelt = max(0.0, after.updated_at - before.status_since)
            self._moves[move] += 1
            self._dwell[move] = self._dwell.get(move, 0.0) + dwelt

    def count_refusal(self, says: str) -> None:
        self._refused[says] += 1

    def depth(self, queue: str) -> int:
        """How many wait in the queue: ready, in a line, or for a time."""
        found = self._depths.get(queue)
        if found is None:
            found = sum(n for place, n in self.rows("totals_of_queue", queue) if place in WAITING)
            found += sum(
                n for (q, place, _), n in self._totals.items() if q == queue and place in WAITING
            )
            self._depths[queue] = found
        return found

    def flush(self) -> None:
        numbers = self._task, self._ready, self._fence
        if numbers != self._numbers:
            self.run("sequences_put", *numbers)
        for name, tenant in self._tenants.items():
            state = tenant.active, tenant.fence, tenant.waiting
            if state != self._tenants_read[name]:
                self.run("tenant_put", name, *state)
        for key, count in self._totals.items():
            if count:
                self.run("totals_add", *key, count)
        for move, count in self._moves.items():
            self.run("moves_add", *move, count, self._dwell[move])
        for says, count in self._refused.items():
            self.run("refusals_add", says, count)
