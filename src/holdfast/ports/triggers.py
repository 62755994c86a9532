"""The trigger part of a store.

Our stores keep triggers beside tasks, so that a change and the tasks it makes are one step. A user
who keeps them in another database inserts the tasks first and then writes the change: the keys of
the tasks name trigger and fire time, so that a repeat makes no second one.
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
    """Triggers in the order of their ids."""

    triggers: tuple[Trigger, ...]
    cursor: str | None


class TriggerStore(Protocol):
    """The verbs that a store of triggers implements; `documented_triggers` derives the others."""

    async def find(self, trigger_id: str) -> Trigger | None: ...

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
        """Return a page in the order of ids; it may be short and still have a next one, since one
        look is bounded.

        ``declared``: only those that code declares. There are few of them among many, and every
        worker asks at its start: it must not cost a look at all the others.

        ``due_by``: only those with ``trigger_at`` ≤ that time that nobody works on, the earliest
        first, in one page; the other filters and the cursor do not count then. It costs
        O(log N + k)."""

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        """Hand out what is due by the store's wall clock (or by ``upto``), and what a lapsed lease
        has left behind; that counts as a failed try.

        ``trigger_id``: only that one, whenever it is due, and again if it is its owner who asks;
        not if it is somebody else's, or waits for no time."""

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        """Write each change with its tasks in one step. A repeat is answered as the first was.

        A change to version 0 makes a trigger where there is none; else it is stale. A change that
        saves or removes compares no version (`TriggerWrite`); to remove what is not there is
        stale."""
