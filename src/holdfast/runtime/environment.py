"""The environment of a worker: what all of its parts work with."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass, field

from holdfast.clock import new_id
from holdfast.ports import Clock, Store
from holdfast.ports.tracing import NO_TRACER, Tracer
from holdfast.registry import Registry
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker_options import WorkerOptions


def new_worker_name(clock: Clock, chance: random.Random) -> str:
    """Return a name per incarnation: a restarted worker is not the one that held the lease."""
    return f"{socket.gethostname()}-{os.getpid()}-{new_id(clock, chance)[-8:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnvironment:
    worker: str  # its name
    store: Store
    registry: Registry
    clock: Clock
    chance: random.Random
    outages: StoreOutages
    options: WorkerOptions = field(default_factory=WorkerOptions)
    tracer: Tracer = NO_TRACER

    @property
    def live_within_seconds(self) -> float:
        """Return the age of a beat up to which its worker counts as live."""
        return 2 * self.options.lease_seconds
