"""The members of a plan: how the plan sees its tasks, and what it wants of each.

All of it follows from what is written: from the status of the plan, from how it sees its tasks, and
from the tasks themselves. So a driver that takes over goes on where the last one died, and a
command that is decided on twice is carried out once: it names the version of the task, which is
written with the task's slot before the command goes out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanStatus
from holdfast.domain.task.state import Command, Status, can
from holdfast.domain.task.task import Task

M, P = MemberState, PlanStatus

RESTS: Mapping[Status, MemberState] = {
    Status.COMPLETED: M.COMPLETED,
    Status.FAILED: M.FAILED,
    Status.CANCELLED: M.CANCELLED,
    Status.ROLLED_BACK: M.ROLLED_BACK,
    Status.ROLLBACK_FAILED: M.ROLLBACK_FAILED,
    Status.PAUSED: M.PAUSED,
}
GOING = frozenset({Status.PENDING, Status.RUNNING, Status.RETRYING})
MOVES = {**RESTS, **dict.fromkeys(GOING, M.ADMITTED), Status.ROLLING_BACK: M.UNDOING}
SETS_GOING: Mapping[Status, Command] = {
    Status.CREATED: Command.RELEASE,
    Status.FAILED: Command.RETRY,
    Status.ROLLED_BACK: Command.RETRY,
}
DISCARDABLE = frozenset({Status.FAILED, Status.ROLLBACK_FAILED})
UNDONE = frozenset({Status.ROLLING_BACK, Status.ROLLED_BACK, Status.CANCELLED})
UNDOABLE = frozenset({M.COMPLETED, M.FAILED, M.PAUSED, M.AGAIN})


class MemberTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task as its plan finds it; without ``task`` only its tombstone is left, or nothing."""

    status: Status
    task: Task | None = None
    is_gone: bool = False  # it is nowhere: not put in yet, lost, or unreadable

    @property
    def version(self) -> int | None:
        return self.task.version if self.task else None

    @property
    def moving(self) -> bool:
        return self.status in GOING or self.status is Status.ROLLING_BACK


def pause_mark(plan: Plan) -> str:
    """The reason that a plan gives when it pauses a task: by it, it knows its own pauses."""
    return f"plan {plan.id} is paused"


def observe_member(plan: Plan, index: int, member: Member, look: MemberTask) -> Member:
    """Return how the plan sees a task that it finds like this."""
    if member.state is M.SKIPPED:
        return member if look.status is Status.CREATED else Member(M.SKIPPED)
    if _stays(plan, index, member, look):
        return member
    state = _state_of(plan, index, member, look)
    if state is member.state:
        return member
    # It was cancelled before it did anything: its version says that there is nothing to undo.
    version = look.version if state is M.CANCELLED and _is_untouched(look) else 0
    return Member(state, version or 0)


def _stays(plan: Plan, index: int, member: Member, look: MemberTask) -> bool:
    """Return whether a command is still to reach the task, so that its record does not tell all."""
    match member.state:
        case M.WAITING:
            return look.status is Status.CREATED
        case M.AGAIN:
            return _goes_forward(plan, index) and look.status in SETS_GOING and not look.is_gone
        case M.ADMITTED:
            paused = _goes_forward(plan, index) and _is_paused_by(plan, look)
            return paused or is_due(member, look)
        case M.UNDOING:
            return plan.status is P.ROLLING_BACK and is_due(member, look)
        case M.FAILED | M.PAUSED | M.ROLLBACK_FAILED:
            return _still_rests(plan, member, look)
    return False


def _still_rests(plan: Plan, member: Member, look: MemberTask) -> bool:
    """Return whether the task only looks better: a command was refused, or nothing was undone."""
    if plan.status is P.ROLLING_BACK:  # asked for again, after a rollback that failed
        return member.state is M.FAILED and look.status is Status.ROLLBACK_FAILED
    if plan.cancel_requested:
        return False
    if member.version and member.version == look.version:
        return True
    if member.state is M.ROLLBACK_FAILED:
        return look.task is None or look.status not in UNDONE
    # What a person sets going while the plan is paused is not the plan's to pause.
    return plan.status is P.PAUSED and look.moving


def _state_of(plan: Plan, index: int, member: Member, look: MemberTask) -> MemberState:
    if look.is_gone:
        return M.CANCELLED if plan.cancel_requested else M.FAILED
    held_back = member.state is M.ADMITTED and look.version == member.version + 1
    if held_back and look.status in SETS_GOING and _goes_forward(plan, index):
        return M.WAITING if look.status is Status.CREATED else M.AGAIN  # it has its turn again
    return MOVES.get(look.status, M.WAITING)


def _goes_forward(plan: Plan, index: int) -> bool:
    """Also while another of its waves is rolled back."""
    back = plan.status is P.ROLLING_BACK and in_scope(plan, index)
    return not back and not plan.cancel_requested


