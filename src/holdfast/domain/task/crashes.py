"""Crashes of a task: which lost leases count as one.

A worker that dies loses the leases of all its tasks, and one of them at most has killed it. So a
crash is counted only for a task whose stage had begun, and a task that was in two crashes in a row
is a suspect: its next crash counts only if nothing else ran in that process.
"""

from __future__ import annotations

from holdfast.domain.task.task import Progress, Task

SUSPECT_FROM = 2  # crashes in a row; one below the number that suspends


def suspect_from(crash_limit: int) -> int:
    """Return from how many crashes in a row on a task is run alone."""
    return max(1, crash_limit - 1)


def is_suspect(task: Task, crash_limit: int) -> bool:
    """Return whether the next counted crash would suspend the task, so that it has to run alone."""
    return crash_limit > 1 and suspect_from(crash_limit) <= task.crashes < crash_limit


def position(last_completed: int, next_undo: int) -> str:
    """Return the stage, or undo, that a task is at; it changes with each one that is committed."""
    return f"{last_completed}/{next_undo}"


def is_counted(task: Task, noted: Progress | None, *, alone_from: int) -> bool:
    """Return whether a lost lease counts, by what its holder had noted."""
    if noted is None or noted.begun != position(task.last_completed, task.next_undo):
        return False
    return task.crashes < alone_from or noted.alone
