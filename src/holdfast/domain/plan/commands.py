"""Commands that a person may give to a plan, and the command with which its creator seals it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.errors import IllegalTransition, InvalidPlan
from holdfast.domain.plan import events as ev
from holdfast.domain.plan.plan import (
    ENDED,
    MACHINE,
    WAITING,
    Counts,
    Member,
    MemberState,
    Moves,
    Plan,
    PlanChange,
    PlanCommand,
    PlanNext,
    PlanStatus,
)
from holdfast.domain.task.operate import OperatorRequest

Members = Mapping[int, Member]


def seal(plan: Plan, *, now: float, request: str) -> PlanChange:
    """Seal a plan when all its tasks are in the store."""
    after = apply_command(plan, PlanCommand.SEAL, now=now, request=request)
    return PlanChange(
        before=plan,
        after=after,
        events=(ev.PlanReady(plan_id=plan.id, version=after.version, at=now),),
        next=PlanNext.LOOK,
    )


def pause(plan: Plan, ask: OperatorRequest) -> PlanChange:
    return _by_person(plan, PlanCommand.PAUSE, ask, fact(ev.PlanPaused, plan, ask.now, by=ask.by))


def resume(plan: Plan, ask: OperatorRequest) -> PlanChange:
    """Resume the plan; after a halt, the failures of this wave so far are forgiven."""
    event = fact(ev.PlanResumed, plan, ask.now, by=ask.by)
    failed = plan.count(MemberState.FAILED, wave=plan.wave)
    changes: dict[str, Any] = {"reason": None}
    if plan.status is PlanStatus.HALTED:
        changes |= {"forgiven": failed}
    if plan.started_at is None:
        changes |= {"started_at": ask.now}
    change = _by_person(plan, PlanCommand.RESUME, ask, event, **changes)
    if plan.started_at is None:
        return replace(change, events=(*change.events, *starting(plan, ask.now)))
    return change


def cancel(plan: Plan, ask: OperatorRequest) -> PlanChange:
    """Cancel the plan once its driver has cancelled every task that has not ended."""
    event = fact(ev.PlanCancelRequested, plan, ask.now, by=ask.by)
    return _by_person(plan, PlanCommand.CANCEL, ask, event, cancel_requested=True, soaks_since=None)


def retry(plan: Plan, members: Members, ask: OperatorRequest) -> PlanChange:
    """Run the failed and rolled back tasks again, wave by wave, and then the others."""
    ended = (MemberState.FAILED, MemberState.ROLLED_BACK)
    again = Member(MemberState.AGAIN)
    moves = {index: again for index, member in members.items() if member.state in ended}
    event = fact(ev.PlanRetried, plan, ask.now, by=ask.by, tasks=len(moves))
    first = min((plan.wave_of(index) for index in moves), default=plan.wave)
    return _by_person(
        plan,
        PlanCommand.RETRY,
        ask,
        event,
        moves=moves,
        counts=count_moves(plan, members, moves),
        reason=None,
        wave=min(first, plan.wave),
        wave_ran=False,
        soaks_since=None,
        forgiven=0,
        undo_from=None,
        undo_upto=None,
        undo_forced=False,
    )


def rollback(
    plan: Plan,
    members: Members,
    ask: OperatorRequest,
    *,
    wave: int | None = None,
    force: bool = False,
) -> PlanChange:
    """Undo the tasks, the newest first; ``wave`` (from 1): only the tasks of that wave. After a
    failed rollback, continue from where it stopped."""
    scope = span_of(plan, wave)
    moves = {
        index: Member(MemberState.FAILED)
        for index, member in members.items()
        if member.state is MemberState.ROLLBACK_FAILED and index in scope
    }
    event = fact(ev.PlanRollingBack, plan, ask.now, tasks=len(scope), by=ask.by)
    return _by_person(
        plan,
        PlanCommand.ROLLBACK,
        ask,
        event,
        moves=moves,
        counts=count_moves(plan, members, moves),
        undo_from=scope.start,
        undo_upto=scope.stop,
        undo_forced=force,
        soaks_since=None,
    )


def span_of(plan: Plan, wave: int | None) -> range:
    if wave is None:
        return range(plan.total)
    if not 1 <= wave <= len(plan.waves):
        raise InvalidPlan(f"plan {plan.id} has waves 1 to {len(plan.waves)}, not {wave}")
    return plan.span(wave - 1)


def refusal(plan: Plan, command: PlanCommand, ask: OperatorRequest, code: str) -> Audit:
    return ask.audit(f"plan:{plan.id}", command, plan.status, plan.status, refused=code)


# The parts that these commands share with the driver's decisions.


def starting(plan: Plan, now: float) -> tuple[ev.PlanEvent, ev.PlanEvent]:
    started = fact(ev.PlanStarted, plan, now)
    return started, fact(ev.WaveStarted, plan, now, wave=1, tasks=plan.size(0))


def fact(kind: type[Any], plan: Plan, at: float, **facts: Any) -> ev.PlanEvent:
    event: ev.PlanEvent = kind(plan_id=plan.id, version=plan.version + 1, at=at, **facts)
    return event


def apply_command(
    plan: Plan, command: PlanCommand, *, now: float, request: str, **changes: Any
) -> Plan:
    """Return the record after ``command``, or raise IllegalTransition."""
    status = MACHINE.step(plan.status, command)
    after = replace(
        plan, **changes, status=status, version=plan.version + 1, updated_at=now, request=request
    )
    settled_at = (plan.settled_at or now) if after.settled else None
    progress = min(1.0, after.count(*ENDED) / after.total)
    after = replace(after, progress=progress, settled_at=settled_at)
    return after if status is plan.status else replace(after, status_since=now)


def count_moves(plan: Plan, members: Members, moves: Moves) -> tuple[Counts, ...]:
    """Return the counts of each wave after these moves; waiting tasks are not counted."""
    counts = [dict(of) for of in plan.counts]
    for index, member in moves.items():
        of = counts[plan.wave_of(index)]
        for state, by in ((members.get(index, WAITING).state, -1), (member.state, 1)):
            if state is not MemberState.WAITING:
                of[state] = of.get(state, 0) + by
    return tuple({state: count for state, count in of.items() if count} for of in counts)


def _by_person(
    plan: Plan,
    command: PlanCommand,
    ask: OperatorRequest,
    event: ev.PlanEvent,
    *,
    moves: Moves | None = None,
    **changes: Any,
) -> PlanChange:
    if not plan.can(command):
        raise IllegalTransition(plan.status, command, plan.legal)
    changes = {"reason": ask.by.reason or None, "asked": ask.request} | changes
    after = apply_command(plan, command, now=ask.now, request=ask.request, **changes)
    return PlanChange(
        before=plan,
        after=after,
        moves=tuple((moves or {}).items()),
        events=(event,),
        next=PlanNext.LOOK,
        audit=ask.audit(f"plan:{plan.id}", command, plan.status, after.status),
    )
