"""The end of a world with triggers and plans, once everything bad has stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.domain.errors import Refused
from holdfast.domain.plan.members import RESTS
from holdfast.domain.plan.plan import WAITING, MemberState, Plan, PlanStatus
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.trigger.trigger import UNFINISHED, Overlap, TriggerCommand, TriggerStatus
from verify.simulation.actors import planner, trigger_actors

if TYPE_CHECKING:
    from verify.simulation.actors.actors import Actor
    from verify.simulation.world import SimulatedWorld

ANSWER_SECONDS = 120.0  # four leases of a scheduler
SLACK_SECONDS = 3.0
LAST_ROUNDS = 12  # after so many rounds of decisions, the person only cancels


async def wait_for_triggers(world: SimulatedWorld) -> None:
    """Wait until every fire time that is due is answered (I12)."""
    ends = world.loop.time() + ANSWER_SECONDS
    while late := list(_find_unanswered(world)):
        if world.loop.time() > ends:
            world.fail("I12", f"its time is not answered for: {late[0]}")
        await asyncio.sleep(0.5)


def _find_unanswered(world: SimulatedWorld) -> Iterator[str]:
    """Name the triggers whose fire time has come and that have nothing to wait for."""
    for trigger in world.store.triggers._state.triggers.values():
        waits = trigger.status in (TriggerStatus.PENDING, TriggerStatus.PROCESSING)
        fire_time, wall = trigger.fire_time, world.store.wall
        late = SLACK_SECONDS + trigger.jitter_seconds
        may_wait = trigger.overlap is Overlap.QUEUE or "full" in (trigger.reason or "")
        # One that was put off waits by the wall clock, and that may have been set back since.
        may_wait |= (trigger.trigger_at or 0.0) > wall and world.reset_at > 0.0
        if waits and fire_time is not None and fire_time < wall - late and not may_wait:
            yield f"{trigger}"


async def cancel_triggers(world: SimulatedWorld, person: Actor) -> None:
    """Cancel all triggers, which would otherwise fire for ever."""
    hand = trigger_actors.TriggerHand(person)
    async with person.app:
        for trigger in list(world.store.triggers._state.triggers.values()):
            if trigger.status in UNFINISHED:
                handle = await person.app.schedule.get(trigger.id)
                with suppress(Refused):  # it may end at the same time
                    await hand.ask(handle, TriggerCommand.CANCEL)


# -- plans


def moving_plans(world: SimulatedWorld) -> list[Plan]:
    """Return the plans that are not parked and do not wait for a person's decision on a task."""
    plans = (shelf.plan for shelf in world.store.plans._state.plans.values())
    return [plan for plan in plans if not waits_for_a_person(plan) and not _is_blocked(world, plan)]


def waits_for_a_person(plan: Plan) -> bool:
    is_unsealed = plan.status is PlanStatus.CREATED and not plan.cancel_requested
    return plan.is_stopped or is_unsealed


def _is_blocked(world: SimulatedWorld, plan: Plan) -> bool:
    """Return whether a task of the plan, or the active task of its tenant, waits for a person."""
    tasks, members = world.store.state.tasks, world.store.plans._state.plans[plan.id].members
    for index, task_id in enumerate(world.store.plans.book.ids[plan.id]):
        task = tasks.get(task_id)
        waits = members.get(index, WAITING).state in (MemberState.WAITING, MemberState.AGAIN)
        if task is None or task.tenant is None or (task.settled and not waits):
            continue
        active = tasks.get(world.store.state.tenants[task.tenant].active or "")
        if task.status is Status.PAUSED or task.place is Place.LINE:
            return True
        if active is not None and active.id != task_id and active.place is Place.PARKED:
            return True
    return False


async def decide_plans(world: SimulatedWorld, person: Actor, *, at_last: bool) -> None:
    hand = planner.PlanHand(person)
    async with person.app:
        for shelf in list(world.store.plans._state.plans.values()):
            if not shelf.plan.settled and waits_for_a_person(shelf.plan):
                with suppress(Refused):  # it may end at the same time; if not, it is met again
                    await hand.decide(shelf.plan, at_last=at_last)


def judge_plans(world: SimulatedWorld) -> None:
    """Check that each plan has settled as its tasks have, with an event for every version."""
    book = world.store.plans.book
    for plan_id, shelf in world.store.plans._state.plans.items():
        plan = shelf.plan
        if not plan.settled:
            world.fail("L4", f"{plan_id} is {plan.status} in the end")
        versions = sorted({event.version for event in shelf.events})
        if versions != list(range(1, plan.version + 1)):
            world.fail("I15", f"{plan_id}: version {plan.version} has events of {versions}")
        for index, member in shelf.members.items():
            task = world.store.state.tasks.get(book.ids[plan_id][index])
            if task is None or task.id in book.touched or member.state is MemberState.SKIPPED:
                continue
            if RESTS.get(task.status) is not member.state:
                world.fail("ended", f"for {plan_id} it is {member.state}: {task.status}", task.id)
