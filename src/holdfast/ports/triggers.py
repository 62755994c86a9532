"""The trigger part of a store.

Ours keep triggers beside tasks, so that a change and the tasks it makes are one step. Whoever keeps
them in a database of his own, away from the tasks, inserts the tasks first and then writes the
change: the keys of the tasks name trigger and fire time, so that a repeat makes no second one.
`holdfast.testing.contract.triggers` is the suite for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.domain.trigger.trigger import Trigger, TriggerChange, TriggerOutcome, TriggerStatus


class DueTriggers(msgspec.Struct, frozen=True, kw_only=True):
    triggers: tuple[Trigger, ...]
    next_seconds: float | None  # until there is something to look at; None: nothing waits


class TriggerPage(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of their ids."""

    triggers: tuple[Trigger, ...]
    cursor: str | None


class TriggerStore(Protocol):
    async def save(self, trigger: Trigger) -> Trigger:
        """Put it there, whatever was there; as saved, with an id and the next version. Durable."""

    async def remove(self, trigger_id: str) -> bool:
        """True once, then False."""

    async def find(self, trigger_id: str) -> Trigger | None: ...

    async def find_due(self, upto: float, *, limit: int = 100) -> Sequence[Trigger]:
        """Those with ``trigger_at`` ≤ ``upto`` that nobody works on, the earliest first."""

    async def find_all_pending(
        self, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage: ...

    async def find_all(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        declared: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        """A page may be short and still have a next one: a look is bounded.

        ``declared``: only those that code declares. There are few of them among many, and every
        worker asks at its start: it must not cost a look at all the others."""

    async def acquire_lease(
        self, trigger_id: str, owner: str, *, lease_seconds: float = 30.0
    ) -> Trigger | None:
        """None: it is somebody else's, or it waits for no time. Its owner gets it again."""

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        """Hand out what is due by the store's wall clock (or by ``upto``), and what a lapsed lease
        has left behind; that counts as a failed try."""

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        """Each change with its tasks is one step. A repeat is answered as the first was.

        A change to version 0 makes a trigger where there is none; else it is stale."""
