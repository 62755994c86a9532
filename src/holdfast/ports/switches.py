"""Switches that a person can turn off over all machines."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.domain.task.task import By


class Switch(StrEnum):
    INTAKE = "intake"  # of a queue: submits are refused
    CLAIMING = "claiming"  # of a queue: no worker claims its tasks
    DRAIN = "drain"  # of a worker: it finishes or gives back its tasks, and exits
    HOLD = "hold:tenant"  # of a tenant: no worker claims its tasks


OF_QUEUES = frozenset({Switch.INTAKE, Switch.CLAIMING})
HELD, FREE = "held", "free"  # the states of a tenant, as the audit has them


class SwitchSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a switch that is off, with who set it, when and until when."""

    switch: Switch
    name: str  # the queue's, the worker's or the tenant's
    by: By
    at: float
    until: float | None = None  # of a hold: its end; later a worker removes the setting

    def stands(self, now: float) -> bool:
        """Return whether the switch is still off: a hold ends by itself at its time."""
        return self.until is None or self.until > now
