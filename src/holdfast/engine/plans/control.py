"""Commands of an operator to a plan: each is decided, written once and recorded in the audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.domain import names
from holdfast.domain.errors import PlanNotFound, Refused
from holdfast.domain.plan import commands
from holdfast.domain.plan.commands import Members
from holdfast.domain.plan.plan import Plan, PlanApplied, PlanChange, PlanCommand
from holdfast.domain.task.operate import OperatorRequest
from holdfast.engine.actor_calls import ActorCalls
from holdfast.runtime.compare_and_swap import compare_and_swap

WITH_MEMBERS = frozenset({PlanCommand.RETRY, PlanCommand.ROLLBACK})

Decision = Callable[[Plan, OperatorRequest], PlanChange]
MembersDecision = Callable[[Plan, Members, OperatorRequest], PlanChange]


class PlanControl(ActorCalls):
    """The commands to plans, by their ids; each returns the plan afterwards."""

    async def pause(self, plan_id: str, *, reason: str = "") -> Plan:
        """Pause a plan: it releases no task, and running ones pause."""
        return await self._ask(plan_id, PlanCommand.PAUSE, commands.pause, reason)

    async def resume(self, plan_id: str, *, reason: str = "") -> Plan:
        """Resume a plan; after a halt, the failures so far no longer count."""
        return await self._ask(plan_id, PlanCommand.RESUME, commands.resume, reason)

    async def cancel(self, plan_id: str, *, reason: str = "") -> Plan:
        """Cancel the tasks of a plan that have not ended."""
        return await self._ask(plan_id, PlanCommand.CANCEL, commands.cancel, reason)

    async def retry(self, plan_id: str, *, reason: str = "") -> Plan:
        """Run the failed tasks again, from their checkpoints."""
        return await self._swap(plan_id, PlanCommand.RETRY, commands.retry, reason)

    async def rollback(
        self, plan_id: str, *, wave: int | None = None, force: bool = False, reason: str = ""
    ) -> Plan:
        """Undo the plan, or the tasks of one wave (from 1); ``force``: over newer work, too."""
        decision = partial(commands.rollback, wave=wave, force=force)
        return await self._swap(plan_id, PlanCommand.ROLLBACK, decision, reason)

    async def can(self, plan_id: str, command: PlanCommand) -> bool:
        """Return whether the command is legal now."""
        return (await self._load(names.normalise(plan_id))).can(command)

    async def _ask(
        self, plan_id: str, command: PlanCommand, decision: Decision, reason: str
    ) -> Plan:
        return await self._swap(plan_id, command, lambda plan, _, ask: decision(plan, ask), reason)

    async def _swap(
        self, plan_id: str, command: PlanCommand, decision: MembersDecision, reason: str
    ) -> Plan:
        """Write a decision over the plan and its members.

        Members change only with the plan's version: those that are loaded after the plan belong to
        it, or the write is refused.
        """
        app, plans, plan_id = self._app, self._app.store.plans, names.normalise(plan_id)
        ask = self._new_request(reason)

        async def write(plan: Plan) -> Plan | None:
            if plan.asked == ask.request:
                return plan  # it was written, and its answer was lost
            members = await plans.members(plan_id) if command in WITH_MEMBERS else {}
            outcome = await plans.apply(decision(plan, members, ask))
            return outcome.plan if isinstance(outcome, PlanApplied) else None

        async def record_refusal(plan: Plan, error: Refused) -> None:
            await app.store.admin.audit(commands.refusal(plan, command, ask, error.code))

        return await compare_and_swap(
            f"plan {plan_id}", lambda: self._load(plan_id), write, on_refusal=record_refusal
        )

    async def _load(self, plan_id: str) -> Plan:
        [plan] = await self._app.store.plans.load([plan_id])
        if plan is None:
            raise PlanNotFound(plan_id)
        return plan
