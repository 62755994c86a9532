"""`save`, `remove`, `find_due` and others, built from the four verbs of the trigger port."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from msgspec.structs import replace

from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import PENDING, Changed, Trigger, TriggerChange, TriggerWrite
from holdfast.ports.store import Store
from holdfast.ports.triggers import TriggerPage

NO_TASKS = 0  # the depth limit of a change without tasks, which needs no room in a queue


class TriggerShortcuts:
    """The trigger part of a store, with `save`, `remove` and the others beside its own verbs."""

    def __init__(self, store: Store) -> None:
        self._store, triggers = store, store.triggers
        self.find, self.find_all = triggers.find, triggers.find_all
        self.claim = self.find_due_with_lease = triggers.claim
        self.apply = triggers.apply

    async def save(self, trigger: Trigger) -> Trigger:
        """Write a trigger over any stored one; return it with its id and next version."""
        if not trigger.id:
            new_id = self._store.trigger_id(uuid4().hex, tenant=trigger.tenant)
            trigger = replace(trigger, id=new_id)
        change = TriggerChange(before=trigger, after=trigger, write=TriggerWrite.SAVE)
        (outcome,) = await self.apply([change], depth_limit=NO_TASKS)
        assert isinstance(outcome, Changed), outcome  # a save compares nothing
        return outcome.trigger

    async def remove(self, trigger_id: str) -> bool:
        """Delete a trigger; True once, then False."""
        named = Trigger(
            id=trigger_id,
            schedule=Once(at=0.0),
            target="",
            created_at=0.0,
            fire_time=None,
            trigger_at=None,
            updated_at=0.0,
        )
        change = TriggerChange(before=named, after=named, write=TriggerWrite.REMOVE)
        (outcome,) = await self.apply([change], depth_limit=NO_TASKS)
        return isinstance(outcome, Changed)

    async def find_due(self, upto: float, *, limit: int = 100) -> Sequence[Trigger]:
        """Return free triggers with ``trigger_at`` ≤ ``upto``, the earliest first."""
        return list((await self.find_all(due_by=upto, limit=limit)).triggers)

    async def find_all_pending(self, *, limit: int = 100, cursor: str | None = None) -> TriggerPage:
        """Return a page of triggers that wait for a time or that a scheduler has."""
        return await self.find_all(statuses=tuple(PENDING), limit=limit, cursor=cursor)

    async def acquire_lease(
        self, trigger_id: str, owner: str, *, lease_seconds: float = 30.0
    ) -> Trigger | None:
        """Lease one trigger; None: another owner has it, or it waits for no time."""
        handed_out = await self.claim(owner, trigger_id=trigger_id, lease_seconds=lease_seconds)
        return next(iter(handed_out.triggers), None)
