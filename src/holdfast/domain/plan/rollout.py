"""The roll-out of a plan: wave by wave to its end, to a halt, or back.

The driver observes the tasks (`members.py`) and passes its observation to `advance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.plan import events as ev
from holdfast.domain.plan.commands import Members, apply_command, count_moves, fact, starting
from holdfast.domain.plan.members import ready_to_undo, to_undo
from holdfast.domain.plan.plan import (
    MACHINE,
    SLOTTED,
    MemberState,
    Moves,
    OnHalt,
    Plan,
    PlanChange,
    PlanCommand,
    PlanNext,
    PlanStatus,
)

M, P = MemberState, PlanStatus

UNENDED = (*SLOTTED, M.AGAIN, M.PAUSED)
DRIVEN = frozenset({P.READY, P.RUNNING, P.ROLLING_BACK})  # a driver works on it without a request


class PlanObservation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The findings of the driver when it has looked at the tasks once."""

    moves: Moves  # the members that have changed
    chosen: Moves = {}  # members that get a slot or are skipped, if the status stays
    moving: bool  # a task with a slot runs, or a command is on its way
    skipped: tuple[str, ...] = ()  # tenants
    refused: tuple[str, ...] = ()  # tenants whose tasks cannot be undone


class RolloutStep(msgspec.Struct, frozen=True, gc=False):
    """The next step of the plan; by default it stays as it is."""

    command: PlanCommand = PlanCommand.ADVANCE
    changes: Mapping[str, Any] = {}
    events: tuple[ev.PlanEvent, ...] = ()


STAYS = RolloutStep()


def advance(
    plan: Plan, members: Members, found: PlanObservation, *, now: float, request: str
) -> PlanChange | None:
    """Record the observation, and go one step further if the plan can. None: nothing changed."""
    now_is = replace(plan, counts=count_moves(plan, members, found.moves))
    step = _step(now_is, {**members, **found.moves}, now)
    if step.command is not PlanCommand.ADVANCE:
        found = replace(found, chosen={}, skipped=())
    moves = {**found.moves, **found.chosen}
    ran = plan.wave_ran or any(member.state is M.ADMITTED for member in moves.values())
    changes = {"counts": count_moves(plan, members, moves), "wave_ran": ran, **step.changes}
    events = (*_observation_events(plan, found, now), *step.events)
    after = apply_command(plan, step.command, now=now, request=request, **changes)
    next_, delay_seconds = _next(after, found.moving, now)
    if not events and next_ is PlanNext.DRIVE:
        return None
    return PlanChange(
        before=plan,
        after=after,
        lease=plan.lease.id if plan.lease else None,
        moves=tuple(moves.items()),
        events=events or (fact(ev.PlanAdvanced, plan, now),),
        next=next_,
        delay_seconds=delay_seconds,
    )


def _observation_events(plan: Plan, found: PlanObservation, now: float) -> Iterator[ev.PlanEvent]:
    if found.skipped:
        yield fact(ev.TenantsSkipped, plan, now, tenants=found.skipped)
    if found.refused:
        yield fact(ev.RollbackRefused, plan, now, tenants=found.refused)
    if moves := {**found.moves, **found.chosen}:
        states = tuple((index, str(member.state)) for index, member in moves.items())
        yield fact(ev.PlanAdvanced, plan, now, moved=states)


def _step(plan: Plan, members: Members, now: float) -> RolloutStep:
    step = STAYS
    match plan.status:
        case _ if plan.cancel_requested:
            step = _cancelling(plan, members, now)
        case P.READY:
            step = RolloutStep(PlanCommand.START, {"started_at": now}, starting(plan, now))
        case P.RUNNING:
            step = _running(plan, members, now)
        case P.HALTED if plan.on_halt is not OnHalt.PAUSE:
            step = _unwinding(plan, now)
        case P.ROLLING_BACK:
            step = _rolling_back(plan, members, now)
        case P.PARTIAL_FAILED | P.FAILED:
            step = _step_when_mended(plan, now)
        case P.ROLLBACK_FAILED:
            step = _undone_by_hand(plan, now)
    return step


def _cancelling(plan: Plan, members: Members, now: float) -> RolloutStep:
    if plan.count(*SLOTTED, M.AGAIN, M.PAUSED, M.FAILED, M.ROLLBACK_FAILED) or plan.all_waiting:
        return STAYS
    if _skips(members):
        return STAYS
    cancelled = fact(ev.PlanCancelled, plan, now)
    return RolloutStep(PlanCommand.FINISH_CANCEL, {"cancel_requested": False}, (cancelled,))


def _skips(members: Members) -> bool:
    """Return whether skipped tasks have yet to be cancelled."""
    return any(member.state is M.SKIPPED and member.version for member in members.values())


def _running(plan: Plan, members: Members, now: float) -> RolloutStep:
    wave, size = plan.wave, plan.size(plan.wave)
    is_last = wave == len(plan.waves) - 1
    failed = plan.count(M.FAILED, wave=wave)
    rule = plan.halt_on
    if rule is not None and rule.broken_by(max(0, failed - plan.forgiven), size):
        why = f"{failed} of the {size} tasks of wave {wave + 1} have failed; it halts at {rule}"
        halted = fact(ev.PlanHalted, plan, now, wave=wave + 1, why=why)
        return RolloutStep(PlanCommand.HALT, {"reason": why, "soaks_since": None}, (halted,))
    # A person may set a task going again, even one of a wave that has ended.
    if plan.waiting(wave) or plan.count(*UNENDED, wave=None if is_last else wave):
        forgiven = min(plan.forgiven, failed)  # a repaired task does not forgive another failure
        return RolloutStep(PlanCommand.ADVANCE, {"soaks_since": None, "forgiven": forgiven})
    if not is_last:
        return _next_wave(plan, now)
    return STAYS if _skips(members) else _ending(plan, now)


