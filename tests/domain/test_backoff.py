"""The pause before the next try."""

import pytest

from holdfast.domain.backoff import doubled_seconds, shorten, stretch


@pytest.mark.parametrize(
    ("doublings", "seconds"), [(0, 0.5), (1, 1.0), (3, 4.0), (7, 60.0), (10_000, 60.0)]
)
def test_a_pause_doubles_up_to_its_limit(doublings: int, seconds: float) -> None:
    assert doubled_seconds((0.5, 60.0), doublings) == seconds


def test_jitter_stretches_a_pause_by_up_to_its_share() -> None:
    assert stretch(10.0, 0.2, 0.0) == 10.0
    assert stretch(10.0, 0.2, 0.5) == 11.0


def test_a_shortened_pause_is_at_least_half_of_it() -> None:
    assert shorten(10.0, 0.0) == 5.0
    assert shorten(10.0, 0.5) == 7.5
