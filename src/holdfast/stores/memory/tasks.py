"""Tasks in memory: each verb is as plain as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.crashes import SUSPECT_FROM, is_counted
from holdfast.domain.task.placement import DUE, LOSE, PLACE_AFTER, START, Next, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    Insertion,
    MovedOn,
    NoCheckpoint,
    Outcome,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import Beat, Claimed, Due, Renewal, Switch, Topic
from holdfast.stores import codec
from holdfast.stores.memory.state import MemoryState


class MemoryTasks:
    def __init__(self, state: MemoryState) -> None:
        self._state, self._lock = state, state.lock

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        for submission in batch:
            codec.check_task(submission.task)
        with self._lock:
            return [self._state.insert(submission, depth_limit) for submission in batch]

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        with self._lock:
            last_request, claimed = self._state.claims.get(worker, ("", []))
            if request == last_request:
                return [
                    self._with_bodies(self._state.tasks[c.task.id], c.moved_on)
                    for c in claimed
                    if self._still_leased(c.task)
                ]
            claimed = []
            for queue in (q for q in queues if not self._state.is_off(Switch.CLAIMING, q)):
                for task_id in self._claimable(queue, limit - len(claimed)):
                    task = self._state.tasks[task_id]
                    self._state.leave_queue(task)
                    claimed.append(self._hand_out(task, worker, lease_seconds))
            self._state.claims[worker] = (request, claimed)
            return claimed

    def _claimable(self, queue: str, limit: int) -> list[str]:
        """Return the first tasks in a queue, without those of tenants that are held."""
        queued = self._state.queued_ids(queue)
        free = (i for i in queued if not self._is_held(self._state.tasks[i].tenant))
        return list(islice(free, limit))

    def _is_held(self, tenant: str | None) -> bool:
        return tenant is not None and self._state.is_off(Switch.HOLD, tenant)

    def _still_leased(self, task: Task) -> bool:
        now = self._state.tasks.get(task.id)
        return now is not None and now.lease is not None and now.fence == task.fence

    def _hand_out(self, task: Task, worker: str, lease_seconds: float) -> Claimed:
        self._state.fence += 1
        lease = Lease(
            owner=worker,
            fence=self._state.fence,
            id=f"{worker}.{self._state.fence}",
            until=self._state.now() + lease_seconds,
        )
        moved_on = self._state.moved_on(task)
        if task.tenant is not None:
            self._state.tenants[task.tenant].fence = self._state.fence
        task = self._state.move(task, START, lease=lease, fence=self._state.fence, worker=worker)
        return self._with_bodies(task, moved_on)

    def _with_bodies(self, task: Task, moved_on: bool) -> Claimed:
        bodies = self._state.bodies[task.id]
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
        task = self._state.tasks.get(transition.task_id)
        if self._was_applied(transition):
            return Applied(task or transition.after)
        if task is None or not self._may_write(task, transition):
            return Stale(task)
        if (refused := self._refuse(task, transition)) is not None:
            return refused
        if not self._checkpoint_is_newer(transition):
            return Stale(task)
        self._write(task, transition)
        return Applied(self._state.tasks.get(task.id, transition.after))

    def _refuse(self, task: Task, transition: Transition) -> Outcome | None:
        if transition.not_without_checkpoint and self._state.bodies[task.id].checkpoint is None:
            return NoCheckpoint(task)
        if transition.not_if_moved_on and self._state.moved_on(task):
            return MovedOn(task)
        if transition.not_if_busy and self._state.must_wait(task):
            return Busy(task)
        return None

    def _may_write(self, task: Task, transition: Transition) -> bool:
        if task.version != transition.expects:
            return False
        if transition.lease is None:
            return task.lease is None or transition.next is Next.STAY
        return task.lease is not None and task.lease.id == transition.lease

    def _was_applied(self, transition: Transition) -> bool:
        if tombstone := self._state.tombstones.get(transition.task_id):
            return tombstone.request == transition.request
        bodies = self._state.bodies.get(transition.task_id)
        return bodies is not None and any(
            request == transition.request and event.version == transition.after.version
            for request, event in bodies.events
        )

    def _checkpoint_is_newer(self, transition: Transition) -> bool:
        there = self._state.bodies[transition.task_id]
        if transition.checkpoint is None or transition.drop_checkpoint or there.checkpoint is None:
            return True
        return transition.checkpoint.version > there.checkpoint_version

    def _write(self, task: Task, transition: Transition) -> None:
        bodies = self._state.bodies[task.id]
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
            self._state.note(transition.audit)
        self._state.log(transition.events, transition.request)
        self._state.count(task, transition.after)
        self._put(task, transition)
        if transition.next is Next.GONE:
            self._state.delete(task.id)
        self._state.follow(transition.follows)

    def _put(self, before: Task, transition: Transition) -> None:
        """Write the record and put it in its place."""
        after = replace(transition.after, order=before.order, fence=before.fence)
        if transition.next is Next.STAY:
            after = replace(after, place=before.place, lease=before.lease, due=before.due)
            self._state.tasks[after.id] = after
            return
        self._state.take_out(before)
        place = PLACE_AFTER[transition.next]
        after = replace(after, place=place, lease=None, due=None)
        self._state.bodies[after.id].progress = None
        if place is Place.READY:
            self._state.enter(after)
        elif place is Place.LATER:
            due = self._state.now() + transition.delay_seconds
            self._state.rest(replace(after, due=due))
            self._state.signals.notify(Topic.READY)
        else:
            self._state.rest(after)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        with self._lock:
            now = self._state.now()
            self._state.workers[beat.worker] = (beat, now)
            return [self._renew(renewal, now + lease_seconds) for renewal in batch]

    def _renew(self, renewal: Renewal, until: float) -> bool:
        task = self._state.tasks.get(renewal.task_id)
        if task is None or task.lease is None or task.lease.id != renewal.lease_id:
            return False
        lease = replace(task.lease, until=until)
        self._state.tasks[task.id] = replace(task, lease=lease)
        if renewal.progress is not None:
            self._state.bodies[task.id].progress = renewal.progress
        return True

    async def leave(self, worker: str) -> None:
        with self._lock:
            self._state.forget_worker(worker)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        with self._lock:
            now = self._state.now()
            lapsed = [
                task
                for task in self._state.tasks.values()
                if task.lease is not None and task.lease.until <= now
            ][:limit]
            for task in lapsed:
                noted = self._state.bodies[task.id].progress
                counted = count_crashes and is_counted(task, noted, alone_from=alone_from)
                self._lose(task, counted)
            return len(lapsed)

    def _lose(self, task: Task, counted: bool) -> None:
        assert task.lease is not None
        moved = self._state.move(
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
        self._state.bodies[task.id].progress = None
        # Before what is ready: it has waited once, and its tenant's line waits with it.
        self._state.taken_back[task.queue][moved.id] = moved.order
        self._state.signals.notify(Topic.READY)

    async def promote(self, *, limit: int) -> Due:
        with self._lock:
            now = self._state.now()
            waiting = sorted(
                (task.due, task.order, task.id)
                for task in self._state.tasks.values()
                if task.place is DUE.leaves and task.due is not None
            )
            due = [task_id for at, _, task_id in waiting if at <= now][:limit]
            for task_id in due:
                self._state.enter(self._state.move(self._state.tasks[task_id], DUE, due=None))
            rest = waiting[len(due) :]
            return Due(count=len(due), next_seconds=max(0.0, rest[0][0] - now) if rest else None)
