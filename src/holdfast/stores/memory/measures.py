"""What the memory store counts, and what it finds by counting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.ports import Awaited, ErrorGroup, Moves, Stats, Timings, late
from holdfast.stores.memory.state import Shelves


class Measuring(Shelves):
    async def observe(self, batch: Sequence[Timings]) -> None:
        with self._lock:
            for new in batch:
                whose = (new.type, new.stage, new.outcome)
                there = self._timings.get(whose)
                self._timings[whose] = new if there is None else _sum(there, new)

    async def stats(self) -> Stats:
        with self._lock:
            tasks = self._tasks.values()
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
                        dwell_seconds=self._dwell[before, after, queue, type_],
                    )
                    for (before, after, queue, type_), n in self._moves.items()
                ),
                refused=dict(self._refused),
                heads={q: self._tasks[next(iter(ids))] for q, ids in self._ready.items() if ids},
                now=self._now(),
                checkpoints=sum(self._has_checkpoint(task) for task in tasks),
                locks=sum(task.place is Place.LEASED and task.tenant is not None for task in tasks),
                timings=tuple(self._timings.values()),
                late_seconds=late(self._waits()),
            )

    def _waits(self) -> dict[Awaited, float | None]:
        now, tasks = self._now(), self._tasks.values()
        ends = [task.lease.until - now for task in tasks if task.lease is not None]
        dues = [task.due - now for task in tasks if task.due is not None]
        return {
            Awaited.LEASE: min(ends, default=None),
            Awaited.TASK: min(dues, default=None),
        }

    def _has_checkpoint(self, task: Task) -> bool:
        return not task.settled and self._bodies[task.id].checkpoint is not None

    async def errors(self, *, limit: int) -> Sequence[ErrorGroup]:
        with self._lock:
            groups: defaultdict[str, list[Task]] = defaultdict(list)
            for task in self._tasks.values():
                if task.suspended and task.failure is not None:
                    groups[task.failure.fingerprint].append(task)
        found = [
            ErrorGroup(
                fingerprint=name, count=len(tasks), newest=max(tasks, key=lambda task: task.id)
            )
            for name, tasks in sorted(groups.items())
        ]
        return sorted(found, key=lambda group: -group.count)[:limit]


def _sum(one: Timings, other: Timings) -> Timings:
    return Timings(
        type=one.type,
        stage=one.stage,
        outcome=one.outcome,
        counts=tuple(a + b for a, b in zip(one.counts, other.counts, strict=True)),
        total_seconds=one.total_seconds + other.total_seconds,
    )
