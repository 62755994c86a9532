"""A person who holds tenants and releases them, and what must hold meanwhile.

Nothing of a held tenant is claimed (H1). A worker that has seen the hold begins no stage (H2).
A task that is given back is the tenant's next, uncounted, with its checkpoint (H3). A hold that is
over is removed (H4, in `liveness.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.domain.errors import HoldfastError, StoreError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.ports import Switch
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.services.drain_watch import POLL_SECONDS
from holdfast.runtime.worker.worker import Worker
from verify.simulation.checks.book import Breach, Hold, Invocation, RecordMove, WorldBook
from verify.simulation.loop import Process

if TYPE_CHECKING:
    from verify.simulation.actors.actors import Actor
    from verify.simulation.stores.watched_store import WatchedStore

KNOWN_SECONDS = POLL_SECONDS + 1.0  # a worker without trouble has seen a hold by then
LASTS_SECONDS = (2.0, 8.0, 15.0)
FOR_A_HOLD = "its tenant is held"


class TenantHand:
    """A person who handles tenants by way of an actor's app."""

    def __init__(self, actor: Actor) -> None:
        self._actor, self._world = actor, actor.world
        self._app, self._chance = actor.app, actor.chance

    async def main(self) -> None:
        world, pace = self._world, self._world.profile.hold_every_seconds
        async with self._app:
            while True:
                await sleep(self._actor.clock, self._chance.expovariate(1 / pace))
                try:
                    await self._meddle()
                except StoreError:
                    continue
                except HoldfastError as refused:
                    world.count(f"refused {refused.code}")

    async def _meddle(self) -> None:
        """Hold a tenant for a while, with an end or until the release, which may be forgotten."""
        tenants, chance = self._world.profile.tenants, self._chance
        tenant, seconds = f"t{chance.randrange(min(tenants, 5))}", chance.choice(LASTS_SECONDS)
        ends = chance.random() < 0.4
        await self._app.tenants.hold(tenant, reason="wait", until=f"{seconds}s" if ends else None)
        if chance.random() < 0.2:
            return
        await sleep(self._actor.clock, seconds)
        await self._app.tenants.release(tenant)

    async def release_all(self) -> None:
        async with self._app:
            for hold in await self._app.store.admin.switches():
                await self._app.tenants.release(hold.name)


def check_switch(
    book: WorldBook, store: WatchedStore, tenant: str, *, on: bool, until: float | None
) -> Iterator[Breach]:
    """Note a hold or a release as it must be; the store must agree."""
    hold = book.hold_of(tenant, store.wall)
    if not on:
        book.counts["hold"] += hold is None
        if hold is None:
            book.holds[tenant] = Hold(since_steady=store.steady, until=until)
    elif until is None:
        book.counts["release"] += hold is not None
        book.holds.pop(tenant, None)
    elif hold is None and tenant in book.holds and book.holds[tenant].until == until:
        book.counts["hold over"] += 1
        del book.holds[tenant]
    stored = {
        one.name for (switch, _), one in store.state.switches.items() if switch is Switch.HOLD
    }
    if stored != book.holds.keys():
        yield "H1", f"held are {sorted(stored)}, and should be {sorted(book.holds)}"


def check_claims(store: WatchedStore, moves: Iterable[RecordMove]) -> Iterator[Breach]:
    for move in moves:
        task = move.after
        if task is not None and store.book.hold_of(task.tenant, store.wall) is not None:
            yield "H1", f"{task.id} was handed out while {task.tenant} is held"


def may_begin(store: WatchedStore, run: Invocation, task: Task) -> Iterator[Breach]:
    """A worker begins no stage of a tenant that it has seen held; and one without trouble has seen
    each hold in time, but that it judges by its own clock whether one with an end is over."""
    if task.tenant in _seen_held(run.process):
        yield "H2", f"{run.stage} starts, and its worker has seen that {task.tenant} is held"
    hold = store.book.hold_of(task.tenant, store.wall)
    if hold is None or hold.until is not None:
        return
    since = hold.since_steady
    well = run.process.trouble_until < since - 1.0 and run.process.thawed_at < since
    if well and store.steady - since > KNOWN_SECONDS:
        lasts = store.steady - since
        yield "H2", f"{run.stage} starts, its tenant is held for {lasts:.2f} s"


def _seen_held(process: Process) -> Collection[str]:
    """Return the tenants that were held when the worker in a process last looked."""
    worker: Worker | None = getattr(process, "worker", None)
    return () if worker is None else tuple(worker.held_tenants)


def check_given_back(store: WatchedStore, move: RecordMove) -> Iterator[Breach]:
    before, after = move.before, move.after
    if before is None or after is None or not move.events:
        return
    last = move.events[-1]
    if not isinstance(last, ev.TaskYielded) or last.reason != FOR_A_HOLD:
        return
    store.book.counts["given back for a hold"] += 1
    counts = ("failures", "crashes", "lapses", "last_completed", "next_undo", "run", "epoch")
    for name in counts:
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield "H3", f"it was given back for a hold, and {name} went from {was} to {now}"
    if after.place is not Place.READY or store.state.tenants[after.tenant or ""].active != after.id:
        yield "H3", f"it was given back for a hold, and is {after.place}, not its tenant's next"
    # The last commit of a task removes its checkpoint, so one that is rolled back has none to lose.
    has_checkpoint = 0 <= after.last_completed < len(after.stages) - 1
    if has_checkpoint and store.state.bodies[after.id].checkpoint is None:
        yield "H3", "it was given back for a hold, and has lost its checkpoint"
