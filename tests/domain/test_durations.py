"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.durations import format_duration, seconds
from holdfast.domain.errors import InvalidInput

A_CENTURY = 100 * 365 * 86_400


@given(st.integers(0, A_CENTURY))
def test_whole_seconds_come_back_as_they_were_written(value: int) -> None:
    assert seconds(format_duration(value)) == value


@given(st.floats(0, A_CENTURY))
def test_any_duration_comes_back_to_the_nearest_second_or_millisecond(value: float) -> None:
    tolerance = 0.5 if value >= 1 else 0.001
    assert abs(seconds(format_duration(value)) - value) <= tolerance


@given(
    st.integers(0, 999),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_the_parts_add_up(days: int, hours: int, minutes: int, rest: int) -> None:
    text = f"{days}d{hours}h{minutes}m{rest}s"
    assert seconds(text) == days * 86_400 + hours * 3_600 + minutes * 60 + rest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7d", 604_800),
        ("2h30m", 9_000),
        ("30s", 30),
        ("0.25s", 0.25),
        ("1m0.5s", 60.5),
        ("90", 90),
        ("1.5", 1.5),
        (" 5m ", 300),
        (0, 0),
        (12, 12),
        (0.1, 0.1),
    ],
)
def test_a_duration_is_read(text: str | float, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    "wrong",
    ["", " ", "-5s", "5 m", "m", "1m1h", "1.5h", "soon", "nan", "inf", "-1", -1, 1e10, "101y"],
)
def test_what_is_no_duration_is_refused_and_named(wrong: str | float) -> None:
    with pytest.raises(InvalidInput, match="duration"):
        seconds(wrong)


@pytest.mark.parametrize("wrong", [True, None, [1], float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidInput):
        seconds(wrong)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9_000, "2h30m"),
        (604_800, "7d"),
        (30, "30s"),
        (0.25, "0.25s"),
        (0, "0s"),
        (90_061, "1d1h1m1s"),
    ],
)
def test_a_duration_is_written_as_people_do(value: float, text: str) -> None:
    assert format_duration(value) == text
