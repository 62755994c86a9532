"""Crashes of a task: the lost leases that count as a crash.

A worker that dies loses the leases of all its tasks, and at most one of them has killed it. So a
crash is counted only for a task whose stage had begun. A task that was in two crashes in a row is a
suspect: its next crash counts only if nothing else ran in that process.
"""

from __future__ import annotations

from holdfast.domain.task.task import Progress, Task

SUSPECT_FROM = 2  # crashes in a row; one below the number that suspends


def suspect_from(crash_limit: int) -> int:
    """Return the number of crashes in a row from which on a task runs alone."""
    return max(1, crash_limit - 1)


def is_suspect(task: Task, crash_limit: int) -> bool:
    """Return whether the next counted crash would suspend the task, so that it has to run alone."""
    return crash_limit > 1 and suspect_from(crash_limit) <= task.crashes < crash_limit


def position(last_completed: int, next_undo: int) -> str:
    """Return the stage or undo that a task is at, as text; each commit changes it."""
    return f"{last_completed}/{next_undo}"


def is_counted(task: Task, noted: Progress | None, *, alone_from: int) -> bool:
    """Return whether a lost lease counts as a crash, by the notes of its holder."""
    if noted is None or noted.begun != position(task.last_completed, task.next_undo):
        return False
    return task.crashes < alone_from or noted.alone
