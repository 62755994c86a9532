"""The Python part of schema steps that need more than SQL."""

from __future__ import annotations

from typing import Any

import apsw

from holdfast.domain.audit import Anchor, link_entry
from holdfast.stores import codec
from holdfast.stores.sqlite.statements import SQL

PAGE = 500


def link_audits(db: apsw.Connection) -> None:
    """Make a chain of the audit entries that exist; entries deleted before them left no hash."""
    tip: Anchor | None = None
    while page := _audits_after(db, tip.seq if tip else 0):
        if tip is None:
            tip = Anchor(seq=page[0][0] - 1)
            db.execute(SQL["chain_base_put"], (tip.seq, tip.hash))
        hashes = []
        for n, _, body, _ in page:
            before = Anchor(seq=n - 1, hash=tip.hash)
            entry = codec.or_none(codec.decode_audit, body)
            # An unreadable entry cannot be a link; the numbers will show a gap in its place.
            tip = link_entry(before, entry).anchor if entry else Anchor(seq=n, hash=before.hash)
            hashes.append((tip.hash, n))
        db.executemany(SQL["audit_link"], hashes)
    if tip is not None:
        db.execute(SQL["chain_head_put"], (tip.seq, tip.hash))


def _audits_after(db: apsw.Connection, n: int) -> list[Any]:
    return db.execute(SQL["audits_after"], (n, PAGE)).fetchall()
