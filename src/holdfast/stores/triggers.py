"""The trigger part of a store, as far as memory, SQLite and Redis have it in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from holdfast.domain import names
from holdfast.domain.trigger.trigger import (
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStatus,
    TriggerWrite,
)
from holdfast.ports import DueTriggers, TriggerPage


class TriggerFilter(msgspec.Struct, frozen=True):
    statuses: frozenset[TriggerStatus]
    tenant: str | None
    declared: bool

    def matches(self, trigger: Trigger) -> bool:
        is_among = trigger.status in self.statuses and self.tenant in (None, trigger.tenant)
        return is_among and (trigger.declared or not self.declared)


class StoredTriggers(ABC):
    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        if trigger_id is not None:
            return await self._claim_one(trigger_id, owner, lease_seconds)
        return await self._claim_due(owner, upto, limit, lease_seconds)

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        for change in batch:
            self._check(change)
        if all(change.write is TriggerWrite.COMPARE for change in batch):
            return await self._compare_and_write(batch, depth_limit)
        outcomes: list[TriggerOutcome] = []
        for change in batch:
            if change.write is TriggerWrite.COMPARE:
                outcomes += await self._compare_and_write([change], depth_limit)
            else:
                outcomes.append(await self._write_over(change))
        return outcomes

    async def find_all(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        declared: bool = False,
        due_by: float | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        if due_by is not None:
            due = await self._find_due(due_by, limit)
            return TriggerPage(triggers=tuple(due), cursor=None)
        if cursor is not None:
            self._check_id(cursor)
        where = TriggerFilter(frozenset(statuses or TriggerStatus), tenant, declared)
        return await self._find_page(where, limit, cursor)

    def _check_id(self, trigger_id: str) -> None:
        names.check("trigger", trigger_id)

    def _check(self, change: TriggerChange) -> None:
        """Refuse a change that could not be written."""
        is_new = change.write is TriggerWrite.COMPARE and change.before.version == 0
        if is_new or change.write is TriggerWrite.SAVE:
            self._check_id(change.after.id)

    @abstractmethod
    async def _claim_one(
        self, trigger_id: str, owner: str, lease_seconds: float
    ) -> DueTriggers: ...

    @abstractmethod
    async def _claim_due(
        self, owner: str, upto: float | None, limit: int, lease_seconds: float
    ) -> DueTriggers: ...

    @abstractmethod
    async def _compare_and_write(
        self, batch: Sequence[TriggerChange], depth_limit: int
    ) -> list[TriggerOutcome]: ...

    @abstractmethod
    async def _write_over(self, change: TriggerChange) -> TriggerOutcome:
        """Save or remove a trigger, whatever version is there."""

    @abstractmethod
    async def _find_due(self, due_by: float, limit: int) -> Sequence[Trigger]: ...

    @abstractmethod
    async def _find_page(
        self, where: TriggerFilter, limit: int, cursor: str | None
    ) -> TriggerPage: ...
