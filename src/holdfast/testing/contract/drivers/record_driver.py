"""The base of the drivers of plans and of triggers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from holdfast.domain.audit import Audit
from holdfast.domain.plan.plan import Plan, PlanStatus
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Kept, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import build_audit

A_YEAR = 366 * 86_400.0

Record = TypeVar("Record", Plan, Trigger)


class DueRecords(NamedTuple, Generic[Record]):
    records: tuple[Record, ...]
    next_seconds: float | None


class RecordDriver(ABC, Generic[Record]):
    kept: ClassVar[Kept]

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self._numbers = count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    @abstractmethod
    async def start(self, owner: str = "", **fields: Any) -> Record:
        """Create a record that is due, and claim it."""

    @abstractmethod
    async def settle(self, record: Record, **fields: Any) -> Record:
        """End the record."""

    @abstractmethod
    async def create_due(self, seconds: float) -> Record:
        """Create a record that is due in so many seconds."""

    @abstractmethod
    async def all_ids(self, **where: Any) -> list[str]:
        """Return the ids of all records, page by page."""

    async def create_settled(self, *, after_seconds: float = 0.0, **fields: Any) -> Record:
        record = await self.start(**fields)
        self.clock.advance(after_seconds)
        return await self.settle(record)

    @abstractmethod
    async def claim(self, owner: str = "", **options: Any) -> DueRecords[Record]:
        """Claim the records that are due, as the instance ``owner``."""

    async def claim_ids(self, *owner: str, **options: Any) -> list[str]:
        return [record.id for record in (await self.claim(*owner, **options)).records]

    async def take_one(self, *owner: str) -> Record:
        """Claim the one record that is due."""
        (record,) = (await self.claim(*owner)).records
        return record

    async def next_seconds(self) -> float | None:
        """Return in how many seconds to look again; nothing may be due."""
        due = await self.claim("nobody")
        assert due.records == ()
        return due.next_seconds

    def audit(self, record: Record, command: str) -> Audit:
        paused = PlanStatus.PAUSED  # a trigger's status has the same name
        return build_audit(self.clock, record.id, command, before=record.status, after=paused)

    async def prune(self, **terms: Any) -> int:
        defaults = {"older_than_seconds": 0.0, "limit": 100, "dry_run": False}
        return await self.store.admin.prune(self.kept, **(defaults | terms))
