"""The members of a plan: how the plan sees its tasks, and what it wants of each.

Every decision follows from stored values: the status of the plan, its view of its tasks, and the
tasks themselves. So a driver that takes over continues where the last one died. A command that is
decided twice is executed once: it names the version of the task, which the plan stores with the
task's slot before it sends the command.
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
    """A task as its plan finds it; ``task`` None: only its tombstone is left, or nothing."""

    status: Status
    task: Task | None = None
    is_gone: bool = False  # there is no record: not inserted yet, lost, or unreadable

    @property
    def version(self) -> int | None:
        return self.task.version if self.task else None

    @property
    def moving(self) -> bool:
        return self.status in GOING or self.status is Status.ROLLING_BACK


def pause_mark(plan: Plan) -> str:
    """Return the reason of the pauses that a plan makes, by which it recognises them."""
    return f"plan {plan.id} is paused"


def observe_member(plan: Plan, index: int, member: Member, found: MemberTask) -> Member:
    """Return the member for a task that the plan finds like this."""
    if member.state is M.SKIPPED:
        return member if found.status is Status.CREATED else Member(M.SKIPPED)
    if _stays(plan, index, member, found):
        return member
    state = _state_of(plan, index, member, found)
    if state is member.state:
        return member
    # The version of a task that was cancelled before it began says that nothing is to be undone.
    version = found.version if state is M.CANCELLED and _is_untouched(found) else 0
    return Member(state, version or 0)


def _stays(plan: Plan, index: int, member: Member, found: MemberTask) -> bool:
    """Return whether a command has yet to reach the task, so that its record is not final."""
    match member.state:
        case M.WAITING:
            return found.status is Status.CREATED
        case M.AGAIN:
            return _goes_forward(plan, index) and found.status in SETS_GOING and not found.is_gone
        case M.ADMITTED:
            paused = _goes_forward(plan, index) and _is_paused_by(plan, found)
            return paused or is_due(member, found)
        case M.UNDOING:
            return plan.status is P.ROLLING_BACK and is_due(member, found)
        case M.FAILED | M.PAUSED | M.ROLLBACK_FAILED:
            return _still_rests(plan, member, found)
    return False


def _still_rests(plan: Plan, member: Member, found: MemberTask) -> bool:
    """Return whether the member stays stopped: a command was refused, or nothing was undone."""
    if plan.status is P.ROLLING_BACK:  # asked for again, after a rollback that failed
        return member.state is M.FAILED and found.status is Status.ROLLBACK_FAILED
    if plan.cancel_requested:
        return False
    if member.version and member.version == found.version:
        return True
    if member.state is M.ROLLBACK_FAILED:
        return found.task is None or found.status not in UNDONE
    # A paused plan does not pause a task that a person sets going.
    return plan.status is P.PAUSED and found.moving


def _state_of(plan: Plan, index: int, member: Member, found: MemberTask) -> MemberState:
    if found.is_gone:
        return M.CANCELLED if plan.cancel_requested else M.FAILED
    held_back = member.state is M.ADMITTED and found.version == member.version + 1
    if held_back and found.status in SETS_GOING and _goes_forward(plan, index):
        return M.WAITING if found.status is Status.CREATED else M.AGAIN  # it has its turn again
    return MOVES.get(found.status, M.WAITING)


def _goes_forward(plan: Plan, index: int) -> bool:
    """Return whether the task goes forward, maybe while another wave is rolled back."""
    back = plan.status is P.ROLLING_BACK and in_scope(plan, index)
    return not back and not plan.cancel_requested


def is_due(member: Member, found: MemberTask) -> bool:
    """Return whether the command that was decided for the task has yet to be executed."""
    same = found.version is not None and found.version == member.version
    if member.state is M.UNDOING:
        return same and can(found.status, Command.ROLLBACK)
    return same and found.status in SETS_GOING


def _is_paused_by(plan: Plan, found: MemberTask) -> bool:
    if found.status is not Status.PAUSED or found.task is None:
        return False
    return found.task.reason == pause_mark(plan)


def may_be_admitted(member: Member, found: MemberTask) -> bool:
    return member.state in (M.WAITING, M.AGAIN) and found.status in SETS_GOING


def next_command(plan: Plan, index: int, member: Member, task: Task) -> Command | None:
    """Return the command that brings the task to the state that the plan wants; None: none."""
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
    """Return the command that makes an earlier command void, which may be on its way."""
    due = is_due(member, MemberTask(status=task.status, task=task))
    return Command.HOLD_BACK if due and task.can(Command.HOLD_BACK) else None


def _to_undo(plan: Plan, index: int, member: Member, task: Task) -> Command | None:
    """Return the command that undoes the task. A running task is stopped first and undone later.
    When the whole plan is undone, tasks that have not begun are cancelled."""
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
    """Return whether the member may have to be undone; for a cancelled one, see ``undoing``."""
    cancelled = member.state is M.CANCELLED and member.version == 0
    return in_scope(plan, index) and (member.state in UNDOABLE or cancelled)


def undoing(member: Member, found: MemberTask) -> Member:
    """Return the member when its rollback begins; a task cancelled before it began needs none."""
    task = found.task
    if task is None:
        return Member(M.ROLLBACK_FAILED)  # without its record, nobody knows what it did
    if member.state is M.CANCELLED and _is_untouched(found):
        return Member(M.CANCELLED, task.version)
    return Member(M.UNDOING, task.version)


def _is_untouched(found: MemberTask) -> bool:
    task = found.task
    if task is None:
        return found.is_gone
    return task.last_completed < 0 and not task.begun and task.next_undo < 0


def ready_to_undo(plan: Plan) -> bool:
    """Return whether no task that is to be undone still runs forward."""
    waves = (w for w in range(len(plan.waves)) if in_scope(plan, plan.span(w).start))
    runs = sum(plan.count(M.ADMITTED, wave=wave) for wave in waves)
    return runs == 0 and not (undoes_all(plan) and plan.all_waiting)
