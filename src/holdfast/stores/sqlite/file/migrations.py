"""Steps of the schema that need more than their SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from holdfast.domain.audit import Anchor, link_entry
from holdfast.stores import codec
from holdfast.stores.sqlite.statements import SQL

PAGE = 500


def link_audits(db: apsw.Connection) -> None:
    """Make a chain of the audits that are there. What was cleaned up before them left no hash."""
    pages = _pages(db)
    first = next(pages, None)
    if first is None:
        return
    head = Anchor(seq=first[0][0] - 1)
    db.execute(SQL["chain_base_put"], (head.seq, head.hash))
    head = _link(db, head, first)
    for page in pages:
        head = _link(db, head, page)
    db.execute(SQL["chain_head_put"], (head.seq, head.hash))


def _pages(db: apsw.Connection) -> Iterator[list[Any]]:
    last: Any = 0
    while page := db.execute(SQL["audits_unlinked"], (last, PAGE)).fetchall():
        yield page
        last = page[-1][0]


def _link(db: apsw.Connection, head: Anchor, page: list[Any]) -> Anchor:
    hashes = []
    for n, body, _ in page:
        before, entry = Anchor(seq=n - 1, hash=head.hash), codec.or_none(codec.decode_audit, body)
        # One that cannot be read cannot be a link; where it stands, the numbers will show a gap.
        head = link_entry(before, entry).anchor if entry else Anchor(seq=n, hash=before.hash)
        hashes.append((head.hash, n))
    db.executemany(SQL["audit_link"], hashes)
    return head
