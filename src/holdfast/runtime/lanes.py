"""What a worker may ask for: work, as far as it has slots, and deliveries, which have room of their
own. So a receiver that hangs takes no slot from the work, and long work keeps no delivery waiting.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from holdfast.domain import telling
from holdfast.ports import Clock

CLAIM_LIMIT = 64  # a larger batch is hardly quicker
DELIVERIES = 32  # at a time; one claim may go beyond it
ASIDE_SECONDS = 1.0  # between two looks for deliveries alone


class Asked(NamedTuple):
    queues: tuple[str, ...]
    limit: int
    for_work: bool  # False: deliveries alone
    for_all: bool  # what is not there now is nowhere


class Lanes:
    def __init__(self, queues: tuple[str, ...], slots: int, clock: Clock) -> None:
        self._all = self._queues = queues
        self._slots, self._clock = slots, clock
        self._working = self._delivering = 0
        # Claims of half the slots: while one half runs and commits, the next is on its way.
        self._portion = self._appetite = min(CLAIM_LIMIT, (slots + 1) // 2)
        self._looked_aside = -inf

    def begin(self, queue: str) -> None:
        if queue == telling.QUEUE:
            self._delivering += 1
        else:
            self._working += 1

    def end(self, queue: str) -> None:
        if queue == telling.QUEUE:
            self._delivering -= 1
        else:
            self._working -= 1

    @property
    def has_room_aside(self) -> bool:
        return self._delivering < DELIVERIES and telling.QUEUE in self._all

    def ask(self) -> Asked | None:
        """None: there is no room for anything that it would be time to look for."""
        free, now = self._slots - self._working, self._clock.steady()
        aside = self.has_room_aside
        if free == 0 and (not aside or now - self._looked_aside < ASIDE_SECONDS):
            return None
        if aside:
            self._looked_aside = now
        if free == 0:
            limit = min(DELIVERIES - self._delivering, CLAIM_LIMIT)
            return Asked((telling.QUEUE,), limit, for_work=False, for_all=False)
        queues, whole = self._queues, aside or telling.QUEUE not in self._all
        if not whole:
            queues = tuple(queue for queue in queues if queue != telling.QUEUE)
        return Asked(queues, min(free, self._appetite), for_work=True, for_all=whole)

    def knew(self, known: int, claimed: int) -> None:
        """Among types it does not know a worker takes little: it would take others' work away."""
        self._appetite = self._portion if known == claimed else max(1, 2 * known)
        # What nobody here knows in the first queue must not hide what waits in the next.
        first, *others = self._queues
        self._queues = self._all if known else (*others, first)
