"""The driver of a plan: one instance at a time drives it, under a lease.

A step polls the tasks, writes down what they have become and which of them get a slot, and then
asks of the tasks what the plan wants of them. Slots are written before a task is let go. Whatever
a step does not get to, or dies over, the next one finds again in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from holdfast.clock import new_id
from holdfast.domain.backoff import doubled_seconds
from holdfast.domain.errors import StoreError
from holdfast.domain.plan import members as mem
from holdfast.domain.plan import rollout
from holdfast.domain.plan.members import MemberTask
from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanNext, PlanStale, PlanStatus
from holdfast.domain.plan.rollout import PlanObservation
from holdfast.domain.task.state import Command
from holdfast.ports import Topic
from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.plans.admission import Admission, BusyTenants
from holdfast.runtime.plans.driver_lease import DriverLease
from holdfast.runtime.plans.poll import TaskPoll
from holdfast.runtime.plans.snapshot import PlanSnapshot
from holdfast.runtime.plans.task_gateway import TaskGateway

log = logging.getLogger("holdfast.plans")

STEP_SECONDS = (0.02, 0.32)  # so that a step sees many tasks end; doubled while there is no news
POLL_SECONDS = 1.0  # when nothing signals

REFUSED = {
    Command.ROLLBACK: MemberState.ROLLBACK_FAILED,
    Command.RETRY: MemberState.FAILED,
    Command.RESUME: MemberState.PAUSED,
}


class PlanDriver:
    def __init__(self, plan: Plan, env: WorkerEnvironment) -> None:
        self._plan_id = plan.id
        self._store, self._clock, self._chance = env.store, env.clock, env.chance
        self._outages = env.outages
        self._lease = DriverLease(plan, env)
        self._gateway = TaskGateway(env.store, env.clock, env.worker)
        self._busy = BusyTenants(env.clock)
        self._poll = TaskPoll(env.clock, self._busy)
        self._admission = Admission(self._gateway, self._busy)
        self._snapshot: PlanSnapshot | None = None
        self._refused: dict[int, Member] = {}  # their state after a refused command
        self._quiet_steps = 0
        self._still: set[int] = set()  # the tasks that have a slot and rest

    async def run(self) -> None:
        """Drive until the plan needs no driver, or belongs to another one."""
        while True:
            tickets = {topic: self._store.ticket(topic) for topic in (Topic.RESTED, Topic.DUE)}
            try:
                if not await self._lease.keep():
                    return
                more = await self._step()
            except StoreError as error:
                self._outages.note(error)
                more = False
            if more is None:
                return
            # While others' tasks stop all the time, ours need not be read each time.
            self._quiet_steps = 0 if more else self._quiet_steps + 1
            await sleep(self._clock, doubled_seconds(STEP_SECONDS, self._quiet_steps))
            if not more:
                await self._until_signal(tickets)

    async def give_back(self) -> None:
        """Let another driver go on at once: this process ends."""
        await self._lease.give_back()

    async def _until_signal(self, tickets: Mapping[Topic, int]) -> None:
        waits = [
            asyncio.ensure_future(self._store.wait(topic, ticket, timeout=POLL_SECONDS))
            for topic, ticket in tickets.items()
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(*waits)

    # -- one step

    async def _step(self) -> bool | None:
        """Return whether there may be more to do at once; None: the plan needs no driver."""
        snapshot = self._snapshot = self._snapshot or await self._load()
        if snapshot is None:
            return None
        tasks = await self._load_tasks(snapshot)
        seen = await self._judge(snapshot, tasks)
        change = rollout.advance(
            snapshot.plan,
            snapshot.members,
            seen,
            now=self._clock.now(),
            request=new_id(self._clock, self._chance),
        )
        if change is None:
            if (there := await self._reload(snapshot)) is not snapshot.plan:
                return self._begin_again(there)
        else:
            asked_at = self._clock.steady()
            outcome = await self._store.plans.apply(change, lease_seconds=self._lease.seconds)
            if isinstance(outcome, PlanStale):
                return self._begin_again(outcome.plan)
            self._lease.note_renewed(asked_at)
            snapshot.write(change, outcome.plan)
            if change.next is not PlanNext.DRIVE:
                return None
        sent = await self._send(snapshot, tasks)
        passed_over = self._admission.passed_over
        return change is not None or sent > 0 or passed_over or self._poll.goes_on

    async def _load(self) -> PlanSnapshot | None:
        [plan] = await self._store.plans.load([self._plan_id])
        tasks = await self._store.plans.tasks(self._plan_id)
        members = await self._store.plans.members(self._plan_id)
        if plan is None or tasks is None or not self._lease.is_on(plan):
            return None
        snapshot = PlanSnapshot(plan, tasks, members)
        self._poll.begin(snapshot)
        return snapshot

    async def _reload(self, snapshot: PlanSnapshot) -> Plan | None:
        """Load the plan where nothing is written: else a person's request would go unseen."""
        [plan] = await self._store.plans.load([snapshot.plan.id])
        is_same = plan is not None and plan.version == snapshot.plan.version
        return snapshot.plan if is_same and plan and self._lease.is_on(plan) else plan

    def _begin_again(self, plan: Plan | None) -> bool | None:
        """Forget the plan that a person, or the driver that has taken over, has written to."""
        self._snapshot = None
        return True if plan is not None and self._lease.is_on(plan) else None

    async def _load_tasks(self, snapshot: PlanSnapshot) -> dict[int, MemberTask]:
        indexes = {snapshot.tasks.ids[index]: index for index in self._poll.indexes(snapshot)}
        tasks = {
            indexes[task_id]: task
            for task_id, task in (await self._gateway.load([*indexes])).items()
        }
        self._poll.note(snapshot, tasks)
        return tasks

    # -- deciding

    async def _judge(
        self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask]
    ) -> PlanObservation:
        """Return what the tasks have become, and which of them get a slot."""
        plan, tenants = snapshot.plan, snapshot.tasks.tenants
        moves, self._refused = self._refused, {}
        refused = [i for i, m in moves.items() if m.state is MemberState.ROLLBACK_FAILED]
        for index, task in tasks.items():
            member = snapshot.member(index)
            after = mem.observe_member(plan, index, member, task)
            if after != member and index not in moves:
                moves[index] = after
        # A task that can be undone only now may be the newest: it is for the next step.
        rolls_back = plan.status is PlanStatus.ROLLING_BACK
        comes_later = rolls_back and any(mem.to_undo(plan, i, m) for i, m in moves.items())
        room = 0 if comes_later else snapshot.room_after(moves)
        others = {index: task for index, task in tasks.items() if index not in moves}
        chosen = await self._admission.choose(snapshot, others, room)
        skipped = [i for i, m in chosen.items() if m.state is MemberState.SKIPPED]
        return PlanObservation(
            moves=moves,
            chosen=chosen,
            moving=self._is_moving(snapshot, tasks) or not self._poll.is_complete,
            skipped=tuple(tenants[i] or "" for i in skipped),
            refused=tuple(tenants[i] or "" for i in refused),
        )

    def _is_moving(self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask]) -> bool:
        """Return whether a task may be on its way: one with a slot that was not seen to stop, or
        one without a slot that a person resumed."""
        slotted = snapshot.slotted
        for index in slotted & tasks.keys():
            task = tasks[index]
            if task.moving or mem.is_due(snapshot.member(index), task):
                self._still.discard(index)
            else:
                self._still.add(index)
        self._still &= slotted
        by_hand = any(task.moving for index, task in tasks.items() if index not in slotted)
        return by_hand or not slotted <= self._still

    # -- sending

    async def _send(self, snapshot: PlanSnapshot, tasks: Mapping[int, MemberTask]) -> int:
        """Send the tasks the commands that the plan wants of them; return how many."""
        plan = snapshot.plan
        commands = [
            (task.task, command)
            for index, task in tasks.items()
            if task.task is not None
            and (command := mem.next_command(plan, index, snapshot.member(index), task.task))
        ]
        if not commands or not self._lease.is_safe:
            return 0
        result = await self._gateway.send(plan, commands)
        by_task = {task.id: command for task, command in commands}
        for index in tasks:
            task_id = snapshot.tasks.ids[index]
            if task_id in result.busy:
                self._busy.put_off(index)
            elif task_id in result.moved_on:
                log.warning("plan %s: newer work has superseded task %s", plan.id, task_id)
                self._refused[index] = Member(REFUSED[by_task[task_id]], tasks[index].version or 0)
        busy = [(task, Command.HOLD_BACK) for task, _ in commands if task.id in result.busy]
        if busy:  # the next step takes their slots back
            await self._gateway.send(plan, busy)
        return result.sent
