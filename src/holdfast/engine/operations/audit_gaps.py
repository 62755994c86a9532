"""Missing links at the old end of the audit chain, and what explains them.

The retention removes the oldest links and moves the base on. Anyone who wants to hide an action can
do the same by hand. Missing links are explained when all of them are older than the retention, or
when the recorded prunes deleted as many entries of the audit. A prune also records what was gone
before it, because it may delete the entries of earlier prunes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from holdfast.domain.audit import START, Audit, AuditLink, Chain
from holdfast.domain.durations import format_duration
from holdfast.domain.task.envelope import iso
from holdfast.ports import Store

PAGE = 500
PAGES = 20_000  # that a walk before a prune reads
SLACK_SECONDS = 3600.0  # clocks of several machines
_PRUNED = re.compile(
    r"\baudit ([1-9][0-9]{0,14})\b"
    r"(?: \(([0-9]{1,15}) of ([0-9]{1,15}) before it pruned(?:, up to ([0-9]{1,15}))?\))?"
)


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Links that were there and are gone."""

    count: int  # numbers 1 to this
    explained: bool
    message: str


class _Prune(msgspec.Struct, frozen=True):
    """A prune of the audit, and what it recorded of the time before it."""

    entry: Audit
    count: int
    pruned_before: int = 0
    gone_before: int = 0
    newest_before: float | None = None  # the newest entry that was gone before


class Evidence:
    """The facts that a walk over the chain has found about its old end."""

    def __init__(self, first: Chain) -> None:
        self.base = first.base
        self.base_at = first.base_at
        self.oldest_at = first.links[0].entry.at if first.links else None
        self._prunes: list[_Prune] = []

    def see(self, links: Iterable[AuditLink]) -> None:
        for link in links:
            entry = link.entry
            if entry.command != "prune" or entry.refused:
                continue
            if (match := _PRUNED.search(entry.after)) is not None:
                count, pruned, gone = (int(number or 0) for number in match.groups()[:3])
                newest = float(match[4]) if match[4] else None
                self._prunes.append(_Prune(entry, count, pruned, gone, newest))

    def count_pruned(self, keep_seconds: float = math.inf) -> int:
        """Return how many missing links the prunes account for, together with what the retention
        had taken before one of them."""
        pruned = 0
        for prune in self._prunes:
            newest = prune.newest_before
            is_old = newest is not None and newest <= prune.entry.at - keep_seconds + SLACK_SECONDS
            pruned = max(pruned, prune.gone_before if is_old else prune.pruned_before)
            pruned += prune.count
        return pruned

    @property
    def before_prune(self) -> str:
        """Return what a prune records about the links that are gone before it."""
        if self.base.seq == 0:
            return ""
        up_to = f", up to {math.ceil(self.base_at)}" if self.base_at is not None else ""
        return f" ({self.count_pruned()} of {self.base.seq} before it pruned{up_to})"

    def missing(self, *, keep_seconds: float, now: float) -> Missing | None:
        """Return the links that are missing at this time; None if there are none."""
        base = self.base
        if base.seq == 0:
            return None
        explained, why = self._explain(keep_seconds, now)
        numbers = "number 1 is" if base.seq == 1 else f"numbers 1 to {base.seq} are"
        return Missing(count=base.seq, explained=explained, message=f"{numbers} missing: {why}")

    def _explain(self, keep_seconds: float, now: float) -> tuple[bool, str]:
        kept, since = f"the retention of {format_duration(keep_seconds)}", now - keep_seconds
        newest = self.base_at if self.base_at is not None else self.oldest_at
        if self.base.hash == START:
            return True, "they are older than the chain itself"
        if newest is not None and newest <= since + SLACK_SECONDS:
            return True, f"{kept} took them, none is newer than {iso(newest)}"
        if not self._prunes:
            unexplained = self._format_unexplained(kept, since)
            return False, f"{unexplained}, and no prune of the audit is recorded"
        prune, pruned = self._prunes[-1].entry, self.count_pruned(keep_seconds)
        if pruned >= self.base.seq and prune.at >= (self.base_at or 0.0):
            return True, f"{prune.by.actor} pruned the audit at {iso(prune.at)} ({prune.after})"
        accounted = f"the recorded prunes account for {pruned} of {self.base.seq}"
        return False, f"{self._format_unexplained(kept, since)}, and {accounted}"

    def _format_unexplained(self, kept: str, since: float) -> str:
        if self.base_at is not None:
            known = f"they go up to {iso(self.base_at)}"
        elif self.oldest_at is not None:
            known = f"their prune is not recorded, and the oldest left is of {iso(self.oldest_at)}"
        else:
            known = "their prune is not recorded, and no link is left"
        return f"{known}; {kept} takes only what is older than {iso(since)}"


async def before_prune(store: Store) -> str:
    """Walk over the chain, and return what a prune records about links that are gone."""
    page = await store.admin.chain(limit=PAGE)
    evidence = Evidence(page)
    for _ in range(PAGES):
        if not page.links or not evidence.base.seq:
            break
        evidence.see(page.links)
        page = await store.admin.chain(after=page.links[-1].seq, limit=PAGE)
    return evidence.before_prune
