"""Leases on triggers and plans, by the store's clock.

Each carries the number of the machine's start that it was given in: of an earlier one it has
lapsed, and that is no fault of what was leased.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.stores.sqlite.transaction import Txn

AsOf = tuple[int, float]  # a start of the machine, and the time in it


class Until(NamedTuple):
    boot: int | None
    until: float | None

    def has_lapsed(self, txn: Txn) -> bool:
        return self.until is not None and (self.boot, self.until) <= (txn.boot, txn.now)

    def counts(self, txn: Txn) -> bool:
        """Return whether a lapsed lease counts as a failed try of its owner."""
        return self.has_lapsed(txn) and self.boot == txn.boot


def lease_end(txn: Txn, lease_seconds: float) -> float:
    return round(txn.now + lease_seconds, 6)


def next_seconds(txn: Txn, first: Any, first_lease: Any, *, now: float) -> float | None:
    """Return the seconds until something is due; ``now`` is by the clock of the first time."""
    times = [] if first is None else [first[0] - now]
    if first_lease is not None:
        boot, until = first_lease
        times.append(until - txn.now if boot == txn.boot else 0.0)
    return max(0.0, min(times)) if times else None
