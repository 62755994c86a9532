"""The state of the memory store, and the moves of a task from place to place in it."""

from __future__ import annotations

import threading
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import Anchor, Audit, AuditLink, link_entry
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Member, Plan, PlanTasks
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import WAITING, Place, StoreMove, opens_line
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Progress, StageRecord, Task
from holdfast.domain.task.transition import (
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    IntakeClosed,
    Submission,
)
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Beat, Claimed, Clock, Switch, SwitchSetting, Timings, Topic
from holdfast.stores.signals import Signals

TOMBSTONE_SECONDS = 24 * 3600

Moved = tuple[Status, Status, str, str]  # before, after, queue and type


class TaskBodies(msgspec.Struct, kw_only=True):
    """The parts of a task that are not in its record."""

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


class MemoryTenantLine(msgspec.Struct, kw_only=True):
    """A tenant's line, with its active task, its fence and its parked tasks."""

    active: str | None = None
    fence: int = 0
    tasks: int = 0  # of any status: with the last one the tenant is forgotten
    line: list[tuple[int, str]] = []
    resting: dict[str, int] = {}  # unsettled, without holding the line


class PlanShelf(msgspec.Struct, kw_only=True):
    """A plan with all that belongs to it."""

    plan: Plan
    tasks: PlanTasks
    members: dict[int, Member] = {}
    events: list[PlanEvent] = []
    due: float | None = None  # by the store's clock; None: nobody has to look at it
    woken: bool = False  # while it was driven


