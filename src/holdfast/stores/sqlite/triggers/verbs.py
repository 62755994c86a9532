"""The writes on triggers: verbs of their port, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.domain.trigger.trigger import LEASE, Trigger
from holdfast.ports import DueTriggers, Topic
from holdfast.stores.sqlite.plan_trigger_leases import Until, lease_end, next_seconds
from holdfast.stores.sqlite.transaction import Txn, listed
from holdfast.stores.sqlite.triggers.rows import body_of, columns_of, readable

EVER = float("inf")

replace = msgspec.structs.replace


class Lent(msgspec.Struct, frozen=True):
    """The owner of a trigger's lease, and its length."""

    owner: str
    lease_seconds: float


def save(txn: Txn, trigger: Trigger) -> Trigger:
    found = txn.row("trigger_of", trigger.id)
    version = found[0] if found else trigger.version
    saved = replace(trigger, version=version + 1)
    put_all(txn, [(saved, body_of(saved))])
    return saved


def put_all(txn: Txn, written: Sequence[tuple[Trigger, str]]) -> None:
    """Write them, and wake who sleeps longer than the first of them may wait."""
    rows = [(columns_of(trigger, txn.boot), body) for trigger, body in written]
    times = [columns.at for columns, _ in rows if columns.at is not None]
    if times:
        first = txn.row("triggers_first")
        # Who sleeps, sleeps until the first time of all at most: a later one does not concern him.
        if first is None or min(times) < first[0]:
            txn.topics.add(Topic.DUE)
    txn.run_each("trigger_put", [(*columns, body) for columns, body in rows])


def remove(txn: Txn, trigger_id: str) -> bool:
    txn.run("trigger_remove", trigger_id)
    return txn.db.changes() > 0


def acquire(txn: Txn, trigger_id: str, lent: Lent) -> Trigger | None:
    found = txn.row("trigger_of", trigger_id)
    if found is None:
        return None
    _, boot, until, body = found
    trigger, end = readable(trigger_id, body), Until(boot, until)
    if trigger is None or trigger.status not in LEASE or trigger.trigger_at is None:
        return None
    if until is not None and not end.has_lapsed(txn) and trigger.owner != lent.owner:
        return None
    return _lend(txn, [(trigger, end.counts(txn))], lent)[0]


def lend_one(txn: Txn, trigger_id: str, lent: Lent) -> DueTriggers:
    trigger = acquire(txn, trigger_id, lent)
    return DueTriggers(triggers=() if trigger is None else (trigger,), next_seconds=None)


def lend_due(txn: Txn, lent: Lent, upto: float | None, limit: int) -> DueTriggers:
    found = _free(txn, txn.wall if upto is None else upto, limit)
    return DueTriggers(
        triggers=tuple(_lend(txn, found, lent)),
        next_seconds=next_seconds(
            txn, txn.row("triggers_first"), txn.row("triggers_first_lease"), now=txn.wall
        ),
    )


def _free(txn: Txn, upto: float, limit: int) -> list[tuple[Trigger, bool]]:
    """Return triggers that are due or were left behind, earliest first, with failed tries."""
    lapsed = txn.rows("triggers_lapsed", txn.boot, txn.now, EVER, limit)
    rows = [(at, id, body, boot == txn.boot) for id, at, boot, body in lapsed]
    rows += [(at, id, body, False) for id, at, body in txn.rows("triggers_due", upto, limit)]
    found = []
    for _, trigger_id, body, failed in sorted(rows)[:limit]:
        trigger = readable(trigger_id, body)
        if trigger is None or trigger.status not in LEASE:
            txn.run("trigger_set_aside", trigger_id)  # it would be met each time
        else:
            found.append((trigger, failed))
    return found


def _lend(txn: Txn, found: Iterable[tuple[Trigger, bool]], lent: Lent) -> list[Trigger]:
    until = lease_end(txn, lent.lease_seconds)
    leased = [
        replace(
            trigger,
            status=LEASE[trigger.status],
            version=trigger.version + 1,
            retry_count=trigger.retry_count + failed,
            updated_at=txn.wall,
            owner=lent.owner,
            lease_until=until,
        )
        for trigger, failed in found
    ]
    if leased:
        rows = [(t.id, t.version, t.status, body_of(t)) for t in leased]
        txn.run("triggers_lease", listed(rows), txn.boot, until)
    return leased


def prune(txn: Txn, now: float, before: float, limit: int, *, dry_run: bool) -> int:
    found = txn.rows("outdated_triggers", now, before, limit)
    deleted = 0
    for trigger_id, body in () if dry_run else found:
        if readable(trigger_id, body) is None:
            txn.run("trigger_set_aside", trigger_id)
        else:
            deleted += remove(txn, trigger_id)
    return len(found) if dry_run else deleted
