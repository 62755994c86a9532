"""Retention, repair, switches and audits in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from holdfast.domain.audit import Audit, Chain
from holdfast.ports import Check, Finding, Kept, Switch, SwitchSetting, Timings, Topic
from holdfast.stores import codec
from holdfast.stores.memory.doctor import examine
from holdfast.stores.memory.state import MemoryState, TaskBodies


class MemoryAdmin:
    def __init__(self, state: MemoryState) -> None:
        self._state, self._lock = state, state.lock

    # -- retention

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        with self._lock:
            clock = self._state.now if kind is Kept.WORKERS else self._state.clock.now
            before = clock() - older_than_seconds
            outdated = list(self._find_outdated(kind, before, ignore_keep=ignore_keep))[:limit]
            for name in () if dry_run else outdated:
                self._remove(kind, name)
            if kind is Kept.WORKERS and not dry_run:
                self._state.forget_strangers()
            return len(outdated)

    def _find_outdated(self, kind: Kept, before: float, *, ignore_keep: bool) -> Iterable[str]:
        state, now = self._state, self._state.clock.now()
        match kind:
            case Kept.TASKS | Kept.TRIGGERS | Kept.PLANS:
                return (
                    name
                    for name, at, keep_seconds in self._end_times(kind)
                    if at is not None and at < before and (ignore_keep or at + keep_seconds <= now)
                )
            case Kept.CHECKPOINTS:
                return (
                    name
                    for name, at, _ in self._end_times(Kept.TASKS)
                    if at is not None and at < before and state.bodies[name].checkpoint is not None
                )
            case Kept.TOMBSTONES:
                return (i for i, t in state.tombstones.items() if t.until < min(before, now))
            case Kept.AUDIT:
                old = takewhile(lambda link: link.entry.at < before, state.links)
                return (str(link.seq) for link in old)
            case Kept.WORKERS:
                return (name for name, (_, seen) in state.workers.items() if seen < before)

    def _end_times(self, kind: Kept) -> Iterable[tuple[str, float | None, float]]:
        """Yield each record's id, when it ended, and how long it is kept at least."""
        match kind:
            case Kept.TRIGGERS:
                triggers = self._state.triggers.values()
                return ((t.id, t.ended_at, t.keep_seconds) for t in triggers)
            case Kept.PLANS:
                plans = (shelf.plan for shelf in self._state.plans.values())
                return ((plan.id, plan.settled_at, plan.keep_seconds) for plan in plans)
        return ((t.id, t.settled_at, t.keep_seconds) for t in self._state.tasks.values())

    def _remove(self, kind: Kept, name: str) -> None:
        match kind:
            case Kept.TASKS:
                self._state.delete(name)
            case Kept.TRIGGERS:
                del self._state.triggers[name]
            case Kept.PLANS:
                del self._state.plans[name]
            case Kept.CHECKPOINTS:
                self._drop_checkpoint(self._state.bodies[name])
            case Kept.TOMBSTONES:
                self._state.free_key(self._state.tombstones.pop(name).task)
            case Kept.AUDIT:
                gone = self._state.links.pop(0)  # the oldest come first
                self._state.base = gone.anchor
                self._state.base_at = max(self._state.base_at or 0.0, gone.entry.at)
            case Kept.WORKERS:
                self._state.forget_worker(name)

    def _drop_checkpoint(self, bodies: TaskBodies) -> None:
        """Drop the checkpoint; the stages' own records live on, as a task may still be rolled
        back."""
        if bodies.data is None and bodies.checkpoint is not None:
            bodies.data = codec.custom_data(bodies.checkpoint)
        bodies.checkpoint = None

    # -- repair

    async def doctor(
        self,
        *,
        fix: bool,
        limit: int,
        seen: Callable[[int], None] | None = None,
        every_seconds: float | None = None,
    ) -> Sequence[Finding]:
        del fix  # what is wrong in memory was put there by a defect: nothing can be repaired
        if every_seconds is not None:
            return ()
        with self._lock:
            findings = examine(self._state)[:limit]
            number = len(self._state.tasks)
        if seen is not None:
            seen(number)
        return findings

    async def checks(self) -> Sequence[Check]:
        message = "nothing is kept across a restart of this process"
        return [Check(name="persistence", good=False, message=message)]

    # -- measures

    async def observe(self, batch: Sequence[Timings]) -> None:
        with self._lock:
            for new in batch:
                whose = (new.type, new.stage, new.outcome)
                there = self._state.timings.get(whose)
                self._state.timings[whose] = new if there is None else there.plus(new)

    # -- switches

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        with self._lock:
            stored = self._state.switches.get((switch, name))
            was_off = self._state.is_off(switch, name)
            if on and until is not None and (stored is None or stored.until != until or was_off):
                return False
            self._state.note(audit)
            if on:
                self._set_back(switch, name)
            elif not was_off:
                self._state.switches[switch, name] = SwitchSetting(
                    switch=switch, name=name, by=audit.by, at=audit.at, until=until
                )
            return was_off is on

    def _set_back(self, switch: Switch, name: str) -> None:
        setting = self._state.switches.pop((switch, name), None)
        if setting is not None and switch in (Switch.CLAIMING, Switch.HOLD):
            self._state.signals.notify(Topic.READY)

    async def switches(self) -> Sequence[SwitchSetting]:
        with self._lock:
            return list(self._state.switches.values())

    # -- audits

    async def audit(self, entry: Audit) -> None:
        with self._lock:
            self._state.note(entry)
            if entry.refused is not None:
                self._state.refused[f"{entry.before} {entry.command}"] += 1

    async def seal(self, *, limit: int) -> int:
        """Return 0: each entry was linked when it was written."""
        del limit
        return 0

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        with self._lock:
            start = int(cursor or 0)
            return [link.entry for link in self._state.links[::-1][start : start + limit]]

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        with self._lock:
            start = max(0, after - self._state.base.seq)
            links = tuple(self._state.links[start : start + limit])
            return Chain(
                base=self._state.base,
                head=self._state.head(),
                links=links,
                base_at=self._state.base_at,
            )
