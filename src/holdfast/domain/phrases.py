"""Times, counts and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.durations import format_duration
from holdfast.domain.task.task import Task

_UNIT_SECONDS = (86_400, 3_600, 60, 1)


def span(seconds: float) -> str:
    """Format seconds by the two largest units: ``2d3h``, ``5m20s``, ``12s``, ``0.2s``."""
    if seconds < 1:
        return format_duration(round(max(0.0, seconds), 1))
    whole = round(seconds)
    largest = next(at for at, size in enumerate(_UNIT_SECONDS) if whole >= size)
    smallest = _UNIT_SECONDS[min(largest + 1, len(_UNIT_SECONDS) - 1)]
    return format_duration(whole // smallest * smallest)


def ago(seconds: float) -> str:
    return f"{span(seconds)} ago"


def format_names(names: Sequence[str], limit: int = 3) -> str:
    """Format names as ``a, b, c and 4 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def acts(task: Task) -> str:
    """Describe when a requested cancel or pause takes effect."""
    if task.last_completed + 2 < len(task.stages):
        return "it takes effect at the end of the stage"
    return "this is its last stage: it takes effect only if that fails"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
