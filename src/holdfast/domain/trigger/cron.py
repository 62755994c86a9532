"""The fire times of a cron expression in a time zone, daylight saving included.

A cron expression has five fields and is read as Debian's cron reads it: minute, hour, day of the
month, month, day of the week (0 and 7 are Sunday; names and ``L``, ``LW``, ``MON#2`` work too).
When one of the two day fields begins with ``*``, both must match a day; otherwise either may.

When the clocks of a zone are set forward, some times of that day do not exist (the gap). When they
are set back, some happen twice (the overlap). The form of a cron decides what it does then:

**Fixed times**: neither the minute nor the hour field begins with ``*``: ``30 2 * * *``,
``0,30 1-3 * * *``, ``0 0-23/2 * * *``. Each matching time of each matching day of the calendar
counts once. A time in the gap fires at the first moment after the gap; a time in the overlap fires
in the first pass only. Fire times that coincide are one. A day that a zone leaves out altogether is
a gap like any other (Debian's cron drops it, as it heeds only shifts below three hours).

**Real time**: the minute or the hour field begins with ``*``: ``*/15 * * * *``, ``0 */2 * * *``,
``*/15 2 * * *``. It fires whenever the local clock shows a matching time: never in the gap, and in
both passes of the overlap.

cronsim parses the expressions and matches the days. The walk is ours, because that of cronsim
departs from this policy for shifts at midnight or not of whole hours, and within the overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from holdfast.domain.errors import InvalidSchedule

_FIRST = 0.0
_LAST = 253_370_764_799.0  # 9998-12-31T23:59:59Z: the last day of any zone has a tomorrow
_EXPRESSION_LENGTH_MAX = 500
_SILENCE_DAYS_MAX = 50 * 366  # the rarest day, a 29 February on a given weekday, takes 40 years
_ONE_DAY = timedelta(days=1)
_NOT_THE_SAME_EVERYWHERE = {"localtime", "Factory"}  # each host has its own


class _Compiled(NamedTuple):
    """A parsed expression."""

    spec: CronSim
    minutes: tuple[int, ...]  # since midnight
    fixed: bool  # else by real time; see the module's docstring


def next_after(expression: str, tz: str, after: float) -> float | None:
    """Return the first fire time strictly later than ``after``; None: none within 50 years."""
    compiled, zone = _compile_cron(expression), _zone(tz)
    if not after < _LAST:
        return None
    after = max(after, _FIRST - 1)
    begin = _day_of(after, zone) - _ONE_DAY  # it may reach over midnight: see _blocks
    end = min(begin + timedelta(days=_SILENCE_DAYS_MAX), _day_of(_LAST, zone))
    for block in _blocks(compiled, zone, _days(compiled.spec, begin, end)):
        later = bisect_right(block, after)
        if later < len(block):
            return block[later]
    return None


def latest(expression: str, tz: str, first: float, upto: float, limit: int) -> list[float]:
    """Return the newest ``limit`` fire times within [first, upto], ascending."""
    compiled, zone = _compile_cron(expression), _zone(tz)
    first, upto = max(first, _FIRST), min(upto, _LAST)
    if not first <= upto:
        return []
    # A day more on either side, for those that reach over midnight: see _blocks.
    begin, end = _day_of(first, zone) - _ONE_DAY, _day_of(upto, zone) + _ONE_DAY
    found: list[float] = []
    for block in _blocks(compiled, zone, _days(compiled.spec, begin, end, backwards=True)):
        found += reversed(block[bisect_left(block, first) : bisect_right(block, upto)])
        if len(found) >= limit:
            break
    return found[:limit][::-1]


def _blocks(compiled: _Compiled, zone: ZoneInfo, days: Iterable[date]) -> Iterator[list[float]]:
    """Return ascending fire times in blocks that follow each other, in the direction of ``days``.

    Mostly a block is a day. Days that meet are one: a time before midnight and one after it
    change places when the clock is set back over midnight, and coincide when a gap ends there.
    """
    held: list[float] = []
    for day in days:
        times = _fire_times(compiled, zone, day)
        if held and times and times[0] <= held[-1] and held[0] <= times[-1]:
            held = sorted({*held, *times})
        elif times:
            if held:
                yield held
            held = times
    if held:
        yield held


def _days(spec: CronSim, begin: date, end: date, *, backwards: bool = False) -> Iterator[date]:
    """Return the matching days within [begin, end]."""
    months = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month)
    for count in reversed(months) if backwards else months:
        year, month = count // 12, count % 12 + 1
        if month in spec.months:
            days = [date(year, month, n + 1) for n in range(monthrange(year, month)[1])]
            for day in reversed(days) if backwards else days:
                if begin <= day <= end and spec.match_day(day):
                    yield day


def _fire_times(compiled: _Compiled, zone: ZoneInfo, day: date) -> list[float]:
    """Return the fire times that belong to a day of the calendar, ascending."""
    midnight = datetime.combine(day, time(), zone)
    tomorrow = datetime.combine(day + _ONE_DAY, time(fold=1), zone)
    if midnight.utcoffset() == tomorrow.utcoffset():
        begin = midnight.timestamp()
        return [begin + 60 * minute for minute in compiled.minutes]
    local = (midnight + timedelta(minutes=minute) for minute in compiled.minutes)
    return sorted({at for wall in local for at in _moments(wall, fixed=compiled.fixed)})


def _moments(wall: datetime, *, fixed: bool) -> tuple[float, ...]:
    """Return the moments when the local clock shows this time, by the policy of this module."""
    before, since = wall.replace(fold=0).timestamp(), wall.replace(fold=1).timestamp()
    if before == since:
        return (before,)
    if before < since:  # the overlap
        return (before,) if fixed else (before, since)
    return (_end_of_gap(wall, int(since), int(before)),) if fixed else ()


def _end_of_gap(wall: datetime, low: int, high: int) -> float:
    """Return the first second within (low, high] at which the clock shows a time past ``wall``."""
    naive = wall.replace(tzinfo=None)

    def past(second: int) -> bool:
        return datetime.fromtimestamp(second, wall.tzinfo).replace(tzinfo=None) > naive

    return float(bisect_left(range(low, high + 1), True, key=past) + low)


def _day_of(moment: float, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(moment, zone).date()


@lru_cache(maxsize=1024)
def _compile_cron(expression: str) -> _Compiled:
    fields = expression.split()
    if len(expression) > _EXPRESSION_LENGTH_MAX:
        raise InvalidSchedule(f"{expression[:20]} …", f"over {_EXPRESSION_LENGTH_MAX} characters")
    if len(fields) != 5:
        wanted = "minute, hour, day of the month, month, day of the week"
        raise InvalidSchedule(expression, f"{len(fields)} fields; cron takes 5: {wanted}")
    if not expression.isascii():
        raise InvalidSchedule(expression, "a cron expression is plain ASCII")
    spec = _read(fields)
    minutes = sorted(hour * 60 + minute for hour in spec.hours for minute in spec.minutes)
    return _Compiled(
        spec, tuple(minutes), fixed=not any(field.startswith("*") for field in fields[:2])
    )


def _read(fields: list[str]) -> CronSim:
    try:
        return _spec(fields)
    except CronSimError as error:
        reason = f"not a cron expression: {error}".replace("Bad", "bad")
    try:
        _spec([*fields[:3], "*", fields[4]])
    except CronSimError:
        pass
    else:  # 30 February: the day exists, only not in that month; or the month is wrong itself
        if not reason.endswith("bad month"):
            reason = "it never fires: the month has no such day"
    raise InvalidSchedule(" ".join(fields), reason)


def _spec(fields: list[str]) -> CronSim:
    return CronSim(" ".join(fields), datetime.min.replace(tzinfo=UTC))  # read only, never walked


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    # The list first: by itself ZoneInfo takes any case on some systems, and "right/…" anywhere.
    if not isinstance(name, str) or name not in _zone_names():
        raise InvalidSchedule(name, "no such time zone; write one like Europe/Berlin")
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - _NOT_THE_SAME_EVERYWHERE)
