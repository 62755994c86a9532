"""The audit entries and their chain: `Txn.write_audit` links each to the one before it."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from holdfast.domain.audit import NOT_AS_WRITTEN, Anchor, Audit, AuditLink, Chain
from holdfast.stores import codec
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.transaction import Txn

BASE_AT = "audit_base_at"  # the name in `meta` of the time of the chain's base


def audit(txn: Txn, entry: Audit) -> None:
    txn.write_audit(entry)
    if entry.refused is not None:
        txn.count_refusal(f"{entry.before} {entry.command}")


def prune(txn: Txn, before: float, limit: int, *, dry_run: bool) -> int:
    """Delete the oldest entries; the hash of the last one stays as the base of the chain."""
    oldest = txn.rows("audits_oldest", limit)
    outdated = list(takewhile(lambda row: row[1] < before, oldest))
    if outdated and not dry_run:
        n, _, hash = outdated[-1]
        newest = max(at for _, at, _ in outdated)
        noted = _base_time(txn.row("meta_get", BASE_AT), txn.row("chain_base")[0])
        newest = newest if noted is None else max(newest, noted)
        txn.run("audits_delete_upto", n)
        txn.run("chain_base_put", n, hash)
        txn.run("meta_put", BASE_AT, f"{n} {newest!r}")
    return len(outdated)


def _base_time(row: Any, base: int) -> float | None:
    """Return the time that was noted with this base; a base that was moved since has none."""
    seq, _, at = row[0].partition(" ") if row else ("", "", "")
    try:
        return float(at) if seq == str(base) else None
    except ValueError:
        return None


def audits(view: ReadView, limit: int, cursor: str | None) -> list[Audit]:
    return [
        entry
        for (body,) in view.rows("audits_newest", int(cursor or 0), limit)
        if (entry := codec.or_none(codec.decode_audit, body)) is not None
    ]


def chain(view: ReadView, after: int, limit: int) -> Chain:
    base, base_hash = view.row("chain_base")
    head, head_hash = view.row("chain_head")
    [strays] = view.row("audits_upto", base)
    return Chain(
        base=Anchor(seq=base, hash=base_hash),
        head=Anchor(seq=head, hash=head_hash),
        links=tuple(
            AuditLink(seq=n, entry=entry, hash=hash, odd=_odd(entry, at, body))
            for n, at, body, hash in view.rows("audits_after", after, limit)
            if (entry := codec.or_none(codec.decode_audit, body)) is not None
        ),
        base_at=_base_time(view.row("meta_get", BASE_AT), base),
        odd=f"{strays} entries are numbered before the base {base}" if strays else "",
    )


def _odd(entry: Audit, at: object, body: bytes) -> str:
    """Return a note if `Txn.write_audit` would write the row differently.

    The hash covers only the fields that a reader knows.
    """
    return "" if at == entry.at and body == codec.encode(entry) else NOT_AS_WRITTEN
