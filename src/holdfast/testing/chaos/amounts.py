"""How much harm, by default: in short and at length, and how it is split into rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUND_KILLS_MAX = 1250  # the judge has a round's whole history in memory
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
        """Ample; a round that takes longer does not end by itself."""
        return 120 + 0.3 * self.kills + 2 * self.zombies + 5 * self.server_kills

    def rounds(self, kinds: int) -> int:
        """As many for each kind, and none too large."""
        return kinds * max(1, math.ceil(self.kills / ROUND_KILLS_MAX / kinds))


SHORT = {
    SQLITE: Amount(kills=300, zombies=30),
    REDIS: Amount(kills=500, zombies=50, server_kills=10, lost_replies=200),
}
LONG = {
    SQLITE: Amount(kills=10_000, zombies=500),
    REDIS: Amount(kills=10_000, zombies=500, server_kills=100, lost_replies=4_000),
}
