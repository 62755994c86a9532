"""Reads and counts in memory: reads over all tasks scan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.ports import (
    Awaited,
    Detail,
    ErrorGroup,
    Filter,
    Moves,
    Page,
    Peek,
    Stats,
    TenantView,
    WorkerInfo,
    late,
)
from holdfast.stores import codec
from holdfast.stores.memory import plans, triggers
from holdfast.stores.memory.state import MemoryState, MemoryTenantLine


class MemoryViews:
    def __init__(self, state: MemoryState) -> None:
        self._state, self._lock = state, state.lock

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        with self._lock:
            return [self._state.tasks.get(task_id) for task_id in ids]

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        with self._lock:
            return [self._peek(task_id) for task_id in ids]

    def _peek(self, task_id: str) -> Peek | None:
        if tombstone := self._state.tombstones.get(task_id):
            task, result = tombstone.task, tombstone.result
        elif found := self._state.tasks.get(task_id):
            task, result = found, self._state.bodies[task_id].result
        else:
            return None
        return codec.peek_at(task, result)

    async def detail(self, task_id: str) -> Detail | None:
        with self._lock:
            task = self._state.tasks.get(task_id)
            if task is None:
                return None
            bodies = self._state.bodies[task_id]
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
            bodies = self._state.bodies.get(task_id)
            if bodies is None or bodies.checkpoint is None:
                return None
            durations = {s.name: round(s.duration_seconds * 1000) for s in bodies.stages.values()}
            return replace(ckpt.decode(bodies.checkpoint), stage_durations=durations)

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        with self._lock:
            ids = sorted(
                (i for i in self._state.tasks if cursor is None or i < cursor), reverse=True
            )
            found = [self._state.tasks[i] for i in ids if where.matches(self._state.tasks[i])][
                : limit + 1
            ]
            more = len(found) > limit
            return Page(tasks=tuple(found[:limit]), cursor=found[limit - 1].id if more else None)

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        with self._lock:
            return [self._tenant_view(name, line_limit) for name in names]

    def _tenant_view(self, name: str, line_limit: int) -> TenantView:
        tenant = self._state.tenants.get(name, MemoryTenantLine())
        active = self._state.tasks.get(tenant.active) if tenant.active else None
        return TenantView(
            tenant=name,
            active=tenant.active,
            locked_by=active.id if active and active.place is Place.LEASED else None,
            fence=tenant.fence,
            waiting=len(tenant.line),
            line=tuple(task_id for _, task_id in tenant.line[: max(0, line_limit)]),
        )

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        with self._lock:
            now = self._state.now()
            return [
                WorkerInfo(
                    beat=beat, seen_seconds_ago=now - seen, live=now - seen <= live_within_seconds
                )
                for beat, seen in self._state.workers.values()
            ]

    async def stats(self) -> Stats:
        with self._lock:
            tasks = self._state.tasks.values()
            by_queue: defaultdict[str, Counter[Place]] = defaultdict(Counter)
            for task in tasks:
                by_queue[task.queue][task.place] += 1
            return Stats(
                by_status=Counter(task.status for task in tasks),
                by_queue=by_queue,
                moves=tuple(
                    Moves(
                        before=before,
                        after=after,
                        queue=queue,
                        type=type_,
                        count=n,
                        dwell_seconds=self._state.dwell[before, after, queue, type_],
                    )
                    for (before, after, queue, type_), n in self._state.moves.items()
                ),
                refused=dict(self._state.refused),
                heads={
                    queue: self._state.tasks[first]
                    for queue in dict.fromkeys((*self._state.ready, *self._state.taken_back))
                    if (first := next(self._state.queued_ids(queue), None)) is not None
                },
                now=self._state.now(),
                checkpoints=sum(
                    not task.settled and self._state.bodies[task.id].checkpoint is not None
                    for task in tasks
                ),
                locks=sum(task.place is Place.LEASED and task.tenant is not None for task in tasks),
                timings=tuple(self._state.timings.values()),
                late_seconds=late(self._waits()),
            )

    def _waits(self) -> dict[Awaited, float | None]:
        now, tasks = self._state.now(), self._state.tasks.values()
        ends = [task.lease.until - now for task in tasks if task.lease is not None]
        dues = [task.due - now for task in tasks if task.due is not None]
        return {
            Awaited.LEASE: min(ends, default=None),
            Awaited.TASK: min(dues, default=None),
            Awaited.TRIGGER: triggers.next_due_seconds(self._state),
            Awaited.PLAN: plans.next_due_seconds(self._state),
        }

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        with self._lock:
            groups: defaultdict[str, list[Task]] = defaultdict(list)
            for task in self._state.tasks.values():
                if task.suspended and task.failure is not None:
                    groups[task.failure.fingerprint].append(task)
        found = [
            ErrorGroup(
                fingerprint=name, count=len(tasks), newest=max(tasks, key=lambda task: task.id)
            )
            for name, tasks in sorted(groups.items())
        ]
        return sorted(found, key=lambda group: -group.count)[:limit]