def is_due(member: Member, look: MemberTask) -> bool:
    """The command that was decided on for it is still to be carried out."""
    same = look.version is not None and look.version == member.version
    if member.state is M.UNDOING:
        return same and can(look.status, Command.ROLLBACK)
    return same and look.status in SETS_GOING


def _is_paused_by(plan: Plan, look: MemberTask) -> bool:
    if look.status is not Status.PAUSED or look.task is None:
        return False
    return look.task.reason == pause_mark(plan)


def may_be_admitted(member: Member, look: MemberTask) -> bool:
    return member.state in (M.WAITING, M.AGAIN) and look.status in SETS_GOING


def next_command(plan: Plan, index: int, member: Member, task: Task) -> Command | None:
    """The command that brings the task to what the plan wants of it; None: nothing."""
    if member.state is M.SKIPPED:
        return Command.CANCEL if task.status is Status.CREATED else None
    if plan.cancel_requested:
        return _to_end(member, task)
    if plan.status is P.ROLLING_BACK:
        return _to_undo(plan, index, member, task)
    if member.state is M.ADMITTED:
        return (_to_run if plan.status is P.RUNNING else _to_hold)(plan, member, task)
    return None


def _to_run(plan: Plan, member: Member, task: Task) -> Command | None:
    if task.version == member.version:
        return SETS_GOING.get(task.status)
    held = task.status is Status.PAUSED or task.pause_requested
    return Command.RESUME if held and task.reason == pause_mark(plan) else None


def _to_hold(plan: Plan, member: Member, task: Task) -> Command | None:
    pauses = plan.status is P.PAUSED and task.status in GOING and not task.pause_requested
    if pauses and task.can(Command.PAUSE):
        return Command.PAUSE
    return _void(member, task)


def _to_end(member: Member, task: Task) -> Command | None:
    if task.status in DISCARDABLE:
        return Command.DISCARD
    if task.can(Command.CANCEL):
        return None if task.cancel_requested else Command.CANCEL
    return _void(member, task)


def _void(member: Member, task: Task) -> Command | None:
    """A command that was decided on before, and may be on its way, is not to reach the task."""
    due = is_due(member, MemberTask(status=task.status, task=task))
    return Command.HOLD_BACK if due and task.can(Command.HOLD_BACK) else None


def _to_undo(plan: Plan, index: int, member: Member, task: Task) -> Command | None:
    """Return the command that undoes the task. A running task is stopped first, and undone when it
    has stopped. When all of the plan is undone, a task that has not begun never will."""
    if member.state is M.UNDOING:
        due = is_due(member, MemberTask(status=task.status, task=task))
        return Command.ROLLBACK if due else None
    if undoes_all(plan):
        stops = member.state in (M.WAITING, M.ADMITTED)
    else:
        stops = member.state is M.ADMITTED and in_scope(plan, index) and task.status in GOING
    if stops and task.status is not Status.PAUSED and task.can(Command.CANCEL):
        return None if task.cancel_requested else Command.CANCEL
    return _void(member, task) if member.state is M.ADMITTED else None


def undoes_all(plan: Plan) -> bool:
    return in_scope(plan, 0) and in_scope(plan, plan.total - 1)


def in_scope(plan: Plan, index: int) -> bool:
    upto = plan.total if plan.undo_upto is None else plan.undo_upto
    return (plan.undo_from or 0) <= index < upto


def to_undo(plan: Plan, index: int, member: Member) -> bool:
    """Return whether the member may have to be undone. The record of a cancelled one tells it:
    ``undoing``."""
    cancelled = member.state is M.CANCELLED and member.version == 0
    return in_scope(plan, index) and (member.state in UNDOABLE or cancelled)


def undoing(member: Member, look: MemberTask) -> Member:
    """Return how a task begins to be undone; one that was cancelled before it did anything need not
    be."""
    task = look.task
    if task is None:
        return Member(M.ROLLBACK_FAILED)  # its record is gone, and what it did with it
    if member.state is M.CANCELLED and _is_untouched(look):
        return Member(M.CANCELLED, task.version)
    return Member(M.UNDOING, task.version)


def _is_untouched(look: MemberTask) -> bool:
    task = look.task
    if task is None:
        return look.is_gone
    return task.last_completed < 0 and not task.begun and task.next_undo < 0


def ready_to_undo(plan: Plan) -> bool:
    """Nothing of what is undone runs forward any more."""
    waves = (w for w in range(len(plan.waves)) if in_scope(plan, plan.span(w).start))
    runs = sum(plan.count(M.ADMITTED, wave=wave) for wave in waves)
    return runs == 0 and not (undoes_all(plan) and plan.all_waiting)
