"""Checks of liveness: what must happen in time while there is a healthy worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.runtime.services.drain_watch import POLL_SECONDS as DRAIN_POLL_SECONDS
from holdfast.runtime.worker.worker import Worker
from verify.simulation.checks.book import Breach

if TYPE_CHECKING:
    from verify.simulation.actors.actors import WorkerActor
    from verify.simulation.world import SimulatedWorld

POLL_SECONDS = 0.25
TAKE_OVER_SECONDS = 2.0  # L1
DUE_SECONDS = 1.0  # L2
HOLD_SECONDS = DRAIN_POLL_SECONDS + 1.0  # H4
CLAIM_SECONDS = 6.5  # L3: a worker that heard no signal polls every 5 s


async def watch(world: SimulatedWorld) -> None:
    ready_since: dict[str, float] = {}
    timeliness = world.timeliness()
    while True:
        await asyncio.sleep(POLL_SECONDS)
        for breach in timeliness.check():
            world.fail(*breach)
        _excuse_workers(world)
        for breach in _check_holds(world):
            world.fail(*breach)
        for task in world.store.state.tasks.values():
            held = world.book.hold_of(task.tenant, world.store.wall) is not None
            if task.place is not Place.READY or held:
                ready_since.pop(task.id, None)
            else:
                ready_since.setdefault(task.id, world.loop.time())
            for breach in _check_task(world, task, ready_since):
                world.fail(*breach, task.id)


def _excuse_workers(world: SimulatedWorld) -> None:
    if world.is_down():
        for actor in world.workers:
            actor.excuse_trouble()
    for worker in world.workers:
        if worker.frozen:
            worker.excuse_trouble()
        if worker.worker is None or _is_full(worker.worker, world.profile.slots):
            worker.full_at = world.loop.time()
        if worker.worker is None or worker.drain_asked.is_set():
            continue
        for service in worker.worker._services:
            if service.done():
                world.fail("E1", f"{worker.name}: {service!r} has ended")


def _is_full(worker: Worker, slots: int) -> bool:
    """Return whether the worker claims nothing more: it has no free slot, or runs a suspect, next
    to which nothing else may begin."""
    return worker.running >= slots or worker._stages.suspect is not None


def _check_task(
    world: SimulatedWorld, task: Task, ready_since: dict[str, float]
) -> Iterator[tuple[str, str]]:
    now, steady = world.store.now, world.loop.time()
    if task.lease is not None and now - task.lease.until > TAKE_OVER_SECONDS:
        since = steady - (now - task.lease.until)
        if any(healthy(world, since)):
            yield "L1", f"its lease ended {now - task.lease.until:.2f} s ago and nobody took it"
    if task.place is Place.LATER and task.due is not None and now - task.due > DUE_SECONDS:
        since = steady - (now - task.due)
        if any(healthy(world, since)):
            yield "L2", f"it was due {now - task.due:.2f} s ago"
    if task.place is Place.READY and steady - ready_since.get(task.id, steady) > CLAIM_SECONDS:
        since = ready_since[task.id]
        if any(w for w in healthy(world, since) if task.queue in w.queues and w.full_at < since):
            yield "L3", f"it is ready for {steady - since:.2f} s and nobody takes it"


def _check_holds(world: SimulatedWorld) -> Iterator[Breach]:
    """Check that a hold that is over is removed at the next poll of a worker with a right clock."""
    for tenant, hold in world.book.holds.items():
        late = 0.0 if hold.until is None else world.store.wall - hold.until
        late = min(late, world.store.steady - hold.since_steady)  # it may be over when it arrives
        since = world.loop.time() - late
        right = (
            worker
            for worker in healthy(world, since)
            if worker.clock.offset_seconds == world.clock.offset_seconds
        )
        if late > HOLD_SECONDS and world.reset_at < since and any(right):
            yield "H4", f"the hold of {tenant} ended {late:.2f} s ago and is still there"


def wrongly_lost(world: SimulatedWorld, task: Task) -> Iterator[Breach]:
    """Check that a healthy worker keeps its leases, and a drained one has given them back."""
    lease, run = task.lease, world.book.holders.get(task.fence)
    if lease is None or (run is not None and run.stubborn):
        return
    ended = world.loop.time() - (world.store.now - lease.until)
    for worker in (*world.workers, *world.gone):
        if worker.name != lease.owner or worker.frozen or not (worker.alive or worker.drained):
            continue
        if worker.trouble_until < ended - world.profile.lease_seconds - POLL_SECONDS:
            yield "L1", f"{worker.name} is well and has lost its lease"


def healthy(world: SimulatedWorld, since: float) -> Iterator[WorkerActor]:
    """Return the workers that had no trouble since that time, nor shortly before it."""
    for worker in world.workers:
        well = worker.trouble_until < since - 1.0 and worker.born_at < since - 1.0
        if well and worker.worker is not None and not worker.drain_asked.is_set():
            yield worker
