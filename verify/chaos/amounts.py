"""Amounts of harm by default, in short and at length, and their split into rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify.chaos.round_plan import Subject

ROUND_KILLS_MAX = 1250  # the judge has a round's whole history in memory
TIMED_KILLS_MAX = 250  # of triggers and plans: these take longer for each kill
SQLITE, REDIS = "sqlite", "redis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    kills: int
    zombies: int
    server_kills: int = 0
    lost_replies: int = 0

    def scaled_to(self, kills: int) -> Amount:
        by = kills / self.kills
        return Amount(
            kills=kills,
            zombies=math.ceil(self.zombies * by),
            server_kills=math.ceil(self.server_kills * by),
            lost_replies=math.ceil(self.lost_replies * by),
        )

    def part(self, number: int, parts: int) -> Amount:
        def share(whole: int) -> int:
            return whole // parts + (number < whole % parts)

        return Amount(
            kills=share(self.kills),
            zombies=share(self.zombies),
            server_kills=share(self.server_kills),
            lost_replies=share(self.lost_replies),
        )

    @property
    def seconds(self) -> float:
        """Return an ample time: a round that takes longer would not end by itself."""
        return 120 + 0.3 * self.kills + 2 * self.zombies + 5 * self.server_kills

    def rounds(self, kinds: int, kills_max: int = ROUND_KILLS_MAX) -> int:
        """Return as many rounds for each kind, none of them too large."""
        return kinds * max(1, math.ceil(self.kills / kills_max / kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The manner of a subject's rounds."""

    workers: int
    kill_every_seconds: float
    slots: int = 4


MANNERS = {
    Subject.TASKS: Manner(workers=12, kill_every_seconds=0.03),
    Subject.TRIGGERS: Manner(workers=5, kill_every_seconds=0.2, slots=16),
    Subject.PLANS: Manner(workers=6, kill_every_seconds=0.2),
}

SHORT = {
    SQLITE: Amount(kills=300, zombies=30),
    REDIS: Amount(kills=500, zombies=50, server_kills=10, lost_replies=200),
}
LONG = {
    SQLITE: Amount(kills=10_000, zombies=500),
    REDIS: Amount(kills=10_000, zombies=500, server_kills=100, lost_replies=4_000),
}
# The same amounts for triggers and for plans.
TIMED_SHORT = {
    SQLITE: Amount(kills=60, zombies=10),
    REDIS: Amount(kills=60, zombies=10, server_kills=2, lost_replies=30),
}
TIMED_LONG = {
    SQLITE: Amount(kills=1_000, zombies=100),
    REDIS: Amount(kills=1_000, zombies=100, server_kills=20, lost_replies=400),
}


def preset(subject: Subject, store: str, *, long: bool) -> Amount:
    """Return the preset amount; the URL of a store of any kind gets that of SQLite."""
    is_task = subject is Subject.TASKS
    short_or_long = (
        (LONG if is_task else TIMED_LONG) if long else (SHORT if is_task else TIMED_SHORT)
    )
    return short_or_long.get(store) or short_or_long[SQLITE]
