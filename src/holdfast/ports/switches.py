"""What a person can switch off over all machines."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.domain.task import By


class Switch(StrEnum):
    INTAKE = "intake"  # of a queue: submits are refused
    CLAIMING = "claiming"  # of a queue: what waits in it is not handed out
    DRAIN = "drain"  # of a worker: it finishes what it has, and ends


class Thrown(msgspec.Struct, frozen=True, kw_only=True):
    switch: Switch
    name: str  # the queue's or the worker's
    by: By
    at: float
