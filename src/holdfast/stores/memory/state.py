"""What the memory store holds, and how a task gets from place to place in it."""

from __future__ import annotations

import threading
from bisect import insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.domain.audit import Anchor, Audit, AuditLink, linked
from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import WAITING, Place, StoreMove, opens_line
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Progress, StageRecord, Task
from holdfast.ports import (
    Beat,
    Check,
    Claimed,
    Clock,
    Finding,
    Switch,
    Thrown,
    Timings,
    Topic,
)
from holdfast.stores import codec
from holdfast.stores.signals import Signals

TOMBSTONE_SECONDS = 24 * 3600

Moved = tuple[Status, Status, str, str]  # before, after, queue and type


def check(name: str, record: msgspec.Struct, decode: Callable[[bytes], object]) -> None:
    """Refuse what another store could not write, or never read again."""
    try:
        body = codec.encode(record)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise SerialisationError(f"{name} cannot be written: {error}") from error
    decode(body)


class Bodies(msgspec.Struct, kw_only=True):
    """What belongs to a task and is not in its record."""

    payload: bytes
    digest: str
    result: bytes | None = None
    data: bytes | None = None
    checkpoint: bytes | None = None
    checkpoint_version: int = 0
    stages: dict[int, StageRecord] = {}
    events: list[tuple[str, ev.Event]] = []  # with the request that made them
    progress: Progress | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    digest: str
    result: bytes | None
    request: str
    until: float


class Tenant(msgspec.Struct, kw_only=True):
    active: str | None = None
    fence: int = 0
    tasks: int = 0  # of any status: with the last one the tenant is forgotten
    line: list[tuple[int, str]] = []
    resting: dict[str, int] = {}  # unsettled, without holding the line


