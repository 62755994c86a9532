"""The environment of a worker, for tests of one of its parts."""

from __future__ import annotations

import random

from holdfast.ports import Clock, Store
from holdfast.registry import Registry
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker_options import WorkerOptions


def environment(
    store: Store,
    clock: Clock,
    *,
    registry: Registry | None = None,
    chance: random.Random | None = None,
    options: WorkerOptions | None = None,
    worker: str = "worker",
) -> WorkerEnvironment:
    return WorkerEnvironment(
        worker=worker,
        store=store,
        registry=registry or Registry(),
        clock=clock,
        chance=chance or random.Random(0),
        outages=StoreOutages(clock),
        options=options or WorkerOptions(),
    )
