"""The memory of one process of how receivers have answered lately.

After some failures in a row a receiver gets a pause; then one delivery tests it. So a receiver that
hangs costs one attempt at a time, however many deliveries wait for it. The pause doubles each time;
attempts that were running when it began do not prolong it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.domain.backoff import doubled_seconds

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

FAILURES_MAX = 5  # in a row
REST_SECONDS = (15.0, 300.0)  # the first one, and the longest
SPREAD_SECONDS = 30.0  # the deliveries that waited come back over this time
KNOWN_MAX = 1_000


class Receiver:
    __slots__ = ("attempts", "failures", "rests", "rests_until")

    def __init__(self) -> None:
        self.failures = 0
        self.rests = 0  # in a row
        self.rests_until = 0.0
        self.attempts = 0  # that are under way


class Attempt:
    def __init__(self, rests: int) -> None:
        self.rests = rests  # of its receiver, when it began

    answered: bool | None = False  # None: the receiver was not asked, so nothing is known


class Receivers:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._known: OrderedDict[str, Receiver] = OrderedDict()

    def under_way(self, name: str) -> int:
        receiver = self._known.get(name)
        return receiver.attempts if receiver is not None else 0

    def wait_seconds(self, name: str) -> float:
        """Return how long a delivery has to wait; 0 lets it go, possibly as the one that tests the
        receiver.
        """
        receiver, now = self._known.get(name), self._app.clock.steady()
        if receiver is None or receiver.failures < FAILURES_MAX:
            return 0.0
        if now >= receiver.rests_until and not receiver.attempts:
            return 0.0
        left = max(REST_SECONDS[0], receiver.rests_until - now)
        return left + SPREAD_SECONDS * self._app.chance.random()

    @contextmanager
    def attempt(self, name: str) -> Iterator[Attempt]:
        """Count an attempt; it has failed unless the caller sets ``answered``."""
        receiver = self._known.setdefault(name, Receiver())
        attempt = Attempt(receiver.rests)
        self._known.move_to_end(name)
        receiver.attempts += 1
        try:
            yield attempt
        finally:
            receiver.attempts -= 1
            self._note(receiver, attempt)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def _note(self, receiver: Receiver, attempt: Attempt) -> None:
        if attempt.answered is None:
            return
        if attempt.answered:
            receiver.failures, receiver.rests, receiver.rests_until = 0, 0, 0.0
            return
        if attempt.rests != receiver.rests:
            return  # it began before the pause, and says nothing new
        receiver.failures += 1
        if receiver.failures >= FAILURES_MAX:
            rest = doubled_seconds(REST_SECONDS, receiver.rests)
            receiver.rests += 1
            receiver.rests_until = self._app.clock.steady() + rest
