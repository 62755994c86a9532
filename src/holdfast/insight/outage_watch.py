"""Error groups whose tasks wait for the end of an outage.

The beats of workers name groups; the store says whether a task of a group still waits. So a group
is there until its last task has met something else, whichever worker tried it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter, OutageGroup, Stats, Store, WorkerInfo

WAITING = (Status.RETRYING, Status.ROLLING_BACK)
UNDER_WAY = (*WAITING, Status.PENDING, Status.RUNNING)
SAMPLE = 200  # tasks that a first look reads, before any beat is known
PROOF = 20  # tasks of a group that are read to see whether one of them waits
LIMIT = 50  # groups


class OutageWatch:
    """The watch of one process that looks again and again."""

    def __init__(self) -> None:
        self._known: dict[str, OutageGroup] | None = None  # None: nobody has looked yet

    async def look(
        self, store: Store, stats: Stats, workers: Iterable[WorkerInfo]
    ) -> tuple[OutageGroup, ...]:
        named = [group for worker in workers if worker.live for group in worker.beat.outages]
        if self._known is None:
            named += await _sample(store, stats)
        found = _merge_groups([*(self._known or {}).values(), *named])
        waiting = [one for one in found[:LIMIT] if await _waits(store, one.fingerprint)]
        self._known = {group.fingerprint: group for group in waiting}
        return tuple(waiting)


async def _sample(store: Store, stats: Stats) -> list[OutageGroup]:
    """The groups of some of those that wait now."""
    if not any(stats.by_status.get(status, 0) for status in WAITING):
        return []
    page = await store.views.find(Filter(statuses=WAITING), limit=SAMPLE)
    return [group for task in page.tasks if (group := _group_of(task)) is not None]


async def _waits(store: Store, fingerprint: str) -> bool:
    """A page may be empty and have a next one: then nobody can tell, and it stays as it was."""
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
    """One of each, since its earliest; those that last longest first."""
    found: dict[str, OutageGroup] = {}
    for group in groups:
        known = found.setdefault(group.fingerprint, group)
        found[group.fingerprint] = replace(known, since=min(known.since, group.since))
    return sorted(found.values(), key=lambda group: (group.since, group.fingerprint))
