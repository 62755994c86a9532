"""The audit chain in the first partition, and the outboxes with entries that wait for it.

Each partition has an outbox: an entry is written to it in one step with the action that it
records. A link is ``NUMBER HASH ENTRY``. The ends of the chain also say how many entries were
taken from which outbox (see `audit_seal.py`), and an outbox says how many have left it, so an
entry that is in both for a moment is recognised by its number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import NOT_AS_WRITTEN, Anchor, Audit, AuditLink, Chain
from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.task import By
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, pairs_of
from holdfast.stores.redis.partition import Partition, Partitions, gather_all

SHOWN = 500  # bytes of an unreadable entry that are shown
_OF = "of:"
_NUMBERED = re.compile(r"([0-9]{1,15}) ([0-9a-f]+)")


class Taken(msgspec.Struct, frozen=True):
    """The entries that the chain has of an outbox: their number, and a mark of the last one."""

    count: int = 0
    mark: str = ""


class Ends(msgspec.Struct, frozen=True):
    """The ends of the chain: ``base`` and ``head`` as they are stored, ``NUMBER HASH`` or empty."""

    base: str
    head: str
    taken: dict[int, Taken]
    cleaned: str = ""  # ``NUMBER TIME``: the base's number, the newest time that was pruned
    others: tuple[str, ...] = ()  # fields that this store does not write

    @property
    def base_at(self) -> float | None:
        """Return the time that was stored with this base; a base that was moved since has none."""
        seq, _, at = self.cleaned.partition(" ")
        try:
            return float(at) if seq == self.base.partition(" ")[0] else None
        except ValueError:
            return None

    @property
    def odd(self) -> str:
        """Return a complaint if the ends are not as this store writes them."""
        for name, text in (("base", self.base), ("head", self.head)):
            if text and text_of(anchor_of(text)) != text:
                return f"the {name} of the chain is not stored as it was written"
        return f"the ends of the chain have a field {self.others[0]!r}" if self.others else ""

    def taken_from(self, box: Outbox) -> Taken:
        return self.taken.get(box.number, Taken())


class Outbox(msgspec.Struct, frozen=True):
    """The outbox of a partition, with some of its entries."""

    number: int
    part: Partition
    gone: int  # how many entries have ever left it
    length: int
    bodies: list[bytes]
    at: float

    def loose(self, ends: Ends) -> int:
        """Return how many entries are not in the chain, if the chain was read later."""
        return self.length - min(self.length, max(0, ends.taken_from(self).count - self.gone))


def mark_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def text_of(anchor: Anchor) -> str:
    return f"{anchor.seq} {anchor.hash}"


def anchor_of(text: str) -> Anchor:
    if not text:
        return Anchor()
    seq, hash_ = _parse_numbered(text)
    return Anchor(seq=seq, hash=hash_)


def _parse_numbered(text: str) -> tuple[int, str]:
    match = _NUMBERED.fullmatch(text)
    if match is None:
        raise SerialisationError(f"an end of the audit chain cannot be read: {text!r}")
    return int(match[1]), match[2]


def field_of(box: Outbox, taken: Taken) -> tuple[str, str]:
    return f"{_OF}{box.number}", f"{taken.count} {taken.mark}"


# -- reads


async def outbox(number: int, part: Partition, first: int, last: int) -> Outbox:
    """Read an outbox and the bodies from ``first`` to ``last``, as LRANGE counts them."""
    reply = by_name(await part.call(scripts.OUTBOX, first, last))
    return Outbox(number, part, reply["gone"], reply["length"], reply["bodies"], float(reply["at"]))


async def read_outboxes(parts: Partitions, first: int, last: int) -> list[Outbox]:
    return await gather_all(outbox(n, part, first, last) for n, part in enumerate(parts))


async def links(part: Partition, after: int, limit: int) -> tuple[Ends, list[bytes]]:
    """Return the ends of the chain and the links behind a number, read in one step."""
    reply = by_name(await part.call(scripts.CHAIN_LINKS, after, limit))
    return _ends(reply["ends"]), reply["links"]


def _ends(reply: Sequence[bytes]) -> Ends:
    fields = {name.decode(): value.decode(errors="replace") for name, value in pairs_of(reply)}
    taken = {
        int(name.removeprefix(_OF)): Taken(*_parse_numbered(text))
        for name, text in fields.items()
        if name.startswith(_OF)
    }
    base, head, cleaned = (fields.pop(name, "") for name in ("base", "head", "cleaned"))
    others = tuple(name for name in sorted(fields) if not name.startswith(_OF))
    return Ends(base, head, taken, cleaned, others)


# -- entries and links


def element_of(link: AuditLink) -> bytes:
    return f"{text_of(link.anchor)} ".encode() + codec.encode(link.entry)


def link_of(element: bytes, seq: int) -> AuditLink:
    """Return the link of an element, even of a damaged one, which a verifier must see.

    ``seq`` is the number that the link must have.
    """
    try:
        number, hash_, body = element.split(b" ", 2)
        anchor = anchor_of(f"{number.decode()} {hash_.decode()}")
        link = AuditLink(seq=anchor.seq, entry=codec.decode_audit(body), hash=anchor.hash)
        return link if element_of(link) == element else replace(link, odd=NOT_AS_WRITTEN)
    except (ValueError, SerialisationError):
        return AuditLink(seq=seq, entry=unreadable(element, 0.0), hash="")


def unreadable(body: bytes, at: float) -> Audit:
    """Return an entry that stands for an unreadable one."""
    text = body[:SHOWN].decode(errors="backslashreplace")
    return Audit(
        task_id="store",
        command="unreadable",
        by=By(actor="unknown", reason=text),
        at=at,
        before="-",
        after="-",
    )


def entries_of(bodies: Iterable[bytes], at: float) -> list[Audit]:
    """Return entries; an unreadable one gets the time of the next entry, or ``at``."""
    entries: list[Audit] = []
    for body in reversed(list(bodies)):
        entry = codec.or_none(codec.decode_audit, body)
        entries.append(entry or unreadable(body, at))
        at = entries[-1].at
    return entries[::-1]


# -- the verbs of the port


async def chain(parts: Partitions, after: int, limit: int) -> Chain:
    boxes = await read_outboxes(parts, 1, 0)
    ends, elements = await links(parts.first, after, limit)
    base = anchor_of(ends.base)
    start = max(after, base.seq) + 1
    return Chain(
        base=base,
        head=anchor_of(ends.head),
        links=tuple(link_of(element, seq) for seq, element in enumerate(elements, start)),
        loose=sum(box.loose(ends) for box in boxes),
        base_at=ends.base_at,
        odd=ends.odd,
    )


async def audits(parts: Partitions, limit: int, start: int) -> list[Audit]:
    """Return the newest entries first: those in the outboxes, then the chain from its end.

    The outboxes are read first, so that no entry is missed that leaves them meanwhile.
    """
    if limit < 1:
        return []
    boxes = await read_outboxes(parts, -start - limit, -1)
    ends, _ = await links(parts.first, 0, 0)
    unsealed = merge_audits([_newest(box, ends) for box in boxes], limit, start)
    passed = max(0, start - sum(box.loose(ends) for box in boxes))
    return unsealed + await _read_sealed(parts.first, ends, passed, limit - len(unsealed))


def _newest(box: Outbox, ends: Ends) -> list[Audit]:
    count = min(box.loose(ends), len(box.bodies))
    return entries_of(box.bodies[len(box.bodies) - count :], box.at)[::-1]


async def _read_sealed(part: Partition, ends: Ends, passed: int, limit: int) -> list[Audit]:
    """Return the newest entries of the chain as ``ends`` describes it, after those passed over."""
    last = anchor_of(ends.head).seq - passed
    after = max(anchor_of(ends.base).seq, last - limit)
    if limit < 1 or after >= last:
        return []
    ends_now, elements = await links(part, after, last - after)
    remaining = last - max(
        after, anchor_of(ends_now.base).seq
    )  # some may have been pruned meanwhile
    return [link_of(element, 0).entry for element in reversed(elements[: max(0, remaining)])]


def merge_audits(lists: Iterable[Sequence[Audit]], limit: int, start: int) -> list[Audit]:
    """Merge lists of at most ``start + limit`` entries that each begin with the newest."""
    return list(islice(merge(*lists, key=lambda entry: -entry.at), start, start + limit))


async def write_audit(part: Partition, entry: Audit) -> None:
    refused = f"{entry.before} {entry.command}" if entry.refused else ""
    await part.call(scripts.AUDIT, codec.encode(entry), refused, again=False)