def _next_wave(plan: Plan, now: float) -> RolloutStep:
    wave, events = plan.wave, list[ev.PlanEvent]()
    if plan.soaks_since is None:
        completed, failed = (plan.count(state, wave=wave) for state in (M.COMPLETED, M.FAILED))
        events.append(
            fact(ev.WaveEnded, plan, now, wave=wave + 1, completed=completed, failed=failed)
        )
        if plan.soak_seconds and plan.wave_ran:
            return RolloutStep(PlanCommand.ADVANCE, {"soaks_since": now}, tuple(events))
    elif plan.soaks_since > now:  # written by a clock that is ahead of ours
        return RolloutStep(PlanCommand.ADVANCE, {"soaks_since": now})
    elif soaks_seconds(plan, now) > 0:
        return STAYS
    events.append(fact(ev.WaveStarted, plan, now, wave=wave + 2, tasks=plan.size(wave + 1)))
    changes = {"wave": wave + 1, "wave_ran": False, "soaks_since": None, "forgiven": 0}
    return RolloutStep(PlanCommand.ADVANCE, changes, tuple(events))


def soaks_seconds(plan: Plan, now: float) -> float:
    """Return how long the present wave still soaks."""
    if plan.soaks_since is None:
        return 0.0
    return min(plan.soak_seconds, max(0.0, plan.soaks_since + plan.soak_seconds - now))


def _ending(plan: Plan, now: float) -> RolloutStep:
    """Return the step that ends the plan; skipped and cancelled tasks are no failures."""
    failed = plan.count(M.FAILED, M.ROLLBACK_FAILED)
    why = {"reason": _unlike_completed(plan)}
    if failed and plan.count(M.COMPLETED):
        partly = fact(ev.PlanPartlyFailed, plan, now, failed=failed)
        return RolloutStep(PlanCommand.END_PARTLY, why, (partly,))
    if failed:
        return RolloutStep(PlanCommand.FAIL, why, (fact(ev.PlanFailed, plan, now, failed=failed),))
    if plan.count(M.CANCELLED) == plan.total:
        return RolloutStep(PlanCommand.FINISH_CANCEL, {}, (fact(ev.PlanCancelled, plan, now),))
    return RolloutStep(PlanCommand.COMPLETE, why, (fact(ev.PlanCompleted, plan, now),))


def _unlike_completed(plan: Plan) -> str | None:
    """Describe the tasks that did not complete: ``3 failed, 2 skipped, of 200``."""
    counts = [
        f"{n} {state}"
        for state in MemberState
        if state not in (M.COMPLETED, M.WAITING)
        if (n := plan.count(state))
    ]
    return f"{', '.join(counts)}, of {plan.total}" if counts else None


def _step_when_mended(plan: Plan, now: float) -> RolloutStep:
    """Return the step of an ended plan whose failures a person may have repaired by hand."""
    if plan.count(*UNENDED):
        return STAYS
    step = _ending(plan, now)
    if MACHINE.can(plan.status, step.command):
        return step
    return RolloutStep(PlanCommand.ADVANCE, {"reason": _unlike_completed(plan)})


def _undone_by_hand(plan: Plan, now: float) -> RolloutStep:
    if plan.count(M.UNDOING, M.ROLLBACK_FAILED) or not ready_to_undo(plan):
        return STAYS
    why = {"reason": _unlike_completed(plan)}
    return RolloutStep(PlanCommand.FINISH_ROLLBACK, why, (fact(ev.PlanRolledBack, plan, now),))


def _unwinding(plan: Plan, now: float) -> RolloutStep:
    whole = plan.on_halt is OnHalt.ROLLBACK_PLAN
    scope = range(plan.total) if whole else plan.span(plan.wave)
    changes = {"undo_from": scope.start, "undo_upto": scope.stop, "undo_forced": False}
    rolling = fact(ev.PlanRollingBack, plan, now, tasks=len(scope))
    return RolloutStep(PlanCommand.UNWIND, changes, (rolling,))


def _rolling_back(plan: Plan, members: Members, now: float) -> RolloutStep:
    if not ready_to_undo(plan) or plan.count(M.UNDOING) or _skips(members):
        return STAYS
    if any(to_undo(plan, index, member) for index, member in members.items()):
        return STAYS
    if failed := plan.count(M.ROLLBACK_FAILED):
        event = fact(ev.PlanRollbackFailed, plan, now, failed=failed)
        return RolloutStep(PlanCommand.FAIL_ROLLBACK, {"reason": _unlike_completed(plan)}, (event,))
    return RolloutStep(PlanCommand.FINISH_ROLLBACK, {}, (fact(ev.PlanRolledBack, plan, now),))


def _next(plan: Plan, moving: bool, now: float) -> tuple[PlanNext, float]:
    """Return who looks at the plan next, and after how long."""
    if plan.settled:
        return PlanNext.SETTLED, 0.0
    unwinds = plan.status is P.HALTED and plan.on_halt is not OnHalt.PAUSE
    if plan.status in DRIVEN or plan.cancel_requested or unwinds:
        soaks = 0.0 if plan.cancel_requested else soaks_seconds(plan, now)
        return (PlanNext.LOOK, soaks) if soaks and not moving else (PlanNext.DRIVE, 0.0)
    return (PlanNext.DRIVE, 0.0) if moving else (PlanNext.REST, 0.0)
