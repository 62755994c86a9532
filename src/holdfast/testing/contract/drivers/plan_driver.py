"""The driver of plans acts as an instance that drives a plan and as a person, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.plan.events import PlanAdvanced, PlanCreated, PlanEvent
from holdfast.domain.plan.plan import (
    SETTLED,
    Member,
    MemberState,
    Moves,
    Plan,
    PlanApplied,
    PlanChange,
    PlanNext,
    PlanOutcome,
    PlanStale,
    PlanStatus,
    PlanTasks,
)
from holdfast.ports import Kept, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.record_driver import DueRecords, RecordDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, collect_ids

ADMITTED = Member(MemberState.ADMITTED, 1)
COMPLETED = Member(MemberState.COMPLETED, 3)
FAILED = Member(MemberState.FAILED, 4)


class PlanStoreDriver(RecordDriver[Plan]):
    kept = Kept.PLANS

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self.port = store.plans

    # -- create

    def build(self, name: str | None = None, *, size: int = 4, **fields: Any) -> Plan:
        now = self.clock.now()
        waves = fields.pop("waves", (size,))
        defaults: dict[str, Any] = {
            "id": name or f"plan-{self.next_number():04d}",
            "total": size,
            "digest": "digest-1",
            "waves": waves,
            "created_at": now,
            "status_since": now,
            "updated_at": now,
            "counts": tuple({} for _ in waves),
        }
        return Plan(**(defaults | fields))

    async def create(self, name: str | None = None, *, size: int = 4, **fields: Any) -> Plan:
        return await self.put(self.build(name, size=size, **fields))

    async def put(self, plan: Plan) -> Plan:
        created = PlanCreated(
            plan_id=plan.id, version=plan.version, at=plan.created_at, total=plan.total
        )
        return await self.port.create(plan, tasks_of(plan), [created])

    async def ready(
        self, name: str | None = None, *, delay_seconds: float = 0.0, **fields: Any
    ) -> Plan:
        """Create a plan and seal it; it is due after the delay."""
        plan = await self.create(name, **fields)
        return await self.ask(plan, status=PlanStatus.READY, delay_seconds=delay_seconds)

    async def start(self, owner: str = "d-1", **fields: Any) -> Plan:
        """Create a plan, seal it and claim it; no other may be due."""
        await self.ready(**fields)
        return await self.take_one(owner)

    async def create_due(self, seconds: float) -> Plan:
        return await self.ready(delay_seconds=seconds)

    async def settle(self, record: Plan, **fields: Any) -> Plan:
        return await self.drive(record, status=PlanStatus.COMPLETED, **fields)

    # -- hold

    async def claim(self, owner: str = "d-1", **options: Any) -> DueRecords[Plan]:
        due = await self.port.claim(
            owner, **({"limit": 100, "lease_seconds": LEASE_SECONDS} | options)
        )
        return DueRecords(due.plans, due.next_seconds)

    async def renew(self, plan: Plan, lease_seconds: float = LEASE_SECONDS) -> bool:
        return await self.port.renew(plan.id, lease_id(plan), lease_seconds=lease_seconds)

    # -- decide

    async def decide(
        self, plan: Plan, *, next: PlanNext | None = None, **options: Any
    ) -> PlanChange:
        """Decide a change as the driver, which keeps its lease unless ``next`` says otherwise."""
        if next is None:
            ends = options.get("status", plan.status) in SETTLED
            next = PlanNext.SETTLED if ends else PlanNext.DRIVE
        return await self.change(plan, next=next, lease=lease_id(plan), **options)

    async def request(
        self, plan: Plan, *, next: PlanNext = PlanNext.LOOK, **options: Any
    ) -> PlanChange:
        return await self.change(plan, next=next, **options)

    async def change(
        self,
        plan: Plan,
        *,
        next: PlanNext,
        lease: str | None = None,
        moves: Moves | None = None,
        events: Sequence[PlanEvent] | None = None,
        delay_seconds: float = 0.0,
        audit: Audit | None = None,
        **fields: Any,
    ) -> PlanChange:
        version, now, moves = plan.version + 1, self.clock.now(), moves or {}
        status = fields.get("status", plan.status)
        members = {**await self.port.members(plan.id), **moves}
        decided: dict[str, Any] = {
            "version": version,
            "updated_at": now,
            "settled_at": now if status in SETTLED else None,
            "counts": counts_of(plan, members),
            "request": f"request-{self.next_number()}",
        }
        if events is None:
            events = [PlanAdvanced(plan_id=plan.id, version=version, at=now)]
        return PlanChange(
            before=plan,
            after=replace(plan, **(decided | fields)),
            lease=lease,
            moves=tuple(moves.items()),
            events=tuple(events),
            next=next,
            delay_seconds=delay_seconds,
            audit=audit,
        )

    # -- write

    async def commit(self, change: PlanChange, *, lease_seconds: float = LEASE_SECONDS) -> Plan:
        outcome = await self.port.apply(change, lease_seconds=lease_seconds)
        assert isinstance(outcome, PlanApplied), f"{change.after.id}: {outcome}"
        return outcome.plan

    async def drive(self, plan: Plan, **options: Any) -> Plan:
        return await self.commit(await self.decide(plan, **options))

    async def ask(self, plan: Plan, **options: Any) -> Plan:
        return await self.commit(await self.request(plan, **options))

    async def expect_stale(self, change: PlanChange) -> Plan | None:
        """Expect the answer STALE and no trace of the write; return the present record."""
        before = await self.all_of(change.after.id)
        outcome: PlanOutcome = await self.port.apply(change)
        assert isinstance(outcome, PlanStale), f"{change.after.id}: {outcome}"
        assert await self.all_of(change.after.id) == before
        return outcome.plan

    # -- read

    async def load(self, plan: Plan) -> Plan:
        (loaded,) = await self.port.load([plan.id])
        assert loaded is not None, plan.id
        return loaded

    async def all_of(self, plan_id: str) -> tuple[object, ...]:
        (plan,) = await self.port.load([plan_id])
        return (
            plan,
            await self.port.tasks(plan_id),
            dict(await self.port.members(plan_id)),
            list(await self.port.events(plan_id, limit=10_000)),
            list(await self.store.admin.audits(limit=100)),
        )

    async def all_ids(self, *, limit: int = 100, **where: Any) -> list[str]:
        return await collect_ids(self.port.find, "plans", limit=limit, **where)


def lease_id(plan: Plan) -> str:
    assert plan.lease is not None, plan.id
    return plan.lease.id


def tasks_of(plan: Plan) -> PlanTasks:
    numbers = range(plan.total)
    return PlanTasks(
        ids=tuple(f"{plan.id}.task-{n}" for n in numbers),
        tenants=tuple(f"tenant-{n}" if n % 3 else None for n in numbers),
    )


def counts_of(plan: Plan, members: Moves) -> tuple[dict[MemberState, int], ...]:
    waves: list[Counter[MemberState]] = [Counter() for _ in plan.waves]
    for index, member in members.items():
        if member.state is not MemberState.WAITING:
            waves[plan.wave_of(index)][member.state] += 1
    return tuple(dict(counts) for counts in waves)
