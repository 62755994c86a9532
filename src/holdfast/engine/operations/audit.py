"""The audit's entries and the verification of its chain, page by page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import START, Anchor, Audit, AuditLink, Break, Chain, first_break
from holdfast.domain.errors import InvalidInput
from holdfast.engine.operations.audit_gaps import Evidence, Missing
from holdfast.ports import Store

PAGE = 500
PAGES_MAX = 50  # after so many pages, the cursor says where to go on
SEALS = 2_000  # pages of unsealed entries; the workers seal the others

_HEAD = re.compile(r"(\d{1,15}):([0-9a-f]{64})")


class ChainVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the chain up to where it was walked: its end, or the break."""

    base: Anchor
    head: Anchor
    links: int
    loose: int
    broken: Break | None = None
    missing: Missing | None = None  # at its old end; only if the retention was given

    @property
    def holds(self) -> bool:
        return self.broken is None and (self.missing is None or self.missing.explained)


def format_link(anchor: Anchor) -> str:
    return f"{anchor.seq}:{anchor.hash}"


def anchor_from(text: str) -> Anchor:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise InvalidInput(f"a head is NUMBER:HASH, as `audit verify` prints it, not {text!r}")
    return Anchor(seq=int(match[1]), hash=match[2])


async def entries_from(
    store: Store, start: int, limit: int, task_id: str | None
) -> tuple[Sequence[Audit], int | None]:
    """Return up to ``limit`` entries, and where the next ones begin; a call is bounded."""
    entries: list[Audit] = []
    size = PAGE if task_id else limit + 1
    at = start
    for _ in range(PAGES_MAX):
        page = await store.admin.audits(limit=size, cursor=str(at))
        for entry in page:
            if len(entries) == limit:
                return entries, at
            at += 1
            if task_id in (None, entry.task_id):
                entries.append(entry)
        if len(page) < size:
            return entries, None
    return entries, at


async def verify(
    store: Store,
    *,
    noted: Anchor | None = None,
    seals: bool = True,
    walked: Callable[[int], object] = bool,
    keep_seconds: float | None = None,
    now: float = 0.0,
) -> ChainVerdict:
    """Verify the audit chain.

    Without ``seals`` unsealed entries stay so, and nothing is written. ``noted`` is an earlier tip
    of the chain, kept elsewhere: without it, a chain that somebody has rewritten or cut, with its
    tip, looks like any other. ``keep_seconds`` is the retention, which explains what is missing at
    the old end.
    """
    for _ in range(SEALS if seals else 0):
        if await store.admin.seal(limit=PAGE) < PAGE:
            break
    page = await store.admin.chain(limit=PAGE)
    base = before = page.base
    evidence = Evidence(page)
    broken = _below(noted, base) or _other_faults(page)
    links = 0
    while page.links and broken is None:
        evidence.see(page.links)
        broken = first_break(before, page.links) or _differing_link(noted, page.links)
        links, before = links + len(page.links), page.links[-1].anchor
        walked(links)
        page = await store.admin.chain(after=before.seq, limit=PAGE)
        if page.base.seq > before.seq:  # cleaned up while we walked
            before = page.base
    broken = broken or _at_end(page, before, noted)
    missing = None
    if keep_seconds is not None:
        missing = evidence.missing(keep_seconds=keep_seconds, now=now)
    return ChainVerdict(
        base=base, head=page.head, links=links, loose=page.loose, broken=broken, missing=missing
    )


async def compare_with_note(store: Store, verdict: ChainVerdict, noted: Anchor) -> ChainVerdict:
    """Return a verdict that was found without ``noted``, compared with that link."""
    page = await store.admin.chain(after=max(0, noted.seq - 1), limit=1)
    broken = _below(noted, page.base) or _differing_link(noted, page.links)
    if broken is None and noted.seq > page.head.seq:
        broken = _at_end(page, page.head, noted)
    breaks = [found for found in (verdict.broken, broken) if found is not None]
    return replace(verdict, broken=min(breaks, key=lambda found: found.seq, default=None))


def _other_faults(page: Chain) -> Break | None:
    """Return what is wrong apart from the links."""
    if page.odd:
        return Break(seq=page.base.seq, message=page.odd)
    if page.base.seq == 0 and page.base.hash != START:
        return Break(seq=0, message="the base does not belong to the first link")
    return None


def _below(noted: Anchor | None, base: Anchor) -> Break | None:
    if noted is None or noted.seq > base.seq:
        return None
    if noted.seq < base.seq:
        why = f"entries up to {base.seq} are gone, so the noted head cannot be compared"
        return Break(seq=noted.seq, message=why)
    return _rewritten(noted, base)


def _differing_link(noted: Anchor | None, links: Sequence[AuditLink]) -> Break | None:
    if noted is None or not links or not links[0].seq <= noted.seq <= links[-1].seq:
        return None
    return _rewritten(noted, links[noted.seq - links[0].seq].anchor)


def _rewritten(noted: Anchor, found: Anchor) -> Break | None:
    if noted == found:
        return None
    return Break(seq=found.seq, message="its hash is not the one that was noted")


def _at_end(page: Chain, last: Anchor, noted: Anchor | None) -> Break | None:
    head = page.head
    if last != head:
        shorter = f"the chain ends here, but its head is number {head.seq}"
        why = shorter if last.seq != head.seq else "its hash is not the head's"
        return Break(seq=last.seq, message=why)
    if noted is not None and noted.seq > head.seq:
        why = f"the chain ends here, but the noted head is number {noted.seq}"
        return Break(seq=head.seq, message=why)
    return None
