"""What a worker may ask for: work, as far as it has slots, and deliveries, which have room of their
own. So a receiver that hangs takes no slot from the work, and long work keeps no delivery waiting.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain import notification
from holdfast.ports import Clock

CLAIM_LIMIT = 64  # a larger batch is hardly quicker
DELIVERIES = 32  # at a time; one claim may go beyond it
ASIDE_SECONDS = 1.0  # between two looks for deliveries alone


class ClaimRequest(NamedTuple):
    queues: tuple[str, ...]
    limit: int
    for_work: bool  # False: deliveries alone
    for_all: bool  # what is not there now is nowhere


class Lanes:
    def __init__(self, queues: tuple[str, ...], slots: int, clock: Clock) -> None:
        self._work = tuple(queue for queue in queues if queue != notification.QUEUE)
        self._delivers = notification.QUEUE in queues
        self._queues = self._work
        self._slots, self._clock = slots, clock
        self._working = self._delivering = 0
        # Claims of half the slots: while one half runs and commits, the next is on its way.
        self._portion = self._appetite = min(CLAIM_LIMIT, (slots + 1) // 2)
        self._unseen_since: float | None = None  # since when no claim has got to the deliveries
        self._was_aside = False  # the last claim was for deliveries alone
        self._more_aside = False  # the last such claim was filled

    def begin(self, queue: str) -> None:
        if queue == notification.QUEUE:
            self._delivering += 1
        else:
            self._working += 1

    def end(self, queue: str) -> None:
        if queue == notification.QUEUE:
            self._delivering -= 1
        else:
            self._working -= 1

    @property
    def has_room_aside(self) -> bool:
        return self._delivers and self._delivering < DELIVERIES

    def ask(self) -> ClaimRequest | None:
        """None: there is no room for anything that it would be time to look for."""
        free, aside = self._slots - self._working, self.has_room_aside
        if aside and (self._unseen_for() >= ASIDE_SECONDS or self._is_in_turn(free)):
            limit = min(DELIVERIES - self._delivering, CLAIM_LIMIT)
            return ClaimRequest((notification.QUEUE,), limit, for_work=False, for_all=False)
        if free == 0:
            return None
        queues = (*self._queues, notification.QUEUE) if aside else self._queues
        limit = min(free, self._appetite)
        return ClaimRequest(queues, limit, for_work=True, for_all=aside or not self._delivers)

    def got(self, asked: ClaimRequest, claimed: int) -> None:
        """Work comes first: a claim that was filled has not got to the deliveries behind it."""
        self._was_aside = not asked.for_work
        if self._was_aside or claimed < asked.limit:
            self._more_aside = self._was_aside and claimed >= asked.limit
        if asked.for_work and claimed < asked.limit:
            self._unseen_since = None
        elif not asked.for_work or self._unseen_since is None:
            self._unseen_since = self._clock.steady()

    def _is_in_turn(self, free: int) -> bool:
        """Where many deliveries wait, claims for them take turns with claims for work: those that
        are put off at once would keep others waiting behind them."""
        return self._more_aside and (free == 0 or not self._was_aside)

    def _unseen_for(self) -> float:
        return 0.0 if self._unseen_since is None else self._clock.steady() - self._unseen_since

    def knew(self, known: int, claimed: int) -> None:
        """Among types it does not know a worker takes little: it would take others' work away."""
        self._appetite = self._portion if known == claimed else max(1, 2 * known)
        # What nobody here knows in the first queue must not hide what waits in the next.
        first, *others = self._queues
        self._queues = self._work if known else (*others, first)
