"""The admission of a plan's tasks: who of the begun waves gets a slot, and whose tenant is busy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from holdfast.domain.plan import members as mem
from holdfast.domain.plan.members import MemberTask
from holdfast.domain.plan.plan import Member, MemberState, Moves, PlanStatus, TenantConflict
from holdfast.domain.task.task import Task
from holdfast.ports import Clock
from holdfast.runtime.plans.snapshot import PlanSnapshot
from holdfast.runtime.plans.task_gateway import TaskGateway

BUSY_SECONDS = (1.0, 4.0)  # until a busy tenant is checked again; doubled each time


class BusyTenants:
    """The tasks that wait because their tenants were busy, each for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}
        self._seconds: dict[int, float] = {}

    def now(self) -> Collection[int]:
        """Return the tasks whose tenants are not checked again yet."""
        now = self._clock.steady()
        self._until = {index: at for index, at in self._until.items() if at > now}
        return self._until

    def put_off(self, index: int) -> None:
        least, most = BUSY_SECONDS
        seconds = self._seconds.get(index, least)
        self._until[index] = self._clock.steady() + seconds
        self._seconds[index] = min(most, 2 * seconds)


class Admission:
    def __init__(self, gateway: TaskGateway, busy: BusyTenants) -> None:
        self._gateway, self._busy = gateway, busy
        self.passed_over = False  # a busy tenant was passed over: the tasks behind it come next

    async def choose(
        self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask], room: int
    ) -> Moves:
        """Return the tasks that get one of the free slots, to be let go or to be undone."""
        plan = snapshot.plan
        self.passed_over = False
        if plan.cancel_requested or room <= 0:
            return {}
        if plan.status is PlanStatus.ROLLING_BACK and mem.ready_to_undo(plan):
            members = {index: snapshot.member(index) for index in tasks}
            to_undo = (i for i, member in members.items() if mem.to_undo(plan, i, member))
            return {i: mem.undoing(members[i], tasks[i]) for i in islice(to_undo, room)}
        if plan.status is PlanStatus.RUNNING:
            return await self._admit(snapshot, tasks, room)
        return {}

    async def _admit(
        self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask], room: int
    ) -> Moves:
        ids, tenants, plan = snapshot.tasks.ids, snapshot.tasks.tenants, snapshot.plan
        waiting = [
            index
            for index, task in tasks.items()
            if mem.may_be_admitted(snapshot.member(index), task)
        ]
        by_tenant = {ids[i]: tenant for i in waiting if (tenant := tenants[i]) is not None}
        busy = await self._gateway.busy(by_tenant) if by_tenant else {}
        moves: dict[int, Member] = {}
        for index in waiting:
            version = tasks[index].version or 0
            if ids[index] not in busy:
                if room > 0:
                    moves[index] = Member(MemberState.ADMITTED, version)
                room -= 1
            elif plan.conflict is TenantConflict.SKIP and _plan_of(busy[ids[index]]) != plan.id:
                moves[index] = Member(MemberState.SKIPPED, version)
            else:
                self._busy.put_off(index)
                self.passed_over = True
        return moves


def _plan_of(task: Task | None) -> str | None:
    return None if task is None else task.plan
