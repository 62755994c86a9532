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
    TRIGGERS = "triggers"  # that have ended
    PLANS = "plans"  # settled ones
    CHECKPOINTS = "checkpoints"  # of settled tasks
    TOMBSTONES = "tombstones"
    AUDIT = "audit"
    WORKERS = "workers"  # that were not seen any more


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not agree (see `doctor`)."""

    invariant: str  # "I11"
    task_id: str | None
    message: str
    mended: bool


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the store that decides what a crash may cost, looked at when it is opened, and
    when somebody asks."""

    name: str  # "persistence"
    good: bool
    message: str


class AdminStore(Protocol):
    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        """Delete what ended longer ago than that; tasks, triggers and plans keep at least their
        own ``keep_seconds``, unless ``ignore_keep``."""

    async def doctor(
        self,
        *,
        fix: bool,
        limit: int,
        seen: Callable[[int], None] | None = None,
        every_seconds: float | None = None,
    ) -> Sequence[Finding]:
        """Compare everything. ``seen`` is told, from any thread, how many tasks were compared.

        With ``every_seconds`` only what could have parted without a defect of ours is compared,
        and only if nobody has within that time: workers ask for it again and again."""

    async def checks(self) -> Sequence[Check]:
        """Check the store's settings again; ``durable`` is then as they are now."""

    async def audit(self, entry: Audit) -> None:
        """Write down a refusal, or what was done beside the tasks. What is done to a task, a plan
        or a trigger is written with it."""

    async def seal(self, *, limit: int) -> int:
        """Take written entries into the chain of audits and return how many. A store that writes
        them there at once has nothing to do."""

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]: ...

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        """Return the links behind that number, the oldest first."""

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        """Switch something off, or on again. False: it stood so already; it is written down all
        the same.

        While a tenant's HOLD is off, ``tasks.claim`` passes its task over, wherever it would come
        from. ``until`` ends a hold: from then on it forbids nothing, another may take its place,
        and to set it back answers False. With ``on`` only a hold that ended then is set back; if
        it is another one, or not over by the store's clock, nothing is done or written down.

        While the INTAKE of a queue is off, ``tasks.insert`` answers Shut, unless the key is known,
        and ``triggers.apply`` NoRoom. While its CLAIMING is off, ``tasks.claim`` passes it by;
        switched on again, it signals READY. ``tasks.leave`` sets the worker's DRAIN back."""

    async def switches(self) -> Sequence[SwitchSetting]:
        """Return what is switched off."""

    async def observe(self, batch: Sequence[Timings]) -> None:
        """Add to what was counted before. A repeat counts twice: these are for looking at."""
