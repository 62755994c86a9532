"""Error groups whose tasks wait for the end of an outage.

The reports of workers name groups; the store says whether a task of a group still waits. So a group
stays until its last task has had another outcome, on any worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter, OutageGroup, Stats, Store, WorkerInfo

WAITING = (Status.RETRYING, Status.ROLLING_BACK)
UNDER_WAY = (*WAITING, Status.PENDING, Status.RUNNING)
SAMPLE = 200  # tasks that the first poll reads, before any report is known
PROOF = 20  # tasks of a group that are read to see whether one of them waits
LIMIT = 50  # groups


class OutageWatch:
    """The outages that one process knows of, from poll to poll."""

    def __init__(self) -> None:
        self._known: dict[str, OutageGroup] | None = None  # None: before the first poll

    async def poll(
        self, store: Store, stats: Stats, workers: Iterable[WorkerInfo]
    ) -> tuple[OutageGroup, ...]:
        named = [group for worker in workers if worker.live for group in worker.beat.outages]
        if self._known is None:
            named += await _sample(store, stats)
        groups = _merge_groups([*(self._known or {}).values(), *named])
        waiting = [group for group in groups[:LIMIT] if await _waits(store, group.fingerprint)]
        self._known = {group.fingerprint: group for group in waiting}
        return tuple(waiting)


async def _sample(store: Store, stats: Stats) -> list[OutageGroup]:
    """Return the groups of some tasks that wait now."""
    if not any(stats.by_status.get(status, 0) for status in WAITING):
        return []
    page = await store.views.find(Filter(statuses=WAITING), limit=SAMPLE)
    return [group for task in page.tasks if (group := _group_of(task)) is not None]


async def _waits(store: Store, fingerprint: str) -> bool:
    """Return whether a task of the group waits; an empty page with a next one may have some."""
    page = await store.views.find(Filter(statuses=UNDER_WAY, error=fingerprint), limit=PROOF)
    return any(task.outages for task in page.tasks) or page.cursor is not None


def _group_of(task: Task) -> OutageGroup | None:
    failure = task.failure
    if failure is None or task.outage_since is None:
        return None
    return OutageGroup(
        fingerprint=failure.fingerprint,
        error=failure.error,
        stage=failure.stage,
        since=task.outage_since,
    )


def _merge_groups(groups: Sequence[OutageGroup]) -> list[OutageGroup]:
    """Return one of each group, since its earliest outage, the longest first."""
    merged: dict[str, OutageGroup] = {}
    for group in groups:
        known = merged.setdefault(group.fingerprint, group)
        merged[group.fingerprint] = replace(known, since=min(known.since, group.since))
    return sorted(merged.values(), key=lambda group: (group.since, group.fingerprint))
