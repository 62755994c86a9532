"""The trigger driver acts on a store of triggers as a scheduler, one step at a time."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger.schedule import Every
from holdfast.domain.trigger.trigger import (
    Changed,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerStatus,
)
from holdfast.ports import Kept, Store
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.record_driver import DueRecords, RecordDriver
from holdfast.testing.contract.drivers.store_driver import (
    LEASE_SECONDS,
    NO_LIMIT,
    StoreDriver,
    collect_ids,
)

A_MINUTE = 60.0


class TriggerDriver(RecordDriver[Trigger]):
    kept = Kept.TRIGGERS

    def __init__(self, store: Store, clock: ManualClock, driver: StoreDriver) -> None:
        super().__init__(store, clock)
        self.port, self.driver = TriggerShortcuts(store), driver

    # -- save

    def build(self, name: str | None = None, *, due_in: float = A_MINUTE, **fields: Any) -> Trigger:
        now = self.clock.now()
        name = f"trigger-{self.next_number():04d}" if name is None else name
        at = now + due_in
        defaults: dict[str, Any] = {
            "id": name and self.store.trigger_id(name, tenant=fields.get("tenant")),
            "schedule": Every(seconds=A_MINUTE, start=at),
            "target": "test.work",
            "created_at": now,
            "fire_time": at,
            "trigger_at": at,
            "updated_at": now,
        }
        return Trigger(**(defaults | fields))

    async def save(
        self, name: str | None = None, *, due_in: float = A_MINUTE, **fields: Any
    ) -> Trigger:
        return await self.port.save(self.build(name, due_in=due_in, **fields))

    async def save_due(self, name: str | None = None, **fields: Any) -> Trigger:
        return await self.save(name, due_in=0.0, **fields)

    async def create_due(self, seconds: float) -> Trigger:
        return await self.save(due_in=seconds)

    # -- lease

    async def start(self, owner: str = "s-1", **fields: Any) -> Trigger:
        """Save a trigger that is due, and lease it."""
        return await self.take(await self.save_due(**fields), owner)

    async def take(self, trigger: Trigger, owner: str = "s-1") -> Trigger:
        leased = await self.port.acquire_lease(trigger.id, owner, lease_seconds=LEASE_SECONDS)
        assert leased is not None, trigger.id
        return leased

    async def claim(self, owner: str = "s-1", **options: Any) -> DueRecords[Trigger]:
        due = await self.port.claim(owner, **({"lease_seconds": LEASE_SECONDS} | options))
        return DueRecords(due.triggers, due.next_seconds)

    # -- decide

    def submission(self, trigger: Trigger, **fields: Any) -> Submission:
        """Build the task of the trigger's fire time."""
        key = f"{trigger.id}@{trigger.fire_time:.0f}"
        return self.driver.submission(**({"key": key, "tenant": trigger.tenant} | fields))

    def change(
        self,
        trigger: Trigger,
        *submissions: Submission,
        unless_unfinished: str | None = None,
        audit: Audit | None = None,
        **fields: Any,
    ) -> TriggerChange:
        """Decide a change that gives the lease back; by default the next time is a minute later."""
        at = (trigger.fire_time or self.clock.now()) + A_MINUTE
        decided: dict[str, Any] = {
            "status": TriggerStatus.PENDING,
            "version": trigger.version + 1,
            "fire_time": at,
            "trigger_at": at,
            "last_fire_time": trigger.fire_time,
            "fired": trigger.fired + len(submissions),
            "updated_at": self.clock.now(),
            "request": f"request-{self.next_number()}",
            "owner": None,
            "lease_until": None,
        }
        return TriggerChange(
            before=trigger,
            after=replace(trigger, **(decided | fields)),
            submissions=submissions,
            unless_unfinished=unless_unfinished,
            audit=audit,
        )

    def decide_fire(self, trigger: Trigger, **options: Any) -> TriggerChange:
        return self.change(trigger, self.submission(trigger), **options)

    # -- write

    async def apply(self, change: TriggerChange, *, depth_limit: int = NO_LIMIT) -> TriggerOutcome:
        (outcome,) = await self.port.apply([change], depth_limit=depth_limit)
        return outcome

    async def commit(self, change: TriggerChange, *, depth_limit: int = NO_LIMIT) -> Changed:
        outcome = await self.apply(change, depth_limit=depth_limit)
        assert isinstance(outcome, Changed), f"{change.after.id}: {outcome}"
        return outcome

    async def fire(
        self, trigger: Trigger, *, depth_limit: int = NO_LIMIT, **options: Any
    ) -> Changed:
        return await self.commit(self.decide_fire(trigger, **options), depth_limit=depth_limit)

    async def settle(self, record: Trigger, **fields: Any) -> Trigger:
        ended: dict[str, Any] = {"status": TriggerStatus.COMPLETED, "ended_at": self.clock.now()}
        change = self.change(record, fire_time=None, trigger_at=None, **(ended | fields))
        return (await self.commit(change)).trigger

    async def expect_untouched(
        self, change: TriggerChange, *, depth_limit: int = NO_LIMIT
    ) -> TriggerOutcome:
        """Expect that a change is refused and leaves no trace; return the answer."""
        before = await self._all_of(change)
        outcome = await self.apply(change, depth_limit=depth_limit)
        assert not isinstance(outcome, Changed), outcome
        assert await self._all_of(change) == before
        return outcome

    async def expect_stale(self, change: TriggerChange) -> Trigger | None:
        outcome = await self.expect_untouched(change)
        assert isinstance(outcome, TriggerStale), outcome
        return outcome.trigger

    async def _all_of(self, change: TriggerChange) -> tuple[object, ...]:
        return (
            await self.port.find(change.after.id),
            await self.tasks(),
            await self.store.views.stats(),
            await self.store.admin.audits(limit=100),
        )

    # -- read

    async def load(self, trigger: Trigger) -> Trigger:
        stored = await self.port.find(trigger.id)
        assert stored is not None, trigger.id
        return stored

    async def tasks(self) -> list[str]:
        return sorted(await self.driver.find_ids())

    async def due(self, upto: float | None = None, **options: Any) -> list[str]:
        due = await self.port.find_due(self.clock.now() if upto is None else upto, **options)
        return [trigger.id for trigger in due]

    async def all_ids(self, *, limit: int = 100, pending: bool = False, **where: Any) -> list[str]:
        find = self.port.find_all_pending if pending else self.port.find_all
        return await collect_ids(find, "triggers", limit=limit, **where)


def json(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
