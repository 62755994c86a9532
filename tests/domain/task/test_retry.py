"""When a failed stage is tried again, and when not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import DeclarationError, InvalidInput, Permanent, RetryAfter
from holdfast.domain.task.retry import Retry

durations = st.floats(0, 1e6, allow_nan=False)
chances = st.floats(0, 1, exclude_max=True)


@given(
    backoff=st.lists(durations, min_size=1, max_size=5),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 20),
    chance=chances,
)
def test_a_wait_is_its_back_off_stretched_by_at_most_the_jitter(
    backoff: list[float], jitter: float, failures: int, chance: float
) -> None:
    policy = Retry(backoff=tuple(backoff), jitter=jitter)
    base = backoff[min(failures, len(backoff)) - 1]
    delay = policy.delay_seconds(failures, chance)
    assert base <= delay <= base * (1 + jitter) * (1 + 1e-12)


@given(failures=st.integers(1, 50), chance=chances)
def test_the_default_waits_one_five_then_fifteen_minutes(failures: int, chance: float) -> None:
    base = {1: 60, 2: 300}.get(failures, 900)
    assert base <= Retry().delay_seconds(failures, chance) <= base * 1.1


def test_without_jitter_the_wait_is_exact() -> None:
    policy = Retry(backoff=("1s", "2m", 3), jitter=0)
    assert [policy.delay_seconds(n, 0.99) for n in (1, 2, 3, 4, 9)] == [1, 120, 3, 3, 3]


def test_the_default_gives_up_after_three_failures() -> None:
    assert Retry().max == 3


def test_any_exception_is_tried_again_by_default() -> None:
    assert not Retry().gives_up(ValueError())
    assert not Retry().gives_up(TimeoutError())


def test_permanent_is_never_tried_again() -> None:
    assert Retry().gives_up(Permanent("no"))
    assert Retry(retry_on=(Permanent,)).gives_up(Permanent("no"))


def test_retry_after_is_always_tried_again() -> None:
    assert not Retry(give_up_on=(RetryAfter,)).gives_up(RetryAfter("1m"))
    assert not Retry(retry_on=(ValueError,)).gives_up(RetryAfter("1m"))


def test_give_up_on_names_what_is_not_tried_again() -> None:
    policy = Retry(give_up_on=(LookupError,))
    assert policy.gives_up(KeyError())
    assert not policy.gives_up(ValueError())


def test_retry_on_names_all_that_is_tried_again() -> None:
    policy = Retry(retry_on=(OSError,))
    assert not policy.gives_up(ConnectionError())
    assert policy.gives_up(ValueError())


def test_one_exception_type_alone_is_a_tuple_of_one() -> None:
    policy = Retry(give_up_on=ValueError, retry_on=OSError)
    assert (policy.give_up_on, policy.retry_on) == ((ValueError,), (OSError,))
    assert policy.gives_up(ValueError())
    assert not policy.gives_up(OSError())


def test_give_up_on_wins_over_retry_on() -> None:
    policy = Retry(retry_on=(OSError,), give_up_on=(ConnectionError,))
    assert policy.gives_up(ConnectionResetError())
    assert not policy.gives_up(FileNotFoundError())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max": 0},
        {"max": -1},
        {"max": True},
        {"max": 2.5},
        {"backoff": ()},
        {"backoff": "1m"},
        {"backoff": 60},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
        {"give_up_on": 5},
        {"give_up_on": (ValueError, "KeyError")},
        {"give_up_on": [ValueError]},
        {"retry_on": int},
        {"retry_on": (ValueError(),)},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        Retry(**wrong)


def test_a_back_off_that_is_no_duration_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput):
        Retry(backoff=("soon",))


def test_retry_after_reads_durations() -> None:
    assert RetryAfter("5m").delay_seconds == 300
    assert RetryAfter(2.5).delay_seconds == 2.5
    assert "5m" in str(RetryAfter("5m"))
    assert str(RetryAfter("5m", "rate limit")) == "rate limit"
