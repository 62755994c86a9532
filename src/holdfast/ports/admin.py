"""The admin part of a store: retention, repair, audits, switches and measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.domain.audit import Audit, Chain
from holdfast.ports.measures import Timings
from holdfast.ports.switches import Switch, SwitchSetting


class Kept(StrEnum):
    """The kinds of records that can be cleaned up by age."""

    TASKS = "tasks"  # settled ones, with all that belongs to them
    TRIGGERS = "triggers"  # ended ones
    PLANS = "plans"  # settled ones
    CHECKPOINTS = "checkpoints"  # of settled tasks
    TOMBSTONES = "tombstones"
    AUDIT = "audit"
    WORKERS = "workers"  # those that are gone


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A contradiction in the store, found by `doctor`."""

    invariant: str  # "I11"
    task_id: str | None
    message: str
    mended: bool

    def __str__(self) -> str:
        where = f", task {self.task_id}" if self.task_id else ""
        return f"{self.invariant}{where}: {self.message}{' (repaired)' if self.mended else ''}"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the store that decides what a crash may cost, checked at the start and later."""

    name: str  # "persistence"
    good: bool
    message: str


class AdminStore(Protocol):
    """The verbs for retention, repair, audits, switches and timings."""

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        """Delete records that ended longer ago and return how many. Tasks, triggers and plans are
        kept for at least their own ``keep_seconds``, unless ``ignore_keep``."""

    async def doctor(
        self,
        *,
        fix: bool,
        limit: int,
        seen: Callable[[int], None] | None = None,
        every_seconds: float | None = None,
    ) -> Sequence[Finding]:
        """Compare all records. ``seen`` gets the number of compared tasks, from any thread.

        With ``every_seconds``, compare only what can differ without a defect of ours, and only if
        nobody has done so within that time: workers call this again and again."""

    async def checks(self) -> Sequence[Check]:
        """Check the store's settings again, and update ``durable``."""

    async def audit(self, entry: Audit) -> None:
        """Record a refusal, or an action that changes no task, plan or trigger. A change of these
        is recorded with the change."""

    async def seal(self, *, limit: int) -> int:
        """Add recorded entries to the audit chain and return how many. A store that adds them at
        once has nothing to do."""

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        """Return audit entries, the newest first; ``cursor`` is how many of them to skip."""

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        """Return the links after that number, the oldest first."""

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        """Switch something off, or on again. False: it already was; it is audited all the same.

        While a tenant's HOLD is off, ``tasks.claim`` skips its task, whatever place it comes from.
        ``until`` ends a hold: from then on it forbids nothing, another hold may replace it, and to
        set it back answers False. With ``on``, ``until`` names the hold to set back: if there is
        another one, or it is not over by the store's clock, nothing is done or audited.

        While the INTAKE of a queue is off, ``tasks.insert`` answers IntakeClosed, unless the key is
        known, and ``triggers.apply`` answers NoRoom. While its CLAIMING is off, ``tasks.claim``
        skips the queue; switching it on signals READY. ``tasks.leave`` sets the worker's DRAIN
        back."""

    async def switches(self) -> Sequence[SwitchSetting]:
        """Return the settings of all switches that are off."""

    async def observe(self, batch: Sequence[Timings]) -> None:
        """Add timings to the stored ones. A repeat counts twice, as these are only shown."""
