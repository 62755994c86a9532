"""The audit keeps each request, done or refused, in a chain that shows later changes.

Each link's hash covers its number, its entry and the hash before it. Whoever changes, removes or
puts in an entry has to write every later hash anew; a hash noted elsewhere then shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from holdfast.domain.task.task import By

START = "0" * 64  # the hash before the first link

_encode = msgspec.json.Encoder(order="sorted").encode


class Audit(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """An operator's action, done or refused.

    ``task_id`` is what it was about: a task's id, or ``plan:ID``, ``trigger:ID``, ``queue:NAME``,
    ``worker:NAME``, ``bulk:ID``, ``store``. A field that is added later needs a default: what is
    as it is by default is not hashed, so that the links that there are stay good.
    """

    task_id: str
    command: str
    by: By
    at: float
    before: str
    after: str
    refused: str | None = None  # the error's code


class Anchor(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place in the chain: what comes after it hangs on this hash."""

    seq: int = 0
    hash: str = START


class AuditLink(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    seq: int  # from 1, without gaps
    entry: Audit
    hash: str
    odd: str = ""  # what of it is not stored as it was written

    @property
    def anchor(self) -> Anchor:
        return Anchor(seq=self.seq, hash=self.hash)


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the chain, the oldest first."""

    base: Anchor  # what the oldest link that is kept hangs on
    head: Anchor
    links: tuple[AuditLink, ...]
    loose: int = 0  # written down, and not in the chain yet
    base_at: float | None = None  # of the newest entry that was cleaned up; None: nobody noted it
    odd: str = ""  # what beside the links is not stored as it was written


NOT_AS_WRITTEN = "it is not stored as it was written"


class Break(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    message: str


def link_entry(before: Anchor, entry: Audit) -> AuditLink:
    seq = before.seq + 1
    return AuditLink(seq=seq, entry=entry, hash=digest(before.hash, seq, entry))


def digest(before: str, seq: int, entry: Audit) -> str:
    return hashlib.sha256(f"{before}\n{seq}\n".encode() + _encode(entry)).hexdigest()


def first_break(before: Anchor, links: Iterable[AuditLink]) -> Break | None:
    """The first place where the links do not hang together, each on the one before it."""
    for link in links:
        if link.seq != before.seq + 1:
            return Break(seq=link.seq, message=f"number {link.seq} comes after {before.seq}")
        if link.hash != digest(before.hash, link.seq, link.entry):
            return Break(seq=link.seq, message="its hash is not that of what it says")
        if link.odd:
            return Break(seq=link.seq, message=link.odd)
        before = link.anchor
    return None
