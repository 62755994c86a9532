"""What the memory store deletes by age."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from holdfast.ports import Kept
from holdfast.stores import codec
from holdfast.stores.memory.plans import MemoryPlans
from holdfast.stores.memory.state import Bodies, Shelves
from holdfast.stores.memory.triggers import MemoryTriggers


class Pruning(Shelves):
    triggers: MemoryTriggers
    plans: MemoryPlans

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        asked: dict[str, Any] = {
            "older_than_seconds": older_than_seconds,
            "limit": limit,
            "dry_run": dry_run,
            "ignore_keep": ignore_keep,
        }
        match kind:
            case Kept.TRIGGERS:
                return await self.triggers.prune(**asked)
            case Kept.PLANS:
                return await self.plans.prune(**asked)
        with self._lock:
            clock = self._now if kind is Kept.WORKERS else self._clock.now
            before = clock() - older_than_seconds
            found = list(self._outdated(kind, before, ignore_keep=ignore_keep))[:limit]
            for name in () if dry_run else found:
                self._remove(kind, name)
            if kind is Kept.WORKERS and not dry_run:
                self._forget_strangers()
            return len(found)

    def _outdated(self, kind: Kept, before: float, *, ignore_keep: bool) -> Iterable[str]:
        now = self._clock.now()
        settled = [t for t in self._tasks.values() if t.settled_at is not None]
        match kind:
            case Kept.TASKS:
                return (
                    t.id
                    for t in settled
                    if t.settled_at is not None
                    and t.settled_at < before
                    and (ignore_keep or t.settled_at + t.keep_seconds <= now)
                )
            case Kept.CHECKPOINTS:
                return (
                    t.id
                    for t in settled
                    if t.settled_at is not None
                    and t.settled_at < before
                    and self._bodies[t.id].checkpoint is not None
                )
            case Kept.TOMBSTONES:
                return (i for i, t in self._tombstones.items() if t.until < min(before, now))
            case Kept.AUDIT:
                old = takewhile(lambda link: link.entry.at < before, self._links)
                return (str(link.seq) for link in old)
            case Kept.WORKERS:
                return (name for name, (_, seen) in self._workers.items() if seen < before)
        raise AssertionError(kind)

    def _remove(self, kind: Kept, name: str) -> None:
        match kind:
            case Kept.TASKS:
                self._delete(name)
            case Kept.CHECKPOINTS:
                self._drop_checkpoint(self._bodies[name])
            case Kept.TOMBSTONES:
                self._free_key(self._tombstones.pop(name).task)
            case Kept.AUDIT:
                gone = self._links.pop(0)  # the oldest come first
                self._base = gone.anchor
                self._base_at = max(self._base_at or 0.0, gone.entry.at)
            case Kept.WORKERS:
                self._forget_worker(name)

    def _drop_checkpoint(self, bodies: Bodies) -> None:
        """What the stages kept in it lives on: a task may still be rolled back."""
        if bodies.data is None and bodies.checkpoint is not None:
            bodies.data = codec.custom_data(bodies.checkpoint)
        bodies.checkpoint = None
