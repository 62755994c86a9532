"""A store of triggers that knows nothing of tasks, as a user may write one, passes the contract."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Full, Insertion, IntakeClosed
from holdfast.domain.trigger.trigger import (
    Changed,
    NoRoom,
    Overlapping,
    TriggerChange,
    TriggerOutcome,
    with_last_task,
)
from holdfast.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.triggers import MemoryTriggers
from holdfast.testing.contract.triggers import SeparateTriggerStoreContract


class TwoSteps(MemoryTriggers):
    """First the tasks, by the verbs of a store of tasks; then the change, in its own database."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.state)
        self.store = store

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        return [await self._fire(change, depth_limit) for change in batch]

    async def _fire(self, change: TriggerChange, depth_limit: int) -> TriggerOutcome:
        there = await self.find(change.after.id)
        if there is None or there.version != change.before.version:
            return await self._write(change)
        if last := change.unless_unfinished:
            (task,) = await self.store.views.load([last])
            if task is not None and unfinished(task):
                return Overlapping(last)
        made = await self.store.tasks.insert(change.submissions, depth_limit=depth_limit)
        if full := [answer.queue for answer in made if isinstance(answer, Full | IntakeClosed)]:
            return NoRoom(full[0])
        return await self._write(change, made)

    async def _write(self, change: TriggerChange, made: Sequence[Insertion] = ()) -> TriggerOutcome:
        after = with_last_task(change, made)
        alone = replace(change, after=after, submissions=(), unless_unfinished=None)
        (outcome,) = await super().apply([alone], depth_limit=0)
        return replace(outcome, tasks=tuple(made)) if isinstance(outcome, Changed) else outcome


def unfinished(task: Task) -> bool:
    return task.place not in (Place.PARKED, Place.SETTLED)


class TestSeparateTriggers(SeparateTriggerStoreContract):
    async def open(self, clock: Clock) -> Store:
        store = MemoryStore(clock)
        store.triggers = TwoSteps(store)
        return store