class Shelves:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_seconds = clock.now() - clock.steady()
        self._lock = threading.RLock()
        self._signals = Signals(clock)
        self._tasks: dict[str, Task] = {}
        self._bodies: dict[str, Bodies] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._keys: dict[tuple[str | None, str], str] = {}
        self._ready: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._tenants: defaultdict[str, Tenant] = defaultdict(Tenant)
        self._workers: dict[str, tuple[Beat, float]] = {}
        self._claims: dict[str, tuple[str, list[Claimed]]] = {}
        self._base = Anchor()  # what the oldest link hangs on
        self._base_at: float | None = None  # of the newest that was cleaned up
        self._links: list[AuditLink] = []
        self._thrown: dict[tuple[Switch, str], Thrown] = {}
        self._moves: Counter[Moved] = Counter()
        self._dwell: Counter[Moved] = Counter()
        self._timings: dict[tuple[str, str, str], Timings] = {}  # by type, stage and outcome
        self._refused: Counter[str] = Counter()
        self._fence = 0
        self._order = 0

    def _now(self) -> float:
        """The store's clock, which judges leases and due times: a wall clock nobody can set."""
        return self._clock.steady() + self._offset_seconds

    # -- verbs for which there is nothing to do

    async def open(self) -> None:
        pass

    close = detach = open

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        del tenant, key
        return task_id

    def beside(self, name: str, task_id: str) -> str:
        del task_id
        return name

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        del every_seconds
        return ()

    async def checks(self) -> Sequence[Check]:
        says = "nothing is kept across a restart of this process"
        return [Check(name="persistence", good=False, says=says)]

    # -- places and lines

    def _enter(self, task: Task) -> None:
        """To its queue, or behind its tenant's active task."""
        if task.tenant is not None:
            tenant = self._tenants[task.tenant]
            tenant.resting.pop(task.id, None)
            if self._must_wait(task):
                self._tasks[task.id] = msgspec.structs.replace(task, place=Place.LINE)
                insort(tenant.line, (task.order, task.id))
                return
            tenant.active = task.id
        self._tasks[task.id] = msgspec.structs.replace(task, place=Place.READY)
        self._ready[task.queue][task.id] = None
        self._signals.notify(Topic.READY)

    def _rest(self, task: Task) -> None:
        """It stops being runnable; its tenant's next may be let through."""
        self._tasks[task.id] = task
        if task.tenant is not None and opens_line(task.place, task.hold):
            self._tenants[task.tenant].resting[task.id] = task.order
        elif task.tenant is not None:
            self._tenants[task.tenant].resting.pop(task.id, None)
        if task.tenant is not None and self._tenants[task.tenant].active == task.id:
            tenant = self._tenants[task.tenant]
            if task.settled:
                tenant.active = None
            if tenant.line and self._line_is_open(tenant):
                _, next_id = tenant.line.pop(0)
                self._enter(self._tasks[next_id])
            elif tenant.active is None and tenant.resting:
                tenant.active = max(tenant.resting, key=tenant.resting.__getitem__)
        self._signals.notify(Topic.RESTED)

    def _must_wait(self, task: Task) -> bool:
        """Behind its tenant's active task."""
        tenant = self._tenants.get(task.tenant) if task.tenant is not None else None
        return tenant is not None and tenant.active != task.id and not self._line_is_open(tenant)

    def _line_is_open(self, tenant: Tenant) -> bool:
        if tenant.active is None:
            return True
        active = self._tasks[tenant.active]
        return opens_line(active.place, active.hold)

    def _take_out(self, task: Task) -> None:
        """Out of the queue or line it waits in."""
        if task.place is Place.READY:
            self._ready[task.queue].pop(task.id, None)
        elif task.place is Place.LINE and task.tenant is not None:
            self._tenants[task.tenant].line.remove((task.order, task.id))

    def _moved_on(self, task: Task) -> bool:
        if task.tenant is None or task.fence == 0:
            return False
        return self._tenants[task.tenant].fence > task.fence

    # -- records, keys, counts

    def _move(
        self,
        task: Task,
        move: StoreMove,
        *,
        worker: str = "",
        counted: bool = True,
        **changes: object,
    ) -> Task:
        """One of the store's own moves, with its event."""
        now = self._clock.now()
        status = move.to[task.status]
        if status is not task.status:
            changes["status_since"] = now
        after = msgspec.structs.replace(
            task,
            status=status,
            version=task.version + 1,
            updated_at=now,
            place=move.enters,
            **changes,
        )
        event = ev.made_by_store(
            move.event,
            task_id=task.id,
            version=after.version,
            at=now,
            worker=worker,
            fence=after.fence,
            counted=counted,
        )
        self._log((event,), request="")
        self._count(task, after)
        self._tasks[task.id] = after
        return after

    def _log(self, events: Iterable[ev.Event], request: str) -> None:
        for event in events:
            self._bodies[event.task_id].events.append((request, event))

    def _count(self, before: Task, after: Task) -> None:
        if before.status is not after.status:
            moved = (before.status, after.status, after.queue, after.type)
            self._moves[moved] += 1
            self._dwell[moved] += max(  # type: ignore[assignment]
                0.0, after.updated_at - before.status_since
            )

    def _note(self, entry: Audit) -> None:
        self._links.append(linked(self._head(), entry))

    def _head(self) -> Anchor:
        return self._links[-1].anchor if self._links else self._base

    def _is_off(self, switch: Switch, name: str) -> bool:
        thrown = self._thrown.get((switch, name))
        return thrown is not None and thrown.stands(self._clock.now())

    def _forget_worker(self, worker: str) -> None:
        self._workers.pop(worker, None)
        self._claims.pop(worker, None)
        self._thrown.pop((Switch.DRAIN, worker), None)

    def _forget_strangers(self) -> None:
        """Who was to be drained and is not known had left before it heard of it."""
        drains = [name for switch, name in self._thrown if switch is Switch.DRAIN]
        for name in drains:
            if name not in self._workers:
                del self._thrown[Switch.DRAIN, name]

    def _depth(self, queue: str) -> int:
        return sum(t.queue == queue and t.place in WAITING for t in self._tasks.values())

    def _first_of(self, tenant: str | None, key: str) -> str | None:
        """The task that this key belongs to, if its time is not over."""
        task_id = self._keys.get((tenant, key))
        if task_id is None or task_id in self._tasks:
            return task_id
        return task_id if self._tombstones[task_id].until > self._clock.now() else None

    def _is_new(self, task: Task) -> bool:
        """Neither its id nor its key was used before."""
        if task.id in self._tasks or task.id in self._tombstones:
            return False
        return task.key is None or self._first_of(task.tenant, task.key) is None

    def _digest(self, task_id: str) -> str:
        bodies = self._bodies.get(task_id)
        return bodies.digest if bodies else self._tombstones[task_id].digest

    def _delete(self, task_id: str) -> None:
        task, bodies = self._tasks.pop(task_id), self._bodies.pop(task_id)
        until = (task.settled_at or 0.0) + TOMBSTONE_SECONDS
        if until > self._clock.now():
            request = bodies.events[-1][0]
            self._tombstones[task_id] = Tombstone(
                task=msgspec.structs.replace(task, place=Place.SETTLED),
                digest=bodies.digest,
                result=bodies.result,
                request=request,
                until=until,
            )
        else:
            self._free_key(task)
        self._forget_one(task.tenant)

    def _forget_one(self, name: str | None) -> None:
        """One task less; with the last one its tenant is forgotten."""
        if name is not None:
            tenant = self._tenants[name]
            tenant.tasks -= 1
            if tenant.tasks == 0:
                del self._tenants[name]

    def _free_key(self, task: Task) -> None:
        """Unless a newer task has it by now."""
        if task.key is not None and self._keys.get((task.tenant, task.key)) == task.id:
            del self._keys[task.tenant, task.key]
