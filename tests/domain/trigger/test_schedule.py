"""Schedules: what is refused and why, and the fire times that need no zone."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidInput, InvalidSchedule
from holdfast.domain.trigger import cron as cron_times
from holdfast.domain.trigger.schedule import (
    Cron,
    Every,
    Once,
    Schedule,
    cron,
    every,
    format_schedule,
    latest,
    next_after,
    once,
    upcoming,
)

NOW = datetime(2026, 11, 15, 3, tzinfo=UTC).timestamp()
YEAR_9999 = 253_402_300_799.0
UNKNOWN_ZONES = """
    Mars/Olympus europe/berlin EUROPE/BERLIN utc Europe Europe/ ../etc/passwd /etc/localtime
    Europe/../Europe/Berlin posix/Europe/Berlin right/Europe/Berlin localtime Factory posixrules
    zone.tab tzdata.zi
"""
FIELDS = "* */7 5 1-3 L LW 1L MON#2 5L#1 1/9 L/2 1-5/2 JAN SAT LW,3 7,L".split()
moments = st.floats(0, YEAR_9999)

schedules = st.one_of(
    st.builds(Once, at=moments),
    st.builds(Every, seconds=st.floats(1, 1e9), start=moments),
    st.builds(
        Cron,
        expression=st.sampled_from(["* * * * *", "0 3 * * MON", "15 2 L * *"]),
        tz=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Shanghai"]),
    ),
)


def test_a_refusal_is_an_invalid_input_with_a_code_of_its_own() -> None:
    with pytest.raises(InvalidInput) as caught:
        cron("often", now=NOW)
    assert isinstance(caught.value, InvalidSchedule)
    assert (caught.value.code, caught.value.given) == ("invalid-schedule", "often")


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (datetime(2026, 11, 15, 3), "say which zone"),  # noqa: DTZ001
        (float("nan"), "1970 and 9999"),
        (float("inf"), "1970 and 9999"),
        (float("-inf"), "1970 and 9999"),
        (-1, "1970 and 9999"),
        (10**400, "1970 and 9999"),
        (YEAR_9999 + 1, "1970 and 9999"),
        (datetime(1969, 12, 31, tzinfo=UTC), "1970 and 9999"),
        (True, "a time is"),
        ("tomorrow", "a time is"),
        (None, "a time is"),
        (date(2026, 11, 15), "a time is"),
    ],
)
def test_what_is_no_time_is_refused_with_the_reason(when: float, reason: str) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        once(when)
    with pytest.raises(InvalidSchedule, match=reason):
        every("1h", start=when)


@pytest.mark.parametrize("interval", [0, "0s", 0.5, "0.999s"])
def test_an_interval_below_a_second_is_refused(interval: float | str) -> None:
    with pytest.raises(InvalidSchedule, match="at least 1 s"):
        every(interval, start=NOW)


@pytest.mark.parametrize(
    "interval", [-5, "-5s", "soon", "", float("nan"), float("inf"), None, 1e12]
)
def test_what_is_no_duration_is_refused(interval: float | str) -> None:
    with pytest.raises(InvalidSchedule, match="duration"):
        every(interval, start=NOW)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "0 fields; cron takes 5"),
        ("@daily", "1 fields; cron takes 5"),
        ("0 3 * *", "4 fields; cron takes 5"),
        ("0 0 3 * * *", "6 fields; cron takes 5"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * 32 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * 30 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("-1 * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6 *", "never fires"),
        ("0 0 31 2 */2", "never fires"),
        ("٣ * * * *", "ASCII"),
        ("0 0 * * ſun", "ASCII"),
        ("0" * 600 + " * * * *", "over 500 characters"),
        (None, "5 fields"),
        (5, "5 fields"),
    ],
)
def test_what_is_no_cron_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        cron(expression, now=NOW)


@pytest.mark.parametrize(
    "tz",
    [*UNKNOWN_ZONES.split(), "", " UTC", "UTC\0", None, 1, ZoneInfo("UTC")],
)
def test_a_zone_is_one_of_the_known_names_exactly(tz: str) -> None:
    with pytest.raises(InvalidSchedule, match="no such time zone"):
        cron("0 3 * * *", tz=tz, now=NOW)


def test_a_stored_cron_is_checked_as_well_as_a_new_one() -> None:
    with pytest.raises(InvalidSchedule, match="no such time zone"):
        next_after(Cron(expression="0 3 * * *", tz="../UTC"), NOW)
    with pytest.raises(InvalidSchedule, match="not a cron"):
        latest(Cron(expression="0 99 * * *"), NOW, NOW + 1, 1)


@pytest.mark.parametrize(
    "stored",
    [
        b'{"kind":"interval","seconds":0,"start":0}',
        b'{"kind":"interval","seconds":60,"start":-1}',
        b'{"kind":"once","at":1e300}',
        b'{"kind":"often"}',
    ],
)
def test_a_stored_schedule_out_of_bounds_is_not_read(stored: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(stored, type=Schedule)


def test_a_cron_that_has_no_fire_time_left_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="never fires from now on"):
        cron("* * * * *", now=YEAR_9999)


@given(st.text("0123456789*/-,#LW SUNMOJAFEB?@", max_size=30))
def test_any_text_is_a_cron_or_refused(text: str) -> None:
    try:
        found = cron(text, now=NOW)
    except InvalidSchedule:
        return
    later = next_after(found, NOW)
    assert later is not None
    assert later > NOW


@given(st.lists(st.sampled_from(FIELDS), min_size=5, max_size=5))
def test_any_fields_are_a_cron_or_refused(fields: list[str]) -> None:
    try:
        found = cron(" ".join(fields), now=NOW)
    except InvalidSchedule:
        return
    assert all(one < two for one, two in pairwise([NOW, *upcoming(found, NOW, 3)]))


def test_an_expression_is_kept_as_written_with_single_spaces() -> None:
    assert cron("  0  3 *\t* mon ", now=NOW) == Cron(expression="0 3 * * mon", tz="UTC")


@pytest.mark.parametrize(
    ("expression", "fires"),
    [
        ("0 3 * * *", "2026-11-16T03:00 2026-11-17T03:00"),
        ("*/20 * * * *", "2026-11-15T03:20 2026-11-15T03:40 2026-11-15T04:00"),
        ("0 0 * * 7", "2026-11-22T00:00 2026-11-29T00:00"),
        ("0 0 * * MON-FRI", "2026-11-16T00:00 2026-11-17T00:00"),
        ("0 0 1 * MON", "2026-11-16T00:00 2026-11-23T00:00 2026-11-30T00:00 2026-12-01T00:00"),
        ("0 0 */10 * MON", "2026-12-21T00:00 2027-01-11T00:00"),
        ("0 0 L * *", "2026-11-30T00:00 2026-12-31T00:00"),
        ("0 0 * * MON#1", "2026-12-07T00:00 2027-01-04T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00 2032-02-29T00:00"),
        ("0 0 29 2 */7", "2032-02-29T00:00 2060-02-29T00:00 2088-02-29T00:00 2128-02-29T00:00"),
    ],
)
def test_a_cron_fires_on_the_days_that_match(expression: str, fires: str) -> None:
    expected = [datetime.fromisoformat(f"{one}Z").timestamp() for one in fires.split()]
    assert upcoming(cron(expression, now=NOW), NOW, len(expected)) == expected


def test_once_is_once() -> None:
    schedule = once(datetime(2026, 11, 15, 11, tzinfo=timezone(timedelta(hours=8))))
    assert schedule == once(NOW) == Once(at=NOW)
    assert next_after(schedule, NOW - 0.001) == NOW
    assert next_after(schedule, NOW) is None
    assert upcoming(schedule, 0, 5) == [NOW]
    assert latest(schedule, NOW, NOW, 5) == [NOW]
    assert latest(schedule, NOW + 1, NOW + 2, 5) == latest(schedule, 0, NOW - 1, 5) == []


def test_an_interval_begins_with_its_start() -> None:
    schedule = every("15m", start=NOW)
    assert upcoming(schedule, 0, 3) == [NOW, NOW + 900, NOW + 1800]
    assert upcoming(schedule, NOW, 2) == [NOW + 900, NOW + 1800]
    assert latest(schedule, 0, NOW - 1, 5) == []
    assert latest(schedule, 0, NOW + 1000, 5) == [NOW, NOW + 900]


@given(st.floats(1, 1e7), st.floats(0, 4e9), st.floats(0, 4e9))
def test_the_next_interval_is_the_first_one_later(
    length: float, start: float, after: float
) -> None:
    schedule = every(length, start=start)
    found = next_after(schedule, after)
    assert found is not None
    assert found > after
    n = round((found - start) / length)
    assert found == start + n * length
    assert n == 0 or start + (n - 1) * length <= after


@given(st.floats(1, 1e5), st.floats(0, 4e9), st.integers(1, 30), st.floats(0, 1e6))
def test_the_latest_intervals_are_the_end_of_the_walk(
    length: float, start: float, limit: int, before: float
) -> None:
    schedule = every(length, start=start)
    walked = upcoming(schedule, start - before, 50)
    for first in (start - before, walked[7], walked[7] + 0.25):
        within = [at for at in walked if at >= first]
        assert latest(schedule, first, walked[-1], limit) == within[-limit:]


@pytest.mark.parametrize(
    "schedule", [Once(at=NOW), Every(seconds=60, start=0), Cron(expression="* * * * *")]
)
def test_the_ends_of_time_are_no_trouble(schedule: Schedule) -> None:
    endless, nothing = float("inf"), float("nan")
    assert next_after(schedule, -endless) == (NOW if isinstance(schedule, Once) else 0)
    assert next_after(schedule, endless) is next_after(schedule, nothing) is None
    assert next_after(schedule, YEAR_9999) is None
    assert latest(schedule, -endless, 60, 1) == ([] if isinstance(schedule, Once) else [60])
    late = latest(schedule, YEAR_9999 - 400 * 86_400, endless, 1)
    assert len(late) == (0 if isinstance(schedule, Once) else 1)
    assert latest(schedule, endless, -endless, 9) == latest(schedule, nothing, NOW, 9) == []
    assert latest(schedule, 0, NOW, 0) == latest(schedule, 0, NOW, -1) == []
    assert upcoming(schedule, 0, 0) == upcoming(schedule, 0, -1) == []


def test_the_latest_after_a_long_outage_costs_no_walk_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[date] = []
    real = cron_times._fire_times

    def counted(compiled: cron_times._Compiled, zone: ZoneInfo, day: date) -> list[float]:
        looked_at.append(day)
        assert len(looked_at) < 10
        return real(compiled, zone, day)

    monkeypatch.setattr(cron_times, "_fire_times", counted)
    found = latest(Cron(expression="* * * * *", tz="Europe/Berlin"), 0, NOW, 100)
    assert found == [NOW - 60 * n for n in range(99, -1, -1)]


def test_the_latest_intervals_after_a_long_outage_cost_no_walk_through_it() -> None:
    assert latest(every(1, start=0), 0, YEAR_9999, 2) == [YEAR_9999 - 1, YEAR_9999]


@given(schedules)
def test_a_schedule_comes_back_from_json(schedule: Schedule) -> None:
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_the_json_says_what_kind_it_is() -> None:
    stored = msgspec.json.encode(cron("0 3 * * *", tz="Asia/Shanghai", now=NOW))
    assert stored == b'{"kind":"cron","expression":"0 3 * * *","tz":"Asia/Shanghai"}'


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Once(at=NOW), "at 2026-11-15T03:00:00Z"),
        (Once(at=NOW + 0.5), "at 2026-11-15T03:00:00.500000Z"),
        (Every(seconds=900, start=NOW), "every 15m"),
        (Every(seconds=1.5, start=NOW), "every 1.5s"),
        (Cron(expression="0 3 * * *", tz="Asia/Shanghai"), "0 3 * * * (Asia/Shanghai)"),
    ],
)
def test_a_schedule_is_described(schedule: Schedule, text: str) -> None:
    assert format_schedule(schedule) == text
