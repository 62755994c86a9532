"""The view part of a store: reads of tasks, tenants, workers and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.events import Event
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, Progress, StageRecord, Task
from holdfast.ports.measures import ErrorGroup, Stats
from holdfast.ports.tasks import Beat


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    beat: Beat
    seen_seconds_ago: float
    live: bool


class Peek(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of a task, for callers that wait for its end; a tombstone has it, too."""

    task_id: str
    status: Status
    result: bytes | None = None
    failure: Failure | None = None
    reason: str | None = None


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """The whole record of a task."""

    task: Task
    payload: bytes
    result: bytes | None
    data: bytes | None
    checkpoint: bytes | None
    stages: tuple[StageRecord, ...]
    events: tuple[Event, ...]
    progress: Progress | None


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    active: str | None  # the task that runs or rests unsettled, else the first in line
    locked_by: str | None  # the task that holds the tenant's lock: the one that runs
    fence: int  # the last one given out for this tenant
    waiting: int  # tasks in the line behind the active one
    line: tuple[str, ...] = ()  # the first ids of the line, as many as were asked for


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that a task must meet, all of them; one that is left out matches any task."""

    statuses: tuple[Status, ...] = ()
    type: str | None = None
    tenant: str | None = None
    plan: str | None = None
    queue: str | None = None
    error: str | None = None  # a failure's fingerprint
    updated_before: float | None = None
    updated_after: float | None = None

    def matches(self, task: Task) -> bool:
        """Return whether a task meets all conditions."""
        failure = task.failure
        return (
            (not self.statuses or task.status in self.statuses)
            and self.type in (None, task.type)
            and self.tenant in (None, task.tenant)
            and self.plan in (None, task.plan)
            and self.queue in (None, task.queue)
            and (self.error is None or (failure is not None and failure.fingerprint == self.error))
            and (self.updated_before is None or task.updated_at < self.updated_before)
            and (self.updated_after is None or task.updated_at > self.updated_after)
        )


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks, the newest first. A short page may have a next one, as each search is bounded."""

    tasks: tuple[Task, ...]
    cursor: str | None


class ViewStore(Protocol):
    """The verbs that read tasks, tenants, workers and counts."""

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        """Return the records of tasks, in the order of the ids; None: there is no such task."""

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        """Return only the states of tasks; a tombstone answers for a deleted task."""

    async def detail(self, task_id: str) -> Detail | None:
        """Return all that is stored of a task, read in one step; None: there is no such task."""

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        """Return a task's checkpoint, decoded; raise SerialisationError if it cannot be read."""

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """Return a page of the tasks that match, the newest first."""

    async def tenants(self, names: Sequence[str], *, line_limit: int = 0) -> Sequence[TenantView]:
        """Return a view for each name, with the first ``line_limit`` ids of its line."""

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        """Return the last report of each known worker; it is live if seen within that time."""

    async def stats(self) -> Stats:
        """Count tasks by status and queue, with transitions, refusals and timings."""

    async def error_groups(self, *, limit: int) -> Sequence[ErrorGroup]:
        """Group suspended tasks by the fingerprint of their failure, the most frequent first."""
