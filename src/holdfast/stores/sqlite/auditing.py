"""The audits, each linked to the one before it in the transaction that writes it."""

from __future__ import annotations

from itertools import takewhile

from holdfast.domain.audit import Anchor, Audit, Chain, Link, linked
from holdfast.stores import codec
from holdfast.stores.sqlite.readers import Look
from holdfast.stores.sqlite.txn import Txn


def audit(txn: Txn, entry: Audit) -> None:
    write_audit(txn, entry)
    if entry.refused is not None:
        txn.count_refusal(f"{entry.before} {entry.command}")


def write_audit(txn: Txn, entry: Audit) -> None:
    body = codec.encode(entry)
    # As it will be read: constructors check no types, and the hash must be that of what is kept.
    link = linked(txn.head(), codec.decode_audit(body))
    txn.linked(link.anchor)
    txn.add("audit_add", (link.seq, link.entry.at, body.decode(), link.hash))


def prune(txn: Txn, before: float, limit: int, *, dry_run: bool) -> int:
    """The oldest go; the chain then hangs on the last of them, of which the hash stays."""
    oldest = txn.rows("audits_oldest", limit)
    found = list(takewhile(lambda row: row[1] < before, oldest))
    if found and not dry_run:
        n, _, hash = found[-1]
        txn.run("audits_delete_upto", n)
        txn.run("chain_base_put", n, hash)
    return len(found)


def audits(look: Look, limit: int, cursor: str | None) -> list[Audit]:
    return [
        entry
        for (body,) in look.rows("audits_newest", int(cursor or 0), limit)
        if (entry := codec.or_none(codec.decode_audit, body)) is not None
    ]


def chain(look: Look, after: int, limit: int) -> Chain:
    base, base_hash = look.row("chain_base")
    head, head_hash = look.row("chain_head")
    return Chain(
        base=Anchor(seq=base, hash=base_hash),
        head=Anchor(seq=head, hash=head_hash),
        links=tuple(
            Link(seq=n, entry=entry, hash=hash)
            for n, body, hash in look.rows("audits_after", after, limit)
            if (entry := codec.or_none(codec.decode_audit, body)) is not None
        ),
    )
