"""The triggers of a simulated world, examined after each of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.domain.trigger.trigger import (
    Changed,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerWrite,
)
from holdfast.ports import DueTriggers
from holdfast.stores.memory.triggers import MemoryTriggers
from verify.simulation.checks import trigger_steps, verbs
from verify.simulation.checks.book import Breach
from verify.simulation.checks.trigger_steps import TriggerBook

if TYPE_CHECKING:
    from verify.simulation.stores.watched_store import WatchedStore


class WatchedTriggers(MemoryTriggers):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.state)
        self._watched = store
        self.book = TriggerBook(store.book)

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        due = await super().claim(
            owner, upto=upto, trigger_id=trigger_id, limit=limit, lease_seconds=lease_seconds
        )
        self._watched.step("triggers.claim")
        now, wall = self._watched.now, self._watched.wall
        breaches = trigger_steps.handed_out(
            self.book, due.triggers, owner, now=now, wall=wall, is_due=trigger_id is None
        )
        self.judge(breaches)
        return due

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        answers = await super().apply(batch, depth_limit=depth_limit)
        if any(change.write is not TriggerWrite.COMPARE for change in batch):
            self._note_overwrites(batch, answers)
            return answers
        made = [
            pair
            for change, answer in zip(batch, answers, strict=True)
            if isinstance(answer, Changed) and answer.tasks
            for pair in zip(change.submissions, answer.tasks, strict=True)
        ]
        tenants = {one.task.tenant or one.task.id for one, _ in made}
        moves = self._watched.step("triggers.apply", tenants)
        breaches = trigger_steps.check_apply(self.book, batch, answers, self._state.triggers)
        self._watched.book.judge(breaches, self._watched.now)
        inserted = [one for one, _ in made], [answer for _, answer in made]
        self._watched.judge(verbs.check_insert(self._watched.book, *inserted, moves), moves)
        self.judge(())
        return answers

    def _note_overwrites(
        self, batch: Sequence[TriggerChange], answers: Sequence[TriggerOutcome]
    ) -> None:
        self._watched.step("triggers.apply")
        for change, answer in zip(batch, answers, strict=True):
            before = self.book.known.get(change.after.id)
            if change.write is TriggerWrite.REMOVE:
                self.book.forget(change.after.id)
            elif before is not None:
                self.book.count("saved over another")
                self.book.redefined.add(before.id)
            if change.write is TriggerWrite.SAVE and isinstance(answer, Changed):
                saved, version = answer.trigger, (before or change.after).version + 1
                wrong = f"{saved.id} was saved as {saved}"
                self.judge([("I4", wrong)] * (saved.version != version))
        self.judge(())

    def judge(self, breaches: Iterable[Breach]) -> None:
        judge, now, known = self._watched.book.judge, self._watched.now, self.book.known
        judge(breaches, now)
        for trigger in self._state.triggers.values():
            if known.get(trigger.id) is not trigger:
                judge(trigger_steps.in_place(trigger), now)
                self._accept(trigger)
        for trigger_id in [i for i in known if i not in self._state.triggers]:
            judge(trigger_steps.check_deleted(known[trigger_id], wall=self._watched.wall), now)
            self.book.forget(trigger_id)

    def _accept(self, trigger: Trigger) -> None:
        book, told = self._watched.book, f"v{trigger.version} {trigger.status} {trigger.owner}"
        self.book.known[trigger.id] = trigger
        self.book.written_at[trigger.id] = self._watched.now
        self.book.count(trigger.status)
        fire_time = f"{trigger.fire_time} fired {trigger.fired} missed {trigger.missed}"
        book.note(self._watched.now, f"{self._watched.caller} {trigger.id} {told} {fire_time}")
