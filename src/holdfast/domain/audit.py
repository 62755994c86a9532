"""The audit chain keeps each request, done or refused, and shows later changes to an entry.

The hash of a link covers its number, its entry and the hash before it. Anyone who changes, removes
or adds an entry must rewrite every later hash; a hash noted elsewhere reveals that.
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

    ``task_id`` names the subject: a task's id, or ``plan:ID``, ``trigger:ID``, ``queue:NAME``,
    ``worker:NAME``, ``bulk:ID``, ``store``. A field that is added later needs a default: a field
    with its default value is not hashed, so existing links stay valid.
    """

    task_id: str
    command: str
    by: By
    at: float
    before: str
    after: str
    refused: str | None = None  # the error's code


class Anchor(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A position in the chain; the hash of the next link covers this hash."""

    seq: int = 0
    hash: str = START


class AuditLink(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    seq: int  # from 1, without gaps
    entry: Audit
    hash: str
    odd: str = ""  # the part of it that is not stored as it was written

    @property
    def anchor(self) -> Anchor:
        return Anchor(seq=self.seq, hash=self.hash)


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the chain, the oldest first."""

    base: Anchor  # the position before the oldest link that is kept
    head: Anchor
    links: tuple[AuditLink, ...]
    loose: int = 0  # entries that are written and not yet in the chain
    base_at: float | None = None  # the time of the newest deleted entry; None: not known
    odd: str = ""  # what apart from the links is not stored as it was written


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
    """Return the first link that does not follow from the one before it."""
    for link in links:
        if link.seq != before.seq + 1:
            return Break(seq=link.seq, message=f"number {link.seq} comes after {before.seq}")
        if link.hash != digest(before.hash, link.seq, link.entry):
            return Break(seq=link.seq, message="its hash does not match its content")
        if link.odd:
            return Break(seq=link.seq, message=link.odd)
        before = link.anchor
    return None
