"""The transaction of a group of writes: what it has read and counted until it is committed.

Rows to write are gathered and written in sets, one statement for all rows of a kind: SQLite is then
at work without Python, and Python without SQLite. A read or a single statement first writes out the
gathered rows, and so sees them; therefore a batch reads at once what all of it needs. Numbers,
tenants and counts are kept here while the group runs and written at its end.

After an error the transaction is rolled back as a whole, so it never has to undo a part of itself.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import apsw
import msgspec

from holdfast.domain.audit import Anchor, Audit, link_entry
from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.placement import WAITING, Place, opens_line
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Clock, Switch, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.tasks.records import RecordRow, TaskPosition, indexed_columns, task_of

SETTLED = Place.SETTLED
NONE: frozenset[str] = frozenset()
HOLD_PREFIX = f"{Switch.HOLD}:"  # begins names in `meta` that older releases do not read
SIZE_LIMIT = 8 << 20  # bytes of payloads and results in one statement

# The order of writing: deletes from the old place come before inserts into the new one, and a
# tombstone before the deletes of its task.
WRITES = """
    ready_delete lease_delete task_add state_add state_put state_settle state_stay state_stay_marked
    state_place task_head ready_add checkpoint_delete checkpoint_put checkpoint_settled journal_add
    data_replaced key_put tombstone_put task_delete state_delete journal_delete audit_add
""".split()

# Queue, type, the place and status that tasks left, and those that they have now.
Shift = tuple[str, str, Place, Status, Place, Status]
StatusChange = tuple[str, str, Status, Status]  # queue, type, status left, status taken

log = logging.getLogger("holdfast.stores.sqlite.txn")


class TenantLine(msgspec.Struct, kw_only=True):
    """A tenant's line: its active task, its fence, and how many tasks wait."""

    active: int | None = None
    fence: int = 0
    waiting: int = 0
    rests: bool = False  # its active task is parked or due later, and lets others pass

    @property
    def open(self) -> bool:
        return self.active is None or self.rests


class FirstInLine(msgspec.Struct, frozen=True):
    """The first task of a tenant's line."""

    n: int
    queue: str
    status: str


class StoreClock:
    """The clock that leases and due times are judged by; `file/clock.py` sets its offset."""

    def __init__(self, clock: Clock, boot: int, offset_seconds: float) -> None:
        self._clock, self.boot, self._offset = clock, boot, offset_seconds

    def now(self) -> float:
        # Rounded: the sum must not depend on when the parts were added.
        return round(self._clock.steady() + self._offset, 6)

    def wall(self) -> float:
        """Return the wall clock's time, which may jump: for what is shown or kept for a while."""
        return self._clock.now()


