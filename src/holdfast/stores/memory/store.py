"""The reference store: everything in dictionaries, each verb as plain as it can be.

It is what the other stores are compared with, what tests run on, and the fall-back when a user
asks for one. It keeps nothing across a restart. Reads over all tasks scan; that is its one excuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.crashes import SUSPECT_FROM, is_counted
from holdfast.domain.task.placement import DUE, LOSE, PLACE_AFTER, START, Next, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    Conflict,
    Existing,
    Full,
    Inserted,
    Insertion,
    MovedOn,
    Outcome,
    Shut,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import (
    Awaited,
    Beat,
    Claimed,
    Clock,
    Detail,
    Due,
    Filter,
    Finding,
    Page,
    Peek,
    Renewal,
    Switch,
    TenantView,
    Topic,
    WorkerInfo,
)
from holdfast.stores import codec
from holdfast.stores.memory.measures import Measuring
from holdfast.stores.memory.operations import Operating
from holdfast.stores.memory.plans import MemoryPlans
from holdfast.stores.memory.retention import Pruning
from holdfast.stores.memory.state import Bodies, Tenant
from holdfast.stores.memory.triggers import MemoryTriggers


class MemoryStore(Pruning, Operating, Measuring):
    durable = False
    url = "memory://"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.triggers = MemoryTriggers(self)
        self.plans = MemoryPlans(self)

    def _waits(self) -> dict[Awaited, float | None]:
        beside = {Awaited.TRIGGER: self.triggers.wait(), Awaited.PLAN: self.plans.wait()}
        return super()._waits() | beside

    # -- writes

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        for submission in batch:
            codec.check_task(submission.task)
        with self._lock:
            return [self._insert(submission, depth_limit) for submission in batch]

    def _insert(self, submission: Submission, depth_limit: int) -> Insertion:
        task = submission.task
        if task.id in self._tasks or task.id in self._tombstones:
            return Inserted(task.id)  # the same submit, sent again
        if task.key is not None and (first := self._first_of(task.tenant, task.key)):
            digest = self._digest(first)
            return Existing(first) if digest == submission.digest else Conflict(first)
        if self._is_off(Switch.INTAKE, task.queue):
            return Shut(task.queue)
        if self._depth(task.queue) >= depth_limit:
            return Full(task.queue)
        self._let_in(submission)
        return Inserted(task.id)

    def _follow(self, submissions: Iterable[Submission]) -> None:
        """What has happened cannot be refused: no depth and no switch is asked."""
        for submission in submissions:
            if self._is_new(submission.task):
                self._let_in(submission)

    def _let_in(self, submission: Submission) -> None:
        self._order += 1
        task = msgspec.structs.replace(submission.task, order=self._order)
        self._bodies[task.id] = Bodies(payload=submission.payload, digest=submission.digest)
        if task.key is not None:
            self._keys[task.tenant, task.key] = task.id
        if task.tenant is not None:
            self._tenants[task.tenant].tasks += 1
        self._log(submission.events, request=task.id)
        if submission.held:
            self._tasks[task.id] = msgspec.structs.replace(task, place=Place.HELD)
        else:
            self._enter(task)

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        with self._lock:
            last_request, claimed = self._claims.get(worker, ("", []))
            if request == last_request:
                return [
                    self._with_bodies(self._tasks[c.task.id], c.moved_on)
                    for c in claimed
                    if self._still_leased(c.task)
                ]
            claimed = []
            for queue in (q for q in queues if not self._is_off(Switch.CLAIMING, q)):
                for task_id in self._claimable(queue, limit - len(claimed)):
                    del self._ready[queue][task_id]
                    claimed.append(self._hand_out(self._tasks[task_id], worker, lease_seconds))
            self._claims[worker] = (request, claimed)
            return claimed

    def _claimable(self, queue: str, limit: int) -> list[str]:
        """The first in the queue, without those of tenants that are held."""
        free = (i for i in self._ready[queue] if not self._is_held(self._tasks[i].tenant))
        return list(islice(free, limit))

    def _is_held(self, tenant: str | None) -> bool:
        return tenant is not None and self._is_off(Switch.HOLD, tenant)

    def _still_leased(self, task: Task) -> bool:
        now = self._tasks.get(task.id)
        return now is not None and now.lease is not None and now.fence == task.fence

    def _hand_out(self, task: Task, worker: str, lease_seconds: float) -> Claimed:
        self._fence += 1
        lease = Lease(
            owner=worker,
            fence=self._fence,
            id=f"{worker}.{self._fence}",
            until=self._now() + lease_seconds,
        )
        moved_on = self._moved_on(task)
        if task.tenant is not None:
            self._tenants[task.tenant].fence = self._fence
        task = self._move(task, START, lease=lease, fence=self._fence, worker=worker)
        return self._with_bodies(task, moved_on)

    def _with_bodies(self, task: Task, moved_on: bool) -> Claimed:
        bodies = self._bodies[task.id]
        return Claimed(
            task=task,
            payload=bodies.payload,
            checkpoint=bodies.checkpoint,
            data=bodies.data,
            stages=tuple(bodies.stages.values()),
            moved_on=moved_on,
            checkpoint_version=bodies.checkpoint_version if bodies.checkpoint else 0,
        )

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        for transition in batch:
            codec.check_task(transition.after)
            for submission in transition.follows:
                codec.check_task(submission.task)
        with self._lock:
            return [self._apply(transition) for transition in batch]

    def _apply(self, transition: Transition) -> Outcome:
        task = self._tasks.get(transition.task_id)
        if self._was_applied(transition):
            return Applied(task or transition.after)
        if task is None or not self._may_write(task, transition):
            return Stale(task)
        if transition.not_if_moved_on and self._moved_on(task):
            return MovedOn(task)
        if transition.not_if_busy and self._must_wait(task):
            return Busy(task)
        if not self._checkpoint_is_newer(transition):
            return Stale(task)
        self._write(task, transition)
        return Applied(self._tasks.get(task.id, transition.after))

    def _may_write(self, task: Task, transition: Transition) -> bool:
        if task.version != transition.expects:
            return False
        if transition.lease is None:
            return task.lease is None or transition.next is Next.STAY
        return task.lease is not None and task.lease.id == transition.lease

    def _was_applied(self, transition: Transition) -> bool:
        if tombstone := self._tombstones.get(transition.task_id):
            return tombstone.request == transition.request
        bodies = self._bodies.get(transition.task_id)
        return bodies is not None and any(
            request == transition.request and event.version == transition.after.version
            for request, event in bodies.events
        )

    def _checkpoint_is_newer(self, transition: Transition) -> bool:
        there = self._bodies[transition.task_id]
        if transition.checkpoint is None or transition.drop_checkpoint or there.checkpoint is None:
            return True
        return transition.checkpoint.version > there.checkpoint_version

    def _write(self, task: Task, transition: Transition) -> None:
        bodies = self._bodies[task.id]
        if transition.drop_checkpoint:
            bodies.checkpoint = None
        if transition.drop_stages:
            bodies.stages, bodies.data = {}, None
        if transition.checkpoint is not None:
            bodies.checkpoint = ckpt.encode(transition.checkpoint)
            bodies.checkpoint_version = transition.checkpoint.version
        if transition.stage is not None:
            bodies.stages[transition.stage.index] = transition.stage
        if transition.result is not None:
            bodies.result = transition.result
        if transition.data is not None:
            bodies.data = transition.data
        if transition.payload is not None:
            bodies.payload = transition.payload
        if transition.audit is not None:
            self._note(transition.audit)
        self._log(transition.events, transition.request)
        self._count(task, transition.after)
        self._put(task, transition)
        if transition.next is Next.GONE:
            self._delete(task.id)
        self._follow(transition.follows)

    def _put(self, before: Task, transition: Transition) -> None:
        """Write the record and put it in its place."""
        after = transition.after
        if transition.next is Next.STAY:
            kept = {
                "place": before.place,
                "lease": before.lease,
                "due": before.due,
                "order": before.order,
                "fence": before.fence,
            }
            self._tasks[after.id] = msgspec.structs.replace(after, **kept)
            return
        self._take_out(before)
        place = PLACE_AFTER[transition.next]
        after = msgspec.structs.replace(
            after, place=place, lease=None, due=None, order=before.order, fence=before.fence
        )
        self._bodies[after.id].progress = None
        if place is Place.READY:
            self._enter(after)
        elif place is Place.LATER:
            due = self._now() + transition.delay_seconds
            self._rest(msgspec.structs.replace(after, due=due))
            self._signals.notify(Topic.READY)
        else:
            self._rest(after)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        with self._lock:
            now = self._now()
            self._workers[beat.worker] = (beat, now)
            return [self._renew(renewal, now + lease_seconds) for renewal in batch]

    def _renew(self, renewal: Renewal, until: float) -> bool:
        task = self._tasks.get(renewal.task_id)
        if task is None or task.lease is None or task.lease.id != renewal.lease_id:
            return False
        lease = msgspec.structs.replace(task.lease, until=until)
        self._tasks[task.id] = msgspec.structs.replace(task, lease=lease)
        if renewal.progress is not None:
            self._bodies[task.id].progress = renewal.progress
        return True

    async def leave(self, worker: str) -> None:
        with self._lock:
            self._forget_worker(worker)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        with self._lock:
            now = self._now()
            lapsed = [
                task
                for task in self._tasks.values()
                if task.lease is not None and task.lease.until <= now
            ][:limit]
            for task in lapsed:
                noted = self._bodies[task.id].progress
                counted = count_crashes and is_counted(task, noted, alone_from=alone_from)
                self._lose(task, counted)
            return len(lapsed)

    def _lose(self, task: Task, counted: bool) -> None:
        assert task.lease is not None
        moved = self._move(
            task,
            LOSE,
            lease=None,
            fence=task.fence,
            worker=task.lease.owner,
            counted=counted,
            crashes=task.crashes + counted,
            lapses=task.lapses + 1,
            interrupted=True,
            ran_by=task.lease.owner,
        )
        self._bodies[task.id].progress = None
        # To the head: it has waited once, and its tenant's line waits with it.
        self._ready[task.queue][moved.id] = None
        self._ready[task.queue].move_to_end(moved.id, last=False)
        self._signals.notify(Topic.READY)

    async def promote(self, *, limit: int) -> Due:
        with self._lock:
            now = self._now()
            waiting = sorted(
                (task.due, task.order, task.id)
                for task in self._tasks.values()
                if task.place is DUE.leaves and task.due is not None
            )
            due = [task_id for at, _, task_id in waiting if at <= now][:limit]
            for task_id in due:
                self._enter(self._move(self._tasks[task_id], DUE, due=None))
            rest = waiting[len(due) :]
            return Due(count=len(due), next_seconds=max(0.0, rest[0][0] - now) if rest else None)

    # -- reads

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        with self._lock:
            return [self._tasks.get(task_id) for task_id in ids]

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        with self._lock:
            return [self._peek(task_id) for task_id in ids]

    def _peek(self, task_id: str) -> Peek | None:
        if tombstone := self._tombstones.get(task_id):
            task, result = tombstone.task, tombstone.result
        elif found := self._tasks.get(task_id):
            task, result = found, self._bodies[task_id].result
        else:
            return None
        return codec.peek_at(task, result)

    async def detail(self, task_id: str) -> Detail | None:
        with self._lock:
            task = self._tasks.get(task_id)
            if task is None:
                return None
            bodies = self._bodies[task_id]
            return Detail(
                task=task,
                payload=bodies.payload,
                result=bodies.result,
                data=bodies.data,
                checkpoint=bodies.checkpoint,
                stages=tuple(bodies.stages.values()),
                events=tuple(event for _, event in bodies.events),
                progress=bodies.progress,
            )

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        with self._lock:
            bodies = self._bodies.get(task_id)
            if bodies is None or bodies.checkpoint is None:
                return None
            durations = {s.name: round(s.duration_seconds * 1000) for s in bodies.stages.values()}
            return msgspec.structs.replace(
                ckpt.decode(bodies.checkpoint), stage_durations=durations
            )

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        with self._lock:
            ids = sorted((i for i in self._tasks if cursor is None or i < cursor), reverse=True)
            found = [self._tasks[i] for i in ids if where.matches(self._tasks[i])][: limit + 1]
            more = len(found) > limit
            return Page(tasks=tuple(found[:limit]), cursor=found[limit - 1].id if more else None)

    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]:
        with self._lock:
            return [self._tenant_view(name) for name in names]

    def _tenant_view(self, name: str) -> TenantView:
        tenant = self._tenants.get(name, Tenant())
        active = self._tasks.get(tenant.active) if tenant.active else None
        return TenantView(
            tenant=name,
            active=tenant.active,
            locked_by=active.id if active and active.place is Place.LEASED else None,
            fence=tenant.fence,
            waiting=len(tenant.line),
        )

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]:
        with self._lock:
            return [task_id for _, task_id in self._tenants.get(tenant, Tenant()).line[:limit]]

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        with self._lock:
            now = self._now()
            return [
                WorkerInfo(
                    beat=beat, seen_seconds_ago=now - seen, live=now - seen <= live_within_seconds
                )
                for beat, seen in self._workers.values()
            ]

    async def doctor(
        self, *, fix: bool, limit: int, seen: Callable[[int], None] | None = None
    ) -> Sequence[Finding]:
        from holdfast.stores.memory.doctor import examine

        with self._lock:
            found = examine(self, fix=fix)[:limit]
            number = len(self._tasks)
        if seen is not None:
            seen(number)
        return found

    # -- signals

    def ticket(self, topic: Topic) -> int:
        return self._signals.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        await self._signals.wait(topic, ticket, timeout=timeout)
