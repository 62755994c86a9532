"""A person's way to a plan: load, decide, compare and swap, and write down who asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.domain import names
from holdfast.domain.errors import Contended, PlanNotFound, Refused
from holdfast.domain.plan import commands
from holdfast.domain.plan.commands import Members
from holdfast.domain.plan.plan import Plan, PlanApplied, PlanChange, PlanCommand
from holdfast.domain.task.operate import Ask
from holdfast.domain.task.task import By
from holdfast.ports import Clock, Store
from holdfast.runtime.ids import new_id

TRIES = 20

WITH_MEMBERS = frozenset({PlanCommand.RETRY, PlanCommand.ROLLBACK})

Decision = Callable[[Plan, Ask], PlanChange]
MembersDecision = Callable[[Plan, Members, Ask], PlanChange]


class PlanControl:
    def __init__(
        self, store: Callable[[], Store], clock: Clock, chance: random.Random, by: By
    ) -> None:
        self._store, self._clock, self._chance, self._by = store, clock, chance, by

    def acting_as(self, actor: str, origin: str = "") -> PlanControl:
        by = By(actor=names.check_text("actor", actor), origin=names.check_text("origin", origin))
        return PlanControl(self._store, self._clock, self._chance, by)

    async def pause(self, plan_id: str, *, reason: str = "") -> Plan:
        return await self._ask(plan_id, PlanCommand.PAUSE, commands.pause, reason)

    async def resume(self, plan_id: str, *, reason: str = "") -> Plan:
        return await self._ask(plan_id, PlanCommand.RESUME, commands.resume, reason)

    async def cancel(self, plan_id: str, *, reason: str = "") -> Plan:
        return await self._ask(plan_id, PlanCommand.CANCEL, commands.cancel, reason)

    async def retry(self, plan_id: str, *, reason: str = "") -> Plan:
        """The failed tasks run again; from their checkpoints."""
        return await self._swap(plan_id, PlanCommand.RETRY, commands.retry, reason)

    async def rollback(
        self, plan_id: str, *, wave: int | None = None, force: bool = False, reason: str = ""
    ) -> Plan:
        """All of it, or the tasks of one wave (from 1); ``force``: over newer work, too."""
        decision = partial(commands.rollback, wave=wave, force=force)
        return await self._swap(plan_id, PlanCommand.ROLLBACK, decision, reason)

    async def can(self, plan_id: str, command: PlanCommand) -> bool:
        [plan] = await self._store().plans.find([names.normalised(plan_id)])
        if plan is None:
            raise PlanNotFound(plan_id)
        return plan.can(command)

    async def _ask(
        self, plan_id: str, command: PlanCommand, decision: Decision, reason: str
    ) -> Plan:
        return await self._swap(plan_id, command, lambda plan, _, ask: decision(plan, ask), reason)

    async def _swap(
        self, plan_id: str, command: PlanCommand, decision: MembersDecision, reason: str
    ) -> Plan:
        """The members change with the version only: those that are read after the plan are its
        own, or the write is refused."""
        plans, plan_id = self._store().plans, names.normalised(plan_id)
        by = By(
            actor=self._by.actor,
            origin=self._by.origin,
            reason=names.check_text("reason", reason),
        )
        ask = Ask(by=by, now=self._clock.now(), request=new_id(self._clock, self._chance))
        for _ in range(TRIES):
            [plan] = await plans.find([plan_id])
            if plan is None:
                raise PlanNotFound(plan_id)
            if plan.asked == ask.request:
                return plan  # it was written, and its answer was lost
            members = await plans.members(plan_id) if command in WITH_MEMBERS else {}
            try:
                change = decision(plan, members, ask)
            except Refused as error:
                await self._store().audit(commands.refusal(plan, command, ask, error.code))
                raise
            outcome = await plans.apply(change)
            if isinstance(outcome, PlanApplied):
                return outcome.plan
        raise Contended(f"plan {plan_id}", TRIES)
