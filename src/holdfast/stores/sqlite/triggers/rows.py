"""A trigger as its record and as its row. The record is complete; the columns are for queries."""

from __future__ import annotations

import logging
from typing import NamedTuple

from holdfast.domain.errors import SerialisationError
from holdfast.domain.trigger.trigger import LEASE, Trigger
from holdfast.stores import codec
from holdfast.stores.sqlite.tasks.records import checked_json

log = logging.getLogger("holdfast.stores.sqlite.trigger_rows")


class TriggerColumns(NamedTuple):
    """The columns of a trigger as `trigger_put` takes them, before the record."""

    id: str
    tenant: str | None
    version: int
    status: str
    at: float | None
    boot: int | None
    until: float | None
    ended_at: float | None
    keep_until: float | None
    declared: int


def columns_of(trigger: Trigger, boot: int) -> TriggerColumns:
    """Return the columns of a trigger; ``boot`` is the start of the machine of its lease."""
    at = trigger.trigger_at if trigger.status in LEASE else None
    until = None if at is None else trigger.lease_until
    ended = trigger.ended_at
    return TriggerColumns(
        id=trigger.id,
        tenant=trigger.tenant,
        version=trigger.version,
        status=trigger.status,
        at=at,
        boot=None if until is None else boot,
        until=until,
        ended_at=ended,
        keep_until=None if ended is None else ended + trigger.keep_seconds,
        declared=int(trigger.declared),
    )


def body_of(trigger: Trigger) -> str:
    return checked_json(trigger, f"trigger {trigger.id!r}", codec.decode_trigger).decode()


def trigger_of(body: str) -> Trigger:
    return codec.decode_trigger(body.encode())


def readable(trigger_id: str, body: str) -> Trigger | None:
    """Return the trigger, or None where it cannot be read; `doctor` reports it."""
    try:
        return trigger_of(body)
    except SerialisationError as error:
        log.warning("trigger %s is unreadable; see `holdfast doctor`: %s", trigger_id, error)
        return None
