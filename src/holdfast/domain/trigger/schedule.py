"""Schedules: once, at an interval, or by cron in a time zone. Times are arguments.

An interval counts real seconds and knows no zone. A cron follows the local time of its zone; the
head of `cron.py` says what it does when that time is set forward or back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil, floor
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from holdfast.domain.durations import format_duration, seconds
from holdfast.domain.errors import InvalidInput, InvalidSchedule
from holdfast.domain.trigger import cron as cron_times

_LAST = 253_402_300_799.0  # 9999-12-31T23:59:59Z
_SHORTEST_SECONDS = 1

Moment: TypeAlias = Annotated[float, Meta(ge=0, le=_LAST)]


class Once(Struct, frozen=True, kw_only=True, gc=False, tag="once", tag_field="kind"):
    at: Moment


class Every(Struct, frozen=True, kw_only=True, gc=False, tag="interval", tag_field="kind"):
    """A schedule that fires at ``start + n * seconds``, n = 0, 1, 2, …"""

    seconds: Annotated[float, Meta(ge=_SHORTEST_SECONDS)]
    start: Moment


class Cron(Struct, frozen=True, kw_only=True, gc=False, tag="cron", tag_field="kind"):
    expression: str
    tz: str = "UTC"


Schedule: TypeAlias = Once | Every | Cron


def once(when: datetime | float) -> Once:
    return Once(at=_moment(when))


def every(interval: float | str, *, start: datetime | float) -> Every:
    try:
        found = seconds(interval)
    except InvalidInput as error:
        raise InvalidSchedule(interval, f"an interval is a duration: {error}") from None
    if found < _SHORTEST_SECONDS:
        raise InvalidSchedule(interval, f"an interval is at least {_SHORTEST_SECONDS} s long")
    return Every(seconds=found, start=_moment(start))


def cron(expression: str, *, tz: str = "UTC", now: float) -> Cron:
    if not isinstance(expression, str):
        raise InvalidSchedule(expression, "a cron expression is a text of 5 fields")
    found = Cron(expression=" ".join(expression.split()), tz=tz)
    if next_after(found, _moment(now)) is None:
        raise InvalidSchedule(expression, "it never fires from now on")
    return found


def next_after(schedule: Schedule, after: float) -> float | None:
    """Return the first fire time strictly later than ``after``."""
    match schedule:
        case Once(at=at):
            return at if at > after else None
        case Every():
            return _next_interval(schedule, after)
        case Cron(expression=expression, tz=tz):
            return cron_times.next_after(expression, tz, after)


def upcoming(schedule: Schedule, after: float, count: int) -> list[float]:
    """Return the next ``count`` fire times, or fewer when the schedule ends before."""
    found: list[float] = []
    while len(found) < count and (later := next_after(schedule, after)) is not None:
        found.append(later)
        after = later
    return found


def latest(schedule: Schedule, first: float, upto: float, limit: int) -> list[float]:
    """Return the newest ``limit`` fire times within [first, upto], ascending.

    The work grows with ``limit``, not with the number of fire times before those.
    """
    if limit < 1 or not first <= upto:
        return []
    match schedule:
        case Once(at=at):
            return [at] if first <= at <= upto else []
        case Every():
            return _latest_intervals(schedule, first, upto, limit)
        case Cron(expression=expression, tz=tz):
            return cron_times.latest(expression, tz, first, upto, limit)


def format_schedule(schedule: Schedule) -> str:
    match schedule:
        case Once(at=at):
            return f"at {datetime.fromtimestamp(at, UTC).isoformat().removesuffix('+00:00')}Z"
        case Every(seconds=length):
            return f"every {length}s" if length % 1 else f"every {format_duration(length)}"
        case Cron(expression=expression, tz=tz):
            return f"{expression} ({tz})"


def _moment(when: datetime | float) -> float:
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise InvalidSchedule(when.isoformat(), "say which zone: the datetime has none")
        when = when.timestamp()
    if isinstance(when, bool) or not isinstance(when, int | float):
        raise InvalidSchedule(when, "a time is a datetime with a zone, or seconds since the epoch")
    if not 0 <= when <= _LAST:  # not a number is not within either
        raise InvalidSchedule(when, "a time lies between the years 1970 and 9999")
    return float(when)


def _next_interval(schedule: Every, after: float) -> float | None:
    if not after < _LAST:
        return None
    n = max(0, floor((after - schedule.start) / schedule.seconds)) if after > schedule.start else 0
    while (found := schedule.start + n * schedule.seconds) <= after:
        n += 1
    return found if found <= _LAST else None


def _latest_intervals(schedule: Every, first: float, upto: float, limit: int) -> list[float]:
    start, length = schedule.start, schedule.seconds
    # One more on either side: the division rounds, the comparison below does not.
    last = floor((min(upto, _LAST) - start) / length) + 1
    lowest = max(0, ceil((max(first, 0.0) - start) / length) - 1, last - limit - 1)
    times = (start + n * length for n in range(lowest, last + 1))
    return [at for at in times if first <= at <= upto and at <= _LAST][-limit:]
