"""What is missing at the old end of the audit chain, and whether anything explains it.

The clean-up removes the oldest links and moves the base on. Whoever wants to hide what he did can
do the same by hand. What is missing is explained when all of it is older than the retention, or
when a prune that deleted entries of the audit is itself written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from holdfast.domain.audit import START, Audit, Chain, Link
from holdfast.domain.durations import written
from holdfast.domain.envelope import iso

SLACK_SECONDS = 3600.0  # clocks of several machines
_PRUNED = re.compile(r"\baudit ([1-9][0-9]*)\b")


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Links that were there, and are not."""

    count: int  # numbers 1 to this
    explained: bool
    says: str


class Evidence:
    """What a walk over the chain has shown of its old end."""

    def __init__(self, first: Chain) -> None:
        self.base = first.base
        self.base_at = first.base_at
        self.oldest_at = first.links[0].entry.at if first.links else None
        self._prune: Audit | None = None

    def see(self, links: Iterable[Link]) -> None:
        for link in links:
            entry = link.entry
            if entry.command == "prune" and not entry.refused and _PRUNED.search(entry.after):
                self._prune = entry

    def missing(self, *, keep_seconds: float, now: float) -> Missing | None:
        """Return what is missing by the time of the look; None: nothing."""
        base = self.base
        if base.seq == 0:
            return None
        explained, why = self._explained(keep_seconds, now)
        numbers = "number 1 is" if base.seq == 1 else f"numbers 1 to {base.seq} are"
        return Missing(count=base.seq, explained=explained, says=f"{numbers} missing: {why}")

    def _explained(self, keep_seconds: float, now: float) -> tuple[bool, str]:
        kept, since = f"the retention of {written(keep_seconds)}", now - keep_seconds
        newest = self.base_at if self.base_at is not None else self.oldest_at
        if self.base.hash == START:
            return True, "they are older than the chain itself"
        if newest is not None and newest <= since + SLACK_SECONDS:
            return True, f"{kept} took them, none is newer than {iso(newest)}"
        if (prune := self._prune) is not None and prune.at >= (self.base_at or 0.0):
            return True, f"{prune.by.actor} pruned the audit at {iso(prune.at)} ({prune.after})"
        return False, self._unexplained(kept, since)

    def _unexplained(self, kept: str, since: float) -> str:
        if self.base_at is not None:
            found = f"they go up to {iso(self.base_at)}"
        elif self.oldest_at is not None:
            found = f"nobody noted their clean-up, and the oldest left is of {iso(self.oldest_at)}"
        else:
            found = "nobody noted their clean-up, and no link is left"
        return (
            f"{found}; {kept} takes only what is older than {iso(since)}, and no prune of the "
            "audit is written down"
        )
