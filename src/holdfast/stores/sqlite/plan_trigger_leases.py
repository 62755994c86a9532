"""Leases on triggers and plans, by the store's clock.

Each lease carries the number of the machine's start in which it was given. A lease of an earlier
start has lapsed, which does not count as a failed attempt.
"""

from __future__ import annotations

from typing import Any

from holdfast.stores.sqlite.transaction import Txn

AsOf = tuple[int, float]  # a start of the machine, and the time in it


def lease_end(txn: Txn, lease_seconds: float) -> float:
    return round(txn.now + lease_seconds, 6)


def next_seconds(txn: Txn, first: Any, first_lease: Any, *, now: float) -> float | None:
    """Return the seconds until a record is due or a lease ends; ``now`` is for ``first``."""
    times = [] if first is None else [first[0] - now]
    if first_lease is not None:
        boot, until = first_lease
        times.append(until - txn.now if boot == txn.boot else 0.0)
    return max(0.0, min(times)) if times else None
