"""Waves as people write them."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidPlan
from holdfast.domain.plan import waves


@pytest.mark.parametrize(
    ("written", "total", "ends"),
    [
        (("100%",), 7, (7,)),
        (("1", "5%", "25%", "100%"), 400, (1, 20, 100, 400)),
        ((1, 20, 400), 400, (1, 20, 400)),
        ((" 1 ", "50% ", "100%"), 10, (1, 5, 10)),
        (("0.5%", "100%"), 1000, (5, 1000)),
        (("10", "1000"), 40, (10, 40)),  # more than there are: all of them
    ],
)
def test_waves_say_how_far_the_work_has_gone(
    written: Any, total: int, ends: tuple[int, ...]
) -> None:
    assert waves.ends(written, total) == ends


@pytest.mark.parametrize(
    ("share", "total", "end"),
    [("5%", 10, 1), ("33%", 10, 4), ("10%", 10, 1), ("7%", 100, 7), ("29%", 100, 29), ("1%", 1, 1)],
)
def test_a_share_is_rounded_up_to_whole_tasks(share: str, total: int, end: int) -> None:
    assert waves.ends((share, "100%"), total)[0] == end


def test_a_wave_that_lets_none_go_in_a_small_plan_is_left_out() -> None:
    assert waves.ends(("1", "5%", "25%", "100%"), 3) == (1, 3)
    assert waves.ends(("1", "5%", "25%", "100%"), 1) == (1,)


@pytest.mark.parametrize(
    "written",
    [
        ("5%", "5%", "100%"),
        ("25%", "5%", "100%"),
        ("5", "5", "100%"),
        ("50", "5%", "100%"),
        (10, 5, 100),
    ],
)
def test_waves_that_do_not_rise_are_refused(written: Any) -> None:
    with pytest.raises(InvalidPlan, match="rise"):
        waves.ends(written, 100)


@pytest.mark.parametrize("written", [("5%", "50%"), ("1", "99")])
def test_a_last_wave_that_leaves_tasks_out_is_refused(written: Any) -> None:
    with pytest.raises(InvalidPlan, match="leaves"):
        waves.ends(written, 100)


@pytest.mark.parametrize(
    "written",
    [
        (),
        "100%",
        None,
        5,
        {"1", "100%"},
        ["1"] * 101,
        ("one", "100%"),
        ("0", "100%"),
        ("0%", "100%"),
        ("101%",),
        ("-5%", "100%"),
        (-1, "100%"),
        (True, "100%"),
        (0.5, "100%"),
        ("5%%", "100%"),
        ("", "100%"),
        ("1e3",),
        ("nan%",),
        (None,),
    ],
)
def test_what_is_no_list_of_waves_is_refused_with_the_reason(written: Any) -> None:
    with pytest.raises(InvalidPlan) as caught:
        waves.ends(written, 100)
    assert str(caught.value)


shares = st.floats(0.001, 100).map(lambda share: f"{share:.3f}%").filter(lambda s: s != "0.000%")
one = st.one_of(st.integers(1, 30), st.integers(1, 30).map(str), shares)


@given(st.lists(one, max_size=6), st.integers(1, 50))
def test_waves_that_are_accepted_rise_end_with_all_and_let_some_go(
    written: list[str | int], total: int
) -> None:
    try:
        ends = waves.ends((*written, "100%"), total)
    except InvalidPlan:
        return
    assert ends[-1] == total
    assert all(a < b for a, b in zip((0, *ends), ends, strict=False)), "each lets at least one go"


@given(st.lists(st.integers(1, 99), min_size=1, max_size=8, unique=True), st.integers(1, 10_000))
def test_shares_that_rise_are_always_accepted(rising: list[int], total: int) -> None:
    written = [f"{share}%" for share in sorted(rising)]
    assert waves.ends((*written, "100%"), total)[-1] == total


@given(st.text(max_size=6), st.integers(1, 100))
def test_any_text_is_a_wave_or_is_refused(text: str, total: int) -> None:
    with suppress(InvalidPlan):
        assert waves.ends((text, "100%"), total)[-1] == total
