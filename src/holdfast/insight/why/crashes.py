"""Crashes, as `why` words them: how many there were, and what the next one leads to."""

from __future__ import annotations

from holdfast.domain.task.crashes import is_suspect, suspect_from
from holdfast.domain.task.task import Task


def describe_crashes(task: Task, crash_limit: int) -> str:
    """Return a sentence with a space before it, or nothing for a task without a crash."""
    if not task.crashes:
        return ""
    were = f" It was in {_crashes(task.crashes)} in a row"
    if task.crashes >= crash_limit:
        return f"{were}, and {crash_limit} suspend a task: the next worker that takes it does so."
    if is_suspect(task, crash_limit):
        return (
            f"{were}, so it runs only where nothing else runs: one such task at a time in each "
            "worker, the others wait. One more crash while it runs alone suspends it."
        )
    alone = suspect_from(crash_limit)
    return f"{were}; after {_crashes(alone)} it runs alone, and {crash_limit} suspend it."


def _crashes(number: int) -> str:
    return "1 crash" if number == 1 else f"{number} crashes"
