"""Suspended tasks are grouped by cause here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row
from holdfast.cli.pages import matching_tasks
from holdfast.domain.task.task import Task
from holdfast.insight.views.tasks import at
from holdfast.ports import Filter, Store

NO_ERROR = "-"


@dataclass(slots=True)
class SuspendedGroup:
    fingerprint: str
    newest: Task
    oldest_at: float = 0.0
    count: int = 0
    types: set[str] = field(default_factory=set)

    def add(self, task: Task) -> None:
        self.count += 1
        self.types.add(task.type)
        self.oldest_at = min(self.oldest_at or task.status_since, task.status_since)

    def row(self) -> Row:
        failure = self.newest.failure
        return {
            "FINGERPRINT": self.fingerprint,
            "COUNT": str(self.count),
            "TYPE": ", ".join(sorted(self.types)),
            "STAGE": failure.stage if failure else NO_ERROR,
            "ERROR": failure.error.rpartition(".")[2] if failure else NO_ERROR,
            "SAYS": redaction.text(failure.message) if failure else NO_ERROR,
        }

    def shape(self) -> dict[str, Any]:
        failure = self.newest.failure
        return {
            "fingerprint": self.fingerprint,
            "count": self.count,
            "error": failure.error if failure else None,
            "stage": failure.stage if failure else None,
            "types": sorted(self.types),
            "example": self.newest.id,
            "oldest": at(self.oldest_at),
            "newest": at(self.newest.status_since),
        }


async def group_by_cause(
    store: Store, where: Filter, at_most: int
) -> tuple[Sequence[SuspendedGroup], bool]:
    """Return the groups, the most frequent first, and whether all tasks were counted."""
    groups: dict[str, SuspendedGroup] = {}
    counted, complete = 0, True
    async for task in matching_tasks(store, where):
        if counted == at_most:
            complete = False
            break
        name = task.failure.fingerprint if task.failure else NO_ERROR
        groups.setdefault(name, SuspendedGroup(name, task)).add(task)
        counted += 1
    return sorted(groups.values(), key=lambda group: -group.count), complete
