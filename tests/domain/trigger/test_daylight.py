"""Cron where the clocks are set: by example, and for whole years against brute force."""

from bisect import bisect_left, bisect_right
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidSchedule
from holdfast.domain.trigger.schedule import Cron, latest, next_after, upcoming
from tests.support.domain import cron_oracle as oracle
from tests.support.domain.cron_oracle import (
    ZONE_YEARS,
    Expression,
    Field,
    drawn_expressions,
    expression_on,
    expressions,
    number,
    year_of,
)

years = st.sampled_from(ZONE_YEARS)
MANY = 1_000_000

# Brute force takes a fifth of a second: a failure is shown as it was found, not shrunk for minutes.
whole_years = settings(
    deadline=None, max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def fires(expression: str, tz: str, after: str, count: int) -> list[str]:
    """Day, time and distance from UTC, as the wall shows them."""
    zone = ZoneInfo(tz)
    begin = datetime.fromisoformat(after).replace(tzinfo=zone).timestamp()
    found = upcoming(Cron(expression=expression, tz=tz), begin, count)
    return [f"{datetime.fromtimestamp(at, zone):%d %H:%M%z}" for at in found]


NEW_YORK, BERLIN, LORD_HOWE = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"
CAIRO, CASABLANCA = "Africa/Cairo", "Africa/Casablanca"
ST_JOHNS, APIA = "America/St_Johns", "Pacific/Apia"

SPRING = [
    # New York, 8 March 2026: 02:00 → 03:00
    ("30 2 * * *", NEW_YORK, "2026-03-07", "07 02:30-0500, 08 03:00-0400, 09 02:30-0400"),
    ("0,30 2,3 * * *", NEW_YORK, "2026-03-08", "08 03:00-0400, 08 03:30-0400, 09 02:00-0400"),
    ("0 3 * * *", NEW_YORK, "2026-03-08", "08 03:00-0400, 09 03:00-0400"),
    ("*/30 * * * *", NEW_YORK, "2026-03-08T01:00", "08 01:30-0500, 08 03:00-0400, 08 03:30-0400"),
    ("*/30 2 * * *", NEW_YORK, "2026-03-08", "09 02:00-0400, 09 02:30-0400"),
    ("30 * * * *", NEW_YORK, "2026-03-08T01:00", "08 01:30-0500, 08 03:30-0400"),
    ("0 */2 * * *", NEW_YORK, "2026-03-07T23:00", "08 00:00-0500, 08 04:00-0400"),
    ("0 0-23/2 * * *", NEW_YORK, "2026-03-08", "08 03:00-0400, 08 04:00-0400"),
    # Berlin, 29 March 2026: 02:00 → 03:00
    ("15 2 * * *", BERLIN, "2026-03-28", "28 02:15+0100, 29 03:00+0200, 30 02:15+0200"),
    # Lord Howe, 4 October 2026: 02:00 → 02:30
    ("15 2 * * *", LORD_HOWE, "2026-10-04", "04 02:30+1100, 05 02:15+1100"),
    ("45 2 * * *", LORD_HOWE, "2026-10-04", "04 02:45+1100, 05 02:45+1100"),
    ("*/15 2,3 * * *", LORD_HOWE, "2026-10-04", "04 02:30+1100, 04 02:45+1100, 04 03:00+1100"),
    # Cairo, 24 April 2026, a Friday: 00:00 → 01:00
    ("0 0 * * *", CAIRO, "2026-04-23T12:00", "24 01:00+0300, 25 00:00+0300"),
    ("*/30 0 * * FRI", CAIRO, "2026-04-20", "01 00:00+0300, 01 00:30+0300"),
    # Apia has no 30 December 2011
    ("0 12 * * *", APIA, "2011-12-29", "29 12:00-1000, 31 00:00+1400, 31 12:00+1400"),
    ("0 0 * * *", APIA, "2011-12-29", "31 00:00+1400, 01 00:00+1400"),
    ("0 12 30 12 *", APIA, "2011-12-01", "31 00:00+1400, 30 12:00+1400"),
    ("*/30 12 30 * *", APIA, "2011-12-01", "30 12:00+1400, 30 12:30+1400"),
]

AUTUMN = [
    # New York, 1 November 2026: 02:00 → 01:00
    ("30 1 * * *", NEW_YORK, "2026-10-31", "31 01:30-0400, 01 01:30-0400, 02 01:30-0500"),
    ("0 2 * * *", NEW_YORK, "2026-11-01", "01 02:00-0500, 02 02:00-0500"),
    ("30 0-3 * * *", NEW_YORK, "2026-11-01T01:00", "01 01:30-0400, 01 02:30-0500"),
    ("30 * * * *", NEW_YORK, "2026-11-01T01:00", "01 01:30-0400, 01 01:30-0500, 01 02:30-0500"),
    ("*/30 1 * * *", NEW_YORK, "2026-11-01T01:00", "01 01:30-0400, 01 01:00-0500, 01 01:30-0500"),
    # Berlin, 25 October 2026: 03:00 → 02:00
    ("15 2 * * *", BERLIN, "2026-10-25", "25 02:15+0200, 26 02:15+0100"),
    # Lord Howe, 5 April 2026: 02:00 → 01:30
    ("45 1 * * *", LORD_HOWE, "2026-04-05", "05 01:45+1100, 06 01:45+1030"),
    ("*/15 2 * * *", LORD_HOWE, "2026-04-05", "05 02:00+1030, 05 02:15+1030"),
    ("45 * * * *", LORD_HOWE, "2026-04-05T01:00", "05 01:45+1100, 05 01:45+1030"),
    # St John's, 7 November 2010: 00:01 → 23:01 the day before
    ("0 0 * * *", ST_JOHNS, "2010-11-06T12:00", "07 00:00-0230, 08 00:00-0330"),
    (
        "0,59 0,23 * * *",
        ST_JOHNS,
        "2010-11-06T23:30",
        "06 23:59-0230, 07 00:00-0230, 07 00:59-0330",
    ),
    (
        "*/59 0,23 * * *",
        ST_JOHNS,
        "2010-11-06T23:59",
        "07 00:00-0230, 06 23:59-0330, 07 00:00-0330",
    ),
    # Casablanca, 15 February 2026: 03:00 → 02:00, for Ramadan
    ("30 2 * * *", CASABLANCA, "2026-02-15", "15 02:30+0100, 16 02:30+0000"),
]

STEADY = [
    ("30 2 * * *", "Asia/Shanghai", "2026-03-28", "28 02:30+0800, 29 02:30+0800"),
    ("0 3 * * *", "UTC", "2026-03-28", "28 03:00+0000, 29 03:00+0000"),
]


@pytest.mark.parametrize(("expression", "tz", "after", "expected"), SPRING)
def test_the_clock_is_set_forward(expression: str, tz: str, after: str, expected: str) -> None:
    assert ", ".join(fires(expression, tz, after, expected.count(",") + 1)) == expected


@pytest.mark.parametrize(("expression", "tz", "after", "expected"), AUTUMN)
def test_the_clock_is_set_back(expression: str, tz: str, after: str, expected: str) -> None:
    assert ", ".join(fires(expression, tz, after, expected.count(",") + 1)) == expected


@pytest.mark.parametrize(("expression", "tz", "after", "expected"), STEADY)
def test_the_clock_is_left_alone(expression: str, tz: str, after: str, expected: str) -> None:
    assert ", ".join(fires(expression, tz, after, expected.count(",") + 1)) == expected


def test_a_fixed_time_does_not_fire_again_when_asked_within_the_second_pass() -> None:
    again = datetime(2026, 11, 1, 1, 15, fold=1, tzinfo=ZoneInfo("America/New_York")).timestamp()
    found = next_after(Cron(expression="30 1 * * *", tz="America/New_York"), again)
    assert found == again + 24 * 3600 + 15 * 60


def test_the_latest_include_a_fire_time_of_tomorrow_when_it_is_yesterday_again() -> None:
    again = datetime(2010, 11, 6, 23, 30, fold=1, tzinfo=ZoneInfo(ST_JOHNS)).timestamp()
    midnight = again - 30 * 60  # the first of two
    midnights = Cron(expression="0 0 * * *", tz=ST_JOHNS)
    assert latest(midnights, midnight - 3600, again, 9) == [midnight]


def test_the_latest_include_a_fire_time_of_a_day_that_was_left_out() -> None:
    after_it = datetime(2011, 12, 31, tzinfo=ZoneInfo(APIA)).timestamp()
    assert latest(Cron(expression="0 12 30 * *", tz=APIA), after_it, after_it, 9) == [after_it]


@pytest.mark.parametrize(("tz", "year"), ZONE_YEARS)
def test_the_years_hold_the_traps_that_they_are_here_for(tz: str, year: int) -> None:
    steady = tz in ("UTC", "Asia/Shanghai")
    assert len(oracle.shifts_of(tz, year)) >= (0 if steady else 2)
    assert not (steady and oracle.shifts_of(tz, year))


@given(drawn_expressions())
@example(expression_on(day=number(30), month=number(2)))
@example(expression_on(day=number(31), month=Field("4,6", frozenset({4, 6}))))
@example(expression_on(day=number(29), month=number(2)))
@example(expression_on(day=number(30), month=number(2), weekday=number(1)))  # or any Monday
def test_an_expression_is_refused_when_none_of_its_months_has_its_day(
    expression: Expression,
) -> None:
    cron, now = Cron(expression=expression.text, tz="UTC"), year_of(2026)[0]
    if expression.can_fire:
        assert next_after(cron, now) is not None
    else:
        with pytest.raises(InvalidSchedule, match="the month has no such day"):
            next_after(cron, now)


@whole_years
@given(expressions(), years)
def test_a_year_has_every_fire_time_once(expression: Expression, where: tuple[str, int]) -> None:
    tz, year = where
    cron = Cron(expression=expression.text, tz=tz)
    assert latest(cron, *year_of(year), MANY) == oracle.fire_times(expression, tz, year)


@whole_years
@given(expressions(), years)
def test_the_walk_meets_every_fire_time_in_order(
    expression: Expression, where: tuple[str, int]
) -> None:
    tz, year = where
    cron, (begin, end) = Cron(expression=expression.text, tz=tz), year_of(year)
    expected = oracle.fire_times(expression, tz, year)
    for first, last in [(begin, end)] if len(expected) < 500 else days_around_shifts(tz, year):
        due = expected[bisect_right(expected, first) : bisect_right(expected, last)]
        walked = upcoming(cron, first, len(due))
        assert walked == due
        assert all(one < two for one, two in pairwise(walked))


@whole_years
@given(expressions(), years, st.data())
def test_the_next_fire_time_is_found_from_any_moment(
    expression: Expression, where: tuple[str, int], data: st.DataObject
) -> None:
    cron, expected = (
        Cron(expression=expression.text, tz=where[0]),
        oracle.fire_times(expression, *where),
    )
    for after in data.draw(st.lists(moments(*where), min_size=5, max_size=20)):
        due = expected[bisect_right(expected, after) :]
        found = next_after(cron, after)
        assert found == due[0] if due else found is None or found > year_of(where[1])[1]


@whole_years
@given(expressions(), years, st.data())
def test_the_latest_are_the_end_of_the_walk(
    expression: Expression, where: tuple[str, int], data: st.DataObject
) -> None:
    cron, expected = (
        Cron(expression=expression.text, tz=where[0]),
        oracle.fire_times(expression, *where),
    )
    for _ in range(5):
        first, upto = sorted([data.draw(moments(*where)), data.draw(moments(*where))])
        limit = data.draw(st.integers(1, 200))
        within = expected[bisect_left(expected, first) : bisect_right(expected, upto)]
        assert latest(cron, first, upto, limit) == within[-limit:]


def moments(tz: str, year: int) -> st.SearchStrategy[float]:
    """Anywhere in the year, and within a day of a shift: to the second, or between two."""
    begin, end = year_of(year)
    anywhere = st.floats(begin, end) | st.integers(int(begin), int(end)).map(float)
    shifts = st.sampled_from(oracle.shifts_of(tz, year) or [begin])
    near = st.builds(
        lambda shift, minutes: shift + 60.0 * minutes, shifts, st.integers(-1440, 1440)
    )
    return anywhere | near.map(lambda at: min(max(at, begin), end))


def days_around_shifts(tz: str, year: int) -> list[tuple[float, float]]:
    begin, end = year_of(year)
    shifts = oracle.shifts_of(tz, year) or [begin + 86_400]
    return [(max(begin, at - 6 * 3600), min(end, at + 6 * 3600)) for at in shifts]