class MemoryState:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.offset_seconds = clock.now() - clock.steady()
        self.lock = threading.RLock()
        self.signals = Signals(clock)
        self.tasks: dict[str, Task] = {}
        self.bodies: dict[str, TaskBodies] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.keys: dict[tuple[str | None, str], str] = {}
        self.ready: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.taken_back: defaultdict[str, dict[str, int]] = defaultdict(dict)  # id, order
        self.tenants: defaultdict[str, MemoryTenantLine] = defaultdict(MemoryTenantLine)
        self.workers: dict[str, tuple[Beat, float]] = {}
        self.claims: dict[str, tuple[str, list[Claimed]]] = {}
        self.base = Anchor()  # what the oldest link hangs on
        self.base_at: float | None = None  # the time of the newest entry that was pruned
        self.links: list[AuditLink] = []
        self.switches: dict[tuple[Switch, str], SwitchSetting] = {}
        self.plans: dict[str, PlanShelf] = {}
        self.triggers: dict[str, Trigger] = {}
        self.moves: Counter[Moved] = Counter()
        self.dwell: Counter[Moved] = Counter()
        self.timings: dict[tuple[str, str, str], Timings] = {}  # by type, stage and outcome
        self.refused: Counter[str] = Counter()
        self.fence = 0
        self.order = 0

    def now(self) -> float:
        """Return the time that judges leases and due times: a wall clock that nobody can set."""
        return self.clock.steady() + self.offset_seconds

    # -- submissions

    def insert(self, submission: Submission, depth_limit: int) -> Insertion:
        task = submission.task
        if task.id in self.tasks or task.id in self.tombstones:
            return Inserted(task.id)  # the same submit, sent again
        if task.key is not None and (first := self.first_of(task.tenant, task.key)):
            digest = self.digest(first)
            return Existing(first) if digest == submission.digest else Conflict(first)
        if self.is_off(Switch.INTAKE, task.queue):
            return IntakeClosed(task.queue)
        if self.depth(task.queue) >= depth_limit:
            return Full(task.queue)
        self.let_in(submission)
        return Inserted(task.id)

    def follow(self, submissions: Iterable[Submission]) -> None:
        """Insert tasks that follow from what has happened: no depth and no switch refuses them."""
        for submission in submissions:
            if self.is_new(submission.task):
                self.let_in(submission)

    def let_in(self, submission: Submission) -> None:
        self.order += 1
        task = replace(submission.task, order=self.order)
        self.bodies[task.id] = TaskBodies(payload=submission.payload, digest=submission.digest)
        if task.key is not None:
            self.keys[task.tenant, task.key] = task.id
        if task.tenant is not None:
            self.tenants[task.tenant].tasks += 1
        self.log(submission.events, request=task.id)
        if submission.held:
            self.tasks[task.id] = replace(task, place=Place.HELD)
        else:
            self.enter(task)

    # -- places and lines

    def enter(self, task: Task) -> None:
        """Put the task into its queue, or behind its tenant's active task."""
        if task.tenant is not None:
            tenant = self.tenants[task.tenant]
            tenant.resting.pop(task.id, None)
            if self.must_wait(task):
                self.tasks[task.id] = replace(task, place=Place.LINE)
                insort(tenant.line, (task.order, task.id))
                return
            tenant.active = task.id
        self.tasks[task.id] = replace(task, place=Place.READY)
        self.ready[task.queue][task.id] = None
        self.signals.notify(Topic.READY)

    def rest(self, task: Task) -> None:
        """Let the task stop being runnable; its tenant's next may be let through."""
        self.tasks[task.id] = task
        if task.tenant is not None and opens_line(task.place, task.hold):
            self.tenants[task.tenant].resting[task.id] = task.order
        elif task.tenant is not None:
            self.tenants[task.tenant].resting.pop(task.id, None)
        if task.tenant is not None and self.tenants[task.tenant].active == task.id:
            tenant = self.tenants[task.tenant]
            if task.settled:
                tenant.active = None
            if tenant.line and self.line_is_open(tenant):
                _, next_id = tenant.line.pop(0)
                self.enter(self.tasks[next_id])
            elif tenant.active is None and tenant.resting:
                tenant.active = max(tenant.resting, key=tenant.resting.__getitem__)
        self.signals.notify(Topic.RESTED)

    def must_wait(self, task: Task) -> bool:
        """Return whether the task waits behind its tenant's active task."""
        tenant = self.tenants.get(task.tenant) if task.tenant is not None else None
        return tenant is not None and tenant.active != task.id and not self.line_is_open(tenant)

    def line_is_open(self, tenant: MemoryTenantLine) -> bool:
        if tenant.active is None:
            return True
        active = self.tasks[tenant.active]
        return opens_line(active.place, active.hold)

    def take_out(self, task: Task) -> None:
        """Take the task out of the queue or line it waits in."""
        if task.place is Place.READY:
            self.leave_queue(task)
        elif task.place is Place.LINE and task.tenant is not None:
            self.tenants[task.tenant].line.remove((task.order, task.id))

    def is_queued(self, task: Task) -> bool:
        return task.id in self.ready[task.queue] or task.id in self.taken_back[task.queue]

    def leave_queue(self, task: Task) -> None:
        self.ready[task.queue].pop(task.id, None)
        self.taken_back[task.queue].pop(task.id, None)

    def queued_ids(self, queue: str) -> Iterator[str]:
        """Yield the ids of a queue; tasks taken back come first, the newest submit before all."""
        taken_back = self.taken_back[queue]
        yield from sorted(taken_back, key=taken_back.__getitem__, reverse=True)
        yield from self.ready[queue]

    def moved_on(self, task: Task) -> bool:
        if task.tenant is None or task.fence == 0:
            return False
        return self.tenants[task.tenant].fence > task.fence

    # -- records, keys, counts

    def move(
        self,
        task: Task,
        move: StoreMove,
        *,
        worker: str = "",
        counted: bool = True,
        **changes: object,
    ) -> Task:
        """Make one of the store's own moves, with its event."""
        now = self.clock.now()
        status = move.to[task.status]
        if status is not task.status:
            changes["status_since"] = now
        after = replace(
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
        self.log((event,), request="")
        self.count(task, after)
        self.tasks[task.id] = after
        return after

    def log(self, events: Iterable[ev.Event], request: str) -> None:
        for event in events:
            self.bodies[event.task_id].events.append((request, event))

    def count(self, before: Task, after: Task) -> None:
        if before.status is not after.status:
            moved = (before.status, after.status, after.queue, after.type)
            self.moves[moved] += 1
            self.dwell[moved] += max(  # type: ignore[assignment]
                0.0, after.updated_at - before.status_since
            )

    def note(self, entry: Audit) -> None:
        self.links.append(link_entry(self.head(), entry))

    def head(self) -> Anchor:
        return self.links[-1].anchor if self.links else self.base

    def is_off(self, switch: Switch, name: str) -> bool:
        setting = self.switches.get((switch, name))
        return setting is not None and setting.stands(self.clock.now())

    def forget_worker(self, worker: str) -> None:
        self.workers.pop(worker, None)
        self.claims.pop(worker, None)
        self.switches.pop((Switch.DRAIN, worker), None)

    def forget_strangers(self) -> None:
        """Forget drained workers that are not known: they had left before they heard of it."""
        drains = [name for switch, name in self.switches if switch is Switch.DRAIN]
        for name in drains:
            if name not in self.workers:
                del self.switches[Switch.DRAIN, name]

    def depth(self, queue: str) -> int:
        return sum(t.queue == queue and t.place in WAITING for t in self.tasks.values())

    def first_of(self, tenant: str | None, key: str) -> str | None:
        """Return the task that a key belongs to, if its time is not over."""
        task_id = self.keys.get((tenant, key))
        if task_id is None or task_id in self.tasks:
            return task_id
        return task_id if self.tombstones[task_id].until > self.clock.now() else None

    def is_new(self, task: Task) -> bool:
        """Return whether neither the id nor the key of a task was used before."""
        if task.id in self.tasks or task.id in self.tombstones:
            return False
        return task.key is None or self.first_of(task.tenant, task.key) is None

    def digest(self, task_id: str) -> str:
        bodies = self.bodies.get(task_id)
        return bodies.digest if bodies else self.tombstones[task_id].digest

    def delete(self, task_id: str) -> None:
        task, bodies = self.tasks.pop(task_id), self.bodies.pop(task_id)
        until = (task.settled_at or 0.0) + TOMBSTONE_SECONDS
        if until > self.clock.now():
            request = bodies.events[-1][0]
            self.tombstones[task_id] = Tombstone(
                task=replace(task, place=Place.SETTLED),
                digest=bodies.digest,
                result=bodies.result,
                request=request,
                until=until,
            )
        else:
            self.free_key(task)
        self.forget_one(task.tenant)

    def forget_one(self, name: str | None) -> None:
        """Count one task of a tenant less; with the last one the tenant is forgotten."""
        if name is not None:
            tenant = self.tenants[name]
            tenant.tasks -= 1
            if tenant.tasks == 0:
                del self.tenants[name]

    def free_key(self, task: Task) -> None:
        """Free the task's key, unless a newer task has it by now."""
        if task.key is not None and self.keys.get((task.tenant, task.key)) == task.id:
            del self.keys[task.tenant, task.key]
