"""Switches that a person can turn off over all machines."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.domain.task.task import By


class Switch(StrEnum):
    INTAKE = "intake"  # of a queue: submits are refused
    CLAIMING = "claiming"  # of a queue: what waits in it is not handed out
    DRAIN = "drain"  # of a worker: it finishes what it has, and ends
    HOLD = "hold:tenant"  # of a tenant: nothing of it is handed out


OF_QUEUES = frozenset({Switch.INTAKE, Switch.CLAIMING})


class SwitchSetting(msgspec.Struct, frozen=True, kw_only=True):
    switch: Switch
    name: str  # the queue's, the worker's or the tenant's
    by: By
    at: float
    until: float | None = None  # of a hold: it is over then, and the next worker's look removes it

    def stands(self, now: float) -> bool:
        """Return whether it still forbids something: a hold ends by itself at its time."""
        return self.until is None or self.until > now
