"""Switches over all machines; `txn.off` says which are thrown."""

from __future__ import annotations

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.task import By
from holdfast.ports import Switch, Thrown, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.auditing import write_audit
from holdfast.stores.sqlite.readers import Look
from holdfast.stores.sqlite.txn import Txn

_decode_by = msgspec.json.Decoder(By).decode


def throw(txn: Txn, switch: Switch, name: str, audit: Audit, *, on: bool) -> bool:
    if on:
        txn.run("switch_set_back", switch, name)
    else:
        by = codec.encode(audit.by).decode()
        txn.run("switch_throw", switch, name, audit.at, by)
    changed = txn.db.changes() > 0
    txn.forget_switches()
    write_audit(txn, audit)
    if on and switch is Switch.CLAIMING:
        txn.topics.add(Topic.READY)
    return changed


def switches(look: Look) -> list[Thrown]:
    return [
        Thrown(switch=Switch(switch), name=name, by=_decode_by(by), at=at)
        for switch, name, at, by in look.rows("switches_all")
    ]
