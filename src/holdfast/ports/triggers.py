"""The trigger part of a store.

Our stores keep triggers beside tasks, so that a change and its tasks are written in one step. A
user who keeps triggers in another database inserts the tasks first and then writes the change: the
keys of the tasks contain the trigger and the fire time, so a repeat makes no second task.
`holdfast.testing.contract.triggers` is the suite for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.domain.trigger.trigger import Trigger, TriggerChange, TriggerOutcome, TriggerStatus


class DueTriggers(msgspec.Struct, frozen=True, kw_only=True):
    triggers: tuple[Trigger, ...]
    next_seconds: float | None  # until the next trigger is due; None: none waits


class TriggerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Triggers in the order of their ids."""

    triggers: tuple[Trigger, ...]
    cursor: str | None


class TriggerStore(Protocol):
    """The verbs that a store of triggers implements; `trigger_shortcuts` derives the others."""

    async def find(self, trigger_id: str) -> Trigger | None:
        """Return the trigger of this id; None: there is no such trigger."""

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
        """Return a page in the order of ids; a short page may have a next one, as each search is
        bounded.

        ``declared``: only those that code declares. They are few among many, and every worker
        asks at its start: the call must not read all the others.

        ``due_by``: only free triggers with ``trigger_at`` ≤ that time, the earliest first, in one
        page; the other filters and the cursor do not count then. It costs O(log N + k)."""

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        """Lease the triggers that are due by the store's wall clock (or by ``upto``), and those of
        lapsed leases; a lapsed lease counts as a failed attempt.

        ``trigger_id``: only that one, whenever it is due, also if this owner has it already; not
        if another owner has it, or it waits for no time. Then ``next_seconds`` is None."""

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        """Write each change with its tasks in one step. A repeat gets the first answer.

        A change to version 0 makes a trigger where there is none; else it is stale. A change that
        saves or removes compares no version (`TriggerWrite`); to remove a missing one is stale."""