class Txn:
    def __init__(self, db: apsw.Connection, clock: StoreClock) -> None:
        self.db = db
        self.now = clock.now()  # leases and due times
        self.wall = clock.wall()  # everything else
        self.boot = clock.boot
        self.topics: set[Topic] = set()
        self.due_count: int | None = None  # how often DUE was signalled, including this time
        self.shrink = False  # pages were freed: give them back after the commit
        self._pending: defaultdict[str, list[Any]] = defaultdict(list)
        self._size = 0
        self.written: set[int] = set()  # tasks written since positions were last read
        self._first_in_line: dict[str, FirstInLine] = {}
        self._tenants: dict[str, TenantLine] = {}
        self._tenants_read: dict[str, tuple[int | None, int, int]] = {}
        self._totals: Counter[tuple[str, str, str]] = Counter()
        self._shifts: defaultdict[Shift, list[Any]] = defaultdict(lambda: [0, 0.0])
        self._depths: dict[str, int] = {}
        self._moves: defaultdict[StatusChange, list[Any]] = defaultdict(lambda: [0, 0.0])
        self._refused: Counter[str] = Counter()
        self._off: dict[Switch, frozenset[str]] = {}
        self._tip: Anchor | None = None  # the last entry of the audit chain
        self._linked = False
        task, ready, fence, self._some_off, self._some_held = self.row("sequences_and_switches")
        self._numbers: tuple[int, int, int] = task, ready, fence
        self._task, self._ready, self._fence = self._numbers

    # -- statements

    def run(self, name: str, *values: Any) -> apsw.Cursor:
        if self._pending:
            self.write_out()
        return self.db.execute(SQL[name], values)

    def row(self, name: str, *values: Any) -> Any:
        return self.run(name, *values).fetchone()

    def rows(self, name: str, *values: Any) -> list[Any]:
        return self.run(name, *values).fetchall()

    def run_each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self.write_out()
        self.db.executemany(SQL[name], rows)

    def add(self, name: str, row: Any, size: int = 0) -> None:
        """Gather a row to be written with others of its kind.

        ``size`` is its number of bytes, if that may be large.
        """
        self._pending[name].append(row)
        if size:
            self._size += size
            if self._size > SIZE_LIMIT:
                self.write_out()

    def write_out(self) -> None:
        pending, self._pending, self._size = self._pending, defaultdict(list), 0
        for name in WRITES:
            if rows := pending.pop(name, None):
                self.db.execute(SQL[name], (json_list(rows),))
        assert not pending, f"WRITES does not name {', '.join(pending)}"

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

    def raise_numbers(self, task: int, ready: int, fence: int) -> None:
        self._task, self._ready = max(self._task, task), max(self._ready, ready)
        self._fence = max(self._fence, fence)

    # -- records

    def positions(self, ids: Collection[str]) -> dict[str, TaskPosition]:
        """Return the positions of tasks; they are outdated once a task is written."""
        rows = self.rows("standings_of", json_list(ids))
        self.written.difference_update(row[1] for row in rows)
        self._first_in_line.clear()
        return {row[0]: TaskPosition._make(row) for row in rows}

    def read(self, row: RecordRow) -> Task | None:
        """Return the task of a row, or None if it cannot be read: other tasks must go on."""
        try:
            return task_of(row)
        except SerialisationError as error:
            n = row.position.n
            log.warning("task number %d is unreadable; see `holdfast doctor`: %s", n, error)
            return None

    def put(
        self,
        before: Task,
        left: Place,
        after: Task,
        mutable: msgspec.Raw,
        *,
        ready: int | None = None,
        line: int | None = None,
    ) -> None:
        """Write a record that has left one place for another."""
        n, at, place, status = after.order, after.updated_at, after.place, after.status
        settled_at = after.settled_at
        self.written.add(n)
        if place is SETTLED and after.failure is None and settled_at == at == after.status_since:
            until = at + after.keep_seconds
            self._pending["state_settle"].append(
                (n, after.version, status, at, place, after.fence, until, mutable)
            )
        else:
            self._pending["state_put"].append(
                (
                    n,
                    after.version,
                    status,
                    after.status_since,
                    at,
                    place,
                    ready,
                    line,
                    after.due,
                    after.fence,
                    settled_at,
                    *indexed_columns(after),
                    mutable,
                )
            )
        if ready is not None:
            self._pending["ready_add"].append((after.queue, ready, n))
        self._count_shift(before, left, after)

    def stay(self, before: Task, after: Task, mutable: msgspec.Raw) -> None:
        """Write a record that stays in its place, without touching an index if possible."""
        n, is_same = after.order, before.status is after.status and before.failure == after.failure
        self.written.add(n)
        if is_same and not after.suspended:
            self._pending["state_stay"].append((n, after.version, after.updated_at, mutable))
            return
        self._pending["state_stay_marked"].append(
            (
                n,
                after.version,
                after.status,
                after.status_since,
                after.updated_at,
                after.settled_at,
                *indexed_columns(after),
                mutable,
            )
        )
        self._count_shift(before, after.place, after)

    # -- tenants and their lines

    def load_tenants(self, names: Collection[str], *, lines: bool = False) -> None:
        """Read tenants, and the first tasks of their lines if ``lines``, by one statement each."""
        new = [name for name in names if name not in self._tenants]
        if new:
            for name in new:
                self._tenants[name], self._tenants_read[name] = TenantLine(), (None, 0, 0)
            for name, active, fence, waiting, place, hold, leased in self.rows(
                "tenants_get", json_list(new)
            ):
                rests = place is None or opens_line(place, hold)
                self._tenants[name] = TenantLine(
                    active=active, fence=max(fence, leased or 0), waiting=waiting, rests=rests
                )
                self._tenants_read[name] = active, fence, waiting
        waiting = [name for name in names if lines and self._tenants[name].waiting]
        if waiting:
            self._first_in_line |= {
                name: FirstInLine(*first)
                for name, *first in self.rows("line_heads", json_list(waiting))
            }

    def tenant(self, name: str) -> TenantLine:
        """Return a tenant's state, to be changed in place; it is written with the flush."""
        if name not in self._tenants:
            self.load_tenants((name,))
        return self._tenants[name]

    def enter(self, tenant_name: str | None, n: int) -> tuple[Place, int | None, int | None]:
        """Put a task into its queue or its tenant's line; return the place and its number there."""
        if tenant_name is not None:
            tenant = self.tenant(tenant_name)
            if tenant.active != n and not tenant.open:
                tenant.waiting += 1
                self._first_in_line.pop(tenant_name, None)  # it may come before all others
                return Place.LINE, None, n
            tenant.active, tenant.rests = n, False
        self.topics.add(Topic.READY)
        return Place.READY, self.next_ready(), None

    def must_wait(self, tenant_name: str | None, n: int) -> bool:
        """Return whether a task would have to wait behind its tenant's active task."""
        if tenant_name is None:
            return False
        tenant = self.tenant(tenant_name)
        return tenant.active != n and not tenant.open

    def leave_place(self, row: TaskPosition, tenant_name: str | None) -> None:
        """Take a task out of its queue, out of its tenant's line, or from its lease holder."""
        if row.lease_id is not None:
            self.add("lease_delete", row.n)
            if tenant_name is not None:
                tenant = self.tenant(tenant_name)
                tenant.fence = max(tenant.fence, row.lease_fence)
        elif row.place == Place.READY:
            self.add("ready_delete", (row.queue, row.ready))
        elif row.place == Place.LINE and tenant_name is not None:
            self.tenant(tenant_name).waiting -= 1

    def release_line(self, after: Task) -> None:
        """Let the next task of a tenant through, if this one was active and no longer stops it."""
        if after.tenant is not None:
            tenant = self.tenant(after.tenant)
            if tenant.active == after.order:
                if after.settled:
                    tenant.active = None
                tenant.rests = opens_line(after.place, after.hold)
                self.advance(after.tenant)
        self.topics.add(Topic.RESTED)

    def advance(self, name: str) -> None:
        """Move the first task of a tenant's line into its queue, if the line is open."""
        tenant = self.tenant(name)
        if tenant.waiting > 0 and tenant.open and (first := self._take_first(name)):
            ready = self.next_ready()
            self.written.add(first.n)
            self.add("state_place", (first.n, Place.READY, ready, None))
            self.add("ready_add", (first.queue, ready, first.n))
            self.count(first.queue, Place.LINE, first.status, -1)
            self.count(first.queue, Place.READY, first.status, 1)
            self.topics.add(Topic.READY)
            tenant.waiting -= 1
            tenant.active, tenant.rests = first.n, False

    def _take_first(self, name: str) -> FirstInLine | None:
        first = self._first_in_line.pop(name, None)
        if first is None or first.n in self.written:
            rows = self.rows("line_heads", json_list((name,)))
            first = FirstInLine(*rows[0][1:]) if rows else None
        return first

    def moved_on(self, tenant_name: str | None, fence: int) -> bool:
        """Return whether newer work has run for a tenant since its task with this fence ran."""
        return tenant_name is not None and fence != 0 and self.tenant(tenant_name).fence > fence

    def raise_fence(self, name: str | None, fence: int) -> None:
        """Note the fence of a new lease for a tenant that was read before the lease was given."""
        if name is not None and (tenant := self._tenants.get(name)) is not None:
            tenant.fence = max(tenant.fence, fence)

    def forget_tenant(self, name: str) -> None:
        """Delete a tenant's row if no task of it is left."""
        self.run("tenant_forget", name)
        if self.db.changes():
            self._tenants.pop(name, None)

    # -- switches and the audit chain

    def switched_off(self, switch: Switch) -> frozenset[str]:
        """Return the names that a switch is set for; without any setting, nothing is read."""
        if not self._some_off:
            return NONE
        if switch not in self._off:
            self._off[switch] = frozenset(name for (name,) in self.rows("switches_of", switch))
        return self._off[switch]

    @property
    def some_held(self) -> bool:
        """Return whether any tenant has a hold, even one that is over; mostly there is none."""
        return bool(self._some_held)

    def forget_switches(self) -> None:
        """Read the switches again, because they were changed."""
        self._some_off = self._some_held = True
        self._off.clear()

    def write_audit(self, entry: Audit) -> None:
        """Write an audit entry that is linked to the one before it."""
        # Decoded, as it will be read: constructors check no types, and this is what is hashed.
        link = link_entry(self._chain_tip(), codec.decode_audit(codec.encode(entry)))
        self._tip, self._linked = link.anchor, True
        row = link.seq, link.entry.at, codec.encode(link.entry).decode(), link.hash
        self.add("audit_add", row)

    def _chain_tip(self) -> Anchor:
        """Return the last entry of the audit chain."""
        if self._tip is None:
            seq, hash = self.row("chain_head")
            self._tip = Anchor(seq=seq, hash=hash)
        return self._tip

    # -- counts

    def count(self, queue: str, place: str, status: str, by: int) -> None:
        self._totals[queue, place, status] += by
        if place in WAITING and queue in self._depths:
            self._depths[queue] += by

    def count_shifts(self, shift: Shift, count: int, dwelt_seconds: float) -> None:
        """Count shifts; ``dwelt_seconds``: how long all tasks had the status that they left."""
        counted = self._shifts[shift]
        counted[0] += count
        counted[1] += dwelt_seconds

    def _count_shift(self, before: Task, left: Place, after: Task) -> None:
        place, status = after.place, after.status
        counted = self._shifts[after.queue, after.type, left, before.status, place, status]
        counted[0] += 1
        counted[1] += max(0.0, after.updated_at - before.status_since)

    def count_refusal(self, refusal: str) -> None:
        self._refused[refusal] += 1

    def depth(self, queue: str) -> int:
        """Return how many tasks wait in a queue: ready, in a line, or for a time."""
        depth = self._depths.get(queue)
        if depth is None or self._shifts:
            self._add_shifts()
            depth = sum(n for place, n in self.rows("totals_of_queue", queue) if place in WAITING)
            depth += sum(
                n for (q, place, _), n in self._totals.items() if q == queue and place in WAITING
            )
            self._depths[queue] = depth
        return depth

    def _add_shifts(self) -> None:
        """Add shifts from one place and status to another to the totals and to the moves."""
        for (queue, type, left, before, place, after), (count, dwelt) in self._shifts.items():
            self._totals[queue, left, before] -= count
            self._totals[queue, place, after] += count
            if before is not after:
                moves = self._moves[queue, type, before, after]
                moves[0] += count
                moves[1] += dwelt
        self._shifts.clear()

    def flush(self) -> None:
        self.write_out()
        self._add_shifts()
        numbers = self._task, self._ready, self._fence
        if numbers != self._numbers:
            self.run("sequences_put", *numbers)
        changed = [
            (name, *state)
            for name, tenant in self._tenants.items()
            if (state := (tenant.active, tenant.fence, tenant.waiting)) != self._tenants_read[name]
        ]
        if changed:
            self.run("tenant_put", json_list(changed))
        for key, count in self._totals.items():
            if count:
                self.run("totals_add", *key, count)
        if self._moves:
            self.run_each("moves_add", [(*move, *n) for move, n in self._moves.items()])
        for refusal, count in self._refused.items():
            self.run("refusals_add", refusal, count)
        if self._linked and self._tip is not None:
            self.run("chain_head_put", self._tip.seq, self._tip.hash)
        if Topic.DUE in self.topics:
            (self.due_count,) = self.row("due_count_raise")


def json_list(rows: Iterable[Any]) -> str:
    """Encode rows for a statement that takes a JSON list."""
    return codec.encode(rows).decode()
