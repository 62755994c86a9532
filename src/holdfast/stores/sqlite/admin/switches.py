"""Switches apply to every process; `Txn.switched_off` returns the names that are switched off."""

from __future__ import annotations

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.task.task import By
from holdfast.ports import Switch, SwitchSetting, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.transaction import HOLD_PREFIX, Txn

_decode_by = msgspec.json.Decoder(By).decode


def set_switch(
    txn: Txn, switch: Switch, name: str, audit: Audit, until: float | None, *, on: bool
) -> bool:
    """Set a switch on or off; return False if it was so already."""
    if switch is Switch.HOLD:
        stored = _stored_hold(txn, name)
        is_over = stored is not None and stored.until == until and not stored.stands(txn.wall)
        if on and until is not None and not is_over:
            return False
        changed = _set_hold(txn, stored, name, audit, until, on=on)
    else:
        if on:
            txn.run("switch_set_back", switch, name)
        else:
            txn.run("switch_set", switch, name, audit.at, codec.encode(audit.by).decode())
        changed = txn.db.changes() > 0
    txn.forget_switches()
    txn.write_audit(audit)
    if on and switch in (Switch.CLAIMING, Switch.HOLD):
        txn.topics.add(Topic.READY)
    return changed


def _set_hold(
    txn: Txn,
    stored: SwitchSetting | None,
    tenant: str,
    audit: Audit,
    until: float | None,
    *,
    on: bool,
) -> bool:
    """Hold a tenant or release it; return False if it was so already.

    The hold is in `meta`, as `hold:tenant:T`: a process of an older release knows no such switch.
    """
    was_held = stored is not None and stored.stands(txn.wall)
    if on or not was_held:
        txn.run("meta_remove", f"{HOLD_PREFIX}{tenant}")
    if not on and not was_held:
        setting = SwitchSetting(
            switch=Switch.HOLD, name=tenant, by=audit.by, at=audit.at, until=until
        )
        txn.run("meta_add", f"{HOLD_PREFIX}{tenant}", codec.encode(setting).decode())
    return was_held is on


def _stored_hold(txn: Txn, tenant: str) -> SwitchSetting | None:
    row = txn.row("meta_get", f"{HOLD_PREFIX}{tenant}")
    return codec.or_none(codec.decode_thrown, row[0]) if row else None


def switches(view: ReadView) -> list[SwitchSetting]:
    settings = [
        SwitchSetting(switch=Switch(switch), name=name, by=_decode_by(by), at=at)
        for switch, name, at, by in view.rows("switches_all")
    ]
    holds = (codec.or_none(codec.decode_thrown, body) for _, body in view.rows("holds_all"))
    return settings + [hold for hold in holds if hold is not None]
