"""Times, names and counts in words."""

import pytest

from holdfast.domain.phrases import count, format_names, span


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3, "0s"), (0.04, "0s"), (0.25, "0.2s"), (12.4, "12s"), (90, "1m30s"), (93_784, "1d2h")],
)
def test_times_are_said_in_two_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_long_rows_of_names_are_cut_short() -> None:
    assert format_names(["a", "b"]) == "a, b"
    assert format_names(list("abcde")) == "a, b, c and 2 more"
    assert (count(1, "task"), count(2, "task")) == ("1 task", "2 tasks")
