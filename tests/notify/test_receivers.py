"""How long a receiver is left alone after failures, and who may take how many places."""

from contextlib import ExitStack

from holdfast import Holdfast
from holdfast.notify.receivers import FAILURES_MAX, REST_SECONDS, SPREAD_SECONDS, Receivers
from holdfast.notify.slots import Shares
from holdfast.testing.clock import ManualClock

FIRST, LONGEST = REST_SECONDS


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.known = Receivers(Holdfast("memory://", clock=self.clock))

    def try_at_once(self, count: int, *, answered: bool) -> None:
        """So many attempts, all under way before the first of them ends."""
        with ExitStack() as attempts:
            for _ in range(count):
                attempts.enter_context(self.known.attempt("host")).answered = answered

    def rest_seconds(self) -> float:
        receiver = self.known._known["host"]
        return max(0.0, receiver.rests_until - self.clock.steady())

    def go_on(self) -> None:
        """To the end of the pause, when one goes ahead."""
        self.clock.advance(self.rest_seconds())
        assert self.known.wait_seconds("host") == 0.0


def test_failures_at_the_same_time_make_one_pause() -> None:
    watched = Watched()
    watched.try_at_once(10 * FAILURES_MAX, answered=False)
    assert watched.rest_seconds() == FIRST
    assert watched.known.wait_seconds("host") <= FIRST + SPREAD_SECONDS


def test_the_pause_doubles_once_for_each_pause() -> None:
    watched, found = Watched(), list[float]()
    watched.try_at_once(FAILURES_MAX, answered=False)
    for _ in range(7):
        found.append(watched.rest_seconds())
        watched.go_on()
        watched.try_at_once(1, answered=False)
    assert found == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 16 * FIRST, LONGEST, LONGEST]


def test_an_answer_ends_the_pause_and_the_next_one_is_short_again() -> None:
    watched = Watched()
    watched.try_at_once(FAILURES_MAX, answered=False)
    watched.go_on()
    watched.try_at_once(1, answered=False)
    watched.go_on()
    watched.try_at_once(1, answered=True)
    watched.try_at_once(FAILURES_MAX - 1, answered=False)
    assert watched.rest_seconds() == 0.0
    watched.try_at_once(1, answered=False)
    assert watched.rest_seconds() == FIRST


def test_an_attempt_from_before_the_pause_does_not_make_it_longer() -> None:
    watched = Watched()
    with watched.known.attempt("host"):
        watched.try_at_once(FAILURES_MAX, answered=False)
        watched.clock.advance(FIRST / 2)
    assert watched.rest_seconds() == FIRST / 2


# -- shares


def taken_by(shares: Shares, name: str, until_full: ExitStack) -> int:
    count = 0
    while shares.has_room(name):
        until_full.enter_context(shares.place(name))
        count += 1
    return count


def test_each_sharer_takes_half_of_what_the_others_leave() -> None:
    shares = Shares(24)
    with ExitStack() as until_full:
        assert [taken_by(shares, name, until_full) for name in "abcde"] == [12, 6, 3, 2, 1]
        assert not shares.has_room("f")
    assert shares.has_room("a")
    assert not shares._taken


def test_a_place_counts_for_all_its_sharers() -> None:
    shares = Shares(4)
    with shares.place("tenant", "host"), shares.place("tenant", "other"):
        assert not shares.has_room("tenant")
        assert shares.has_room("host", "other")
        assert not shares.has_room("host", "tenant")
