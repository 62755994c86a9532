"""Switches over all machines; `txn.off` says which are thrown."""

from __future__ import annotations

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.task import By
from holdfast.ports import Switch, Thrown, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.auditing import write_audit
from holdfast.stores.sqlite.readers import Look
from holdfast.stores.sqlite.txn import HOLD_PREFIX, Txn

_decode_by = msgspec.json.Decoder(By).decode


def throw(
    txn: Txn, switch: Switch, name: str, audit: Audit, until: float | None, *, on: bool
) -> bool:
    if switch is Switch.HOLD:
        _hold(txn, name, audit, until, on=on)
    elif on:
        txn.run("switch_set_back", switch, name)
    else:
        by = codec.encode(audit.by).decode()
        txn.run("switch_throw", switch, name, audit.at, by)
    changed = txn.db.changes() > 0
    txn.forget_switches()
    write_audit(txn, audit)
    if on and switch in (Switch.CLAIMING, Switch.HOLD):
        txn.topics.add(Topic.READY)
    return changed


def _hold(txn: Txn, tenant: str, audit: Audit, until: float | None, *, on: bool) -> None:
    """In `meta`, as `hold:tenant:T`: a process of an older release knows no such switch."""
    if on:
        txn.run("hold_remove", f"{HOLD_PREFIX}{tenant}")
        return
    thrown = Thrown(switch=Switch.HOLD, name=tenant, by=audit.by, at=audit.at, until=until)
    txn.run("hold_put", f"{HOLD_PREFIX}{tenant}", codec.encode(thrown).decode())


def switches(look: Look) -> list[Thrown]:
    found = [
        Thrown(switch=Switch(switch), name=name, by=_decode_by(by), at=at)
        for switch, name, at, by in look.rows("switches_all")
    ]
    holds = (codec.or_none(codec.decode_thrown, body) for _, body in look.rows("holds_all"))
    return found + [hold for hold in holds if hold is not None]
