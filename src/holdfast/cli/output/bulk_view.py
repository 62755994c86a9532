"""Bulk actions are formatted here for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, print_fields, since
from holdfast.cli.output.progress import Estimate
from holdfast.domain.durations import format_duration
from holdfast.domain.phrases import count, span
from holdfast.domain.plain import plain_line
from holdfast.domain.plan.plan import FailureRate
from holdfast.domain.task.state import Status
from holdfast.engine.bulk.order import DONE, HALTED, STUCK, BulkInfo
from holdfast.insight.views.tasks import at
from holdfast.ports import Filter

WRONG = frozenset({HALTED, STUCK})


def phase_text(phase: str) -> Text:
    style = "bold red" if phase in WRONG else "green" if phase == DONE else "cyan"
    return Text(phase, style=style)


def row(info: BulkInfo, now: float) -> Row:
    return {
        "ID": info.id,
        "COMMAND": info.command,
        "PHASE": phase_text(info.phase),
        "DONE": str(info.counts.done),
        "LEFT": _format_left(info),
        "AGO": span(now - info.created_at),
        "REFUSED": str(sum(info.counts.refused.values())),
        Status.FAILED: str(info.counts.failed),
        "REASON": redaction.text(info.reason or "-"),
        "BY": info.by.actor,
    }


def _format_left(info: BulkInfo) -> str:
    return f"{info.left}+" if info.more and not info.over else str(info.left)


def print_bulk(info: BulkInfo, now: float) -> None:
    more = " (at least)" if info.more else ""
    print_fields(
        {
            "bulk": info.id,
            "command": info.command,
            "phase": phase_text(info.phase),
            "reason": redaction.text_or_none(info.reason),
            "error": redaction.text(info.failure.summary) if info.failure else None,
            "filter": ", ".join(filter_words(info.where)),
            "matching": f"{info.matching}{more} when it began",
            "counts": ", ".join(count_words(info)),
            "rate": f"{info.rate:g} a second",
            "canary": _canary(info),
            "limit": count(info.limit, "task") if info.limit else None,
            "by": info.by.actor + (f" on {info.by.origin}" if info.by.origin else ""),
            "why": redaction.text_or_none(info.by.reason or None),
            "started": since(info.created_at, now),
            "updated": since(info.updated_at, now),
        }
    )


def _canary(info: BulkInfo) -> str | None:
    if info.canary is None:
        return None
    rule = info.canary.stop_at
    share = f"{rule.rate * 100:.3g}%" if isinstance(rule, FailureRate) else str(rule.count)
    steps = ", ".join(map(str, info.canary.steps))
    waits = format_duration(info.canary.wait_seconds)
    return f"{steps}, then the rest; halts above {share}; waits {waits} for each step"


def count_words(info: BulkInfo) -> Iterator[str]:
    counts = info.counts
    yield f"{counts.done} done"
    yield f"{_format_left(info)} left"
    for code, number in sorted(counts.refused.items()):
        yield f"{number} refused ({code})"
    others = {"changed": counts.changed, "gone": counts.gone}
    if info.canary is not None:
        others |= {"ended well": counts.ended, "not settled": info.unknown}
        yield f"{counts.failed} failed again"
    yield from (f"{number} {name}" for name, number in others.items() if number)


def filter_words(where: Filter) -> Iterator[str]:
    for name in ("type", "tenant", "queue", "plan", "error"):
        if value := getattr(where, name):
            yield f"{name} {value}"
    yield f"status {'|'.join(where.statuses)}"
    if where.updated_before is not None:
        yield f"unchanged since {at(where.updated_before)}"
    if where.updated_after is not None:
        yield f"changed after {at(where.updated_after)}"


def line(info: BulkInfo) -> str:
    """Return the line that `watch` prints for each change when the output is not a terminal."""
    why = f": {redaction.text(info.reason)}" if info.reason else ""
    return f"{info.command} {info.phase}  {', '.join(count_words(info))}{why}"


def live_line(info: BulkInfo, estimate: Estimate, now: float) -> Text:
    """Return the line that `watch` rewrites on a terminal, with the share that is done and how long
    the rest takes at this rate.
    """
    words = [line(info)]
    done = info.matching - info.left
    if not info.over and info.matching > 0 and done >= 0:
        left = estimate.time_left(now, done, info.left)
        words.append(", ".join(filter(None, (f"{100 * done // info.matching} %", left))))
    return Text(plain_line("  ".join(words)))
