"""An operator's commands: those that a person, the API or a plan may give to a task.

On a task that a worker holds, a command leaves a request, which the holder applies at the next
stage boundary. On any other task it acts at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain import names
from holdfast.domain.audit import Audit
from holdfast.domain.errors import (
    CheckpointGone,
    IllegalTransition,
    NotSuspended,
    Refused,
    TenantMovedOn,
)
from holdfast.domain.task import events as ev
from holdfast.domain.task import outage
from holdfast.domain.task.decide import FROM_SCRATCH, NO_REQUESTS, NOT_BEGUN
from holdfast.domain.task.placement import Next
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Task, apply_command, fact
from holdfast.domain.task.transition import MovedOn, NoCheckpoint, Outcome, Transition


class OperatorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: who asks, when, and an id that stays the same when the request is sent again."""

    by: By
    now: float
    request: str

    def audit(
        self, subject: str, command: str, before: str, after: str, *, refused: str | None = None
    ) -> Audit:
        """Return the audit entry of this request; ``refused``: the code of the error."""
        return Audit(
            task_id=subject,
            command=command,
            by=self.by,
            at=self.now,
            before=before,
            after=after,
            refused=refused,
        )


def actor_named(actor: str, origin: str = "") -> By:
    """Return the actor of later requests; refuse names that cannot be stored."""
    return By(actor=names.check_text("actor", actor), origin=names.check_text("origin", origin))


def new_request(by: By, reason: str, *, now: float, request: str) -> OperatorRequest:
    """Return a request in an actor's name; ``request`` is the id that it keeps when sent again."""
    by = msgspec.structs.replace(by, reason=names.check_text("reason", reason))
    return OperatorRequest(by=by, now=now, request=request)


def release(task: Task, ask: OperatorRequest) -> Transition:
    event = fact(ev.TaskReleased, task, ask.now, by=ask.by)
    return _at_once(task, Command.RELEASE, ask, Next.READY, event)


def hold_back(task: Task, ask: OperatorRequest) -> Transition:
    """Keep the task as it is, in a new version: decisions for the old version are void."""
    event = fact(ev.TaskHeldBack, task, ask.now, by=ask.by)
    return _at_once(task, Command.HOLD_BACK, ask, Next.STAY, event)


def pause(task: Task, ask: OperatorRequest) -> Transition:
    _must(task, Command.PAUSE)
    reason = ask.by.reason
    if task.status is Status.RUNNING:
        asked = fact(ev.PauseRequested, task, ask.now, by=ask.by)
        return _request(task, Command.PAUSE, ask, asked, pause_requested=True, reason=reason)
    event = fact(ev.TaskPaused, task, ask.now, reason=reason, by=ask.by)
    return _at_once(task, Command.PAUSE, ask, Next.PARKED, event, reason=reason)


def resume(task: Task, ask: OperatorRequest, *, force: bool = False) -> Transition:
    if task.status is Status.RUNNING:
        _must(task, Command.RESUME)
        asked = fact(ev.PauseWithdrawn, task, ask.now, by=ask.by)
        reason = task.reason if task.cancel_requested else None
        return _request(task, Command.RESUME, ask, asked, pause_requested=False, reason=reason)
    event = fact(ev.TaskResumed, task, ask.now, by=ask.by)
    return _at_once(
        task, Command.RESUME, ask, Next.READY, event, force=force, reason=None, **outage.NONE
    )


def cancel(task: Task, ask: OperatorRequest) -> Transition:
    reason = ask.by.reason
    if task.status is Status.RUNNING:
        asked = fact(ev.CancelRequested, task, ask.now, by=ask.by)
        return _request(task, Command.CANCEL, ask, asked, cancel_requested=True, reason=reason)
    event = fact(ev.TaskCancelledEvent, task, ask.now, reason=reason, by=ask.by)
    return _at_once(task, Command.CANCEL, ask, Next.SETTLED, event, reason=reason)


def retry(
    task: Task, ask: OperatorRequest, *, from_checkpoint: bool = True, force: bool = False
) -> Transition:
    """Start a new run: failures are counted from zero again, the history stays."""
    resumes = from_checkpoint and task.status is not Status.ROLLED_BACK
    changes: dict[str, Any] = NOT_BEGUN | {"interrupted": task.begun}
    if not resumes:
        changes = FROM_SCRATCH | {"epoch": task.epoch + 1}
    event = fact(ev.TaskRetried, task, ask.now, by=ask.by, from_checkpoint=resumes)
    return _at_once(
        task,
        Command.RETRY,
        ask,
        Next.READY,
        event,
        force=force,
        from_scratch=not resumes,
        continues=resumes and task.continues_from_checkpoint,
        run=task.run + 1,
        reason=None,
        **changes,
    )


def rollback(task: Task, ask: OperatorRequest, *, force: bool = False) -> Transition:
    """Undo the stages in reverse, from the one begun last; after a failed rollback, continue it."""
    if task.status is Status.ROLLBACK_FAILED or task.next_undo >= 0:
        first = task.next_undo  # also when it was discarded in the middle of a rollback
    else:
        half_done = task.begun and task.at_stage is not None
        first = task.last_completed + 1 if half_done else task.last_completed
    stage = task.stages[first] if 0 <= first < len(task.stages) else None
    event = fact(ev.TaskRollingBack, task, ask.now, by=ask.by, from_stage=stage)
    return _at_once(
        task,
        Command.ROLLBACK,
        ask,
        Next.READY,
        event,
        force=force,
        next_undo=first,
        run=task.run + 1,
        reason=ask.by.reason,
        **NOT_BEGUN,
    )


def resume_suspended(task: Task, ask: OperatorRequest, *, force: bool = False) -> Transition:
    """Set a suspended task going again, forward or in its rollback."""
    if not task.suspended:
        raise NotSuspended(task.id, task.status)
    if task.status is Status.ROLLBACK_FAILED:
        return rollback(task, ask, force=force)
    return retry(task, ask, force=force)


def discard(task: Task, ask: OperatorRequest) -> Transition:
    event = fact(ev.TaskDiscarded, task, ask.now, by=ask.by)
    all_undone = task.status is Status.ROLLBACK_FAILED and task.next_undo < 0
    changes = FROM_SCRATCH if all_undone else {}
    return _at_once(
        task,
        Command.DISCARD,
        ask,
        Next.SETTLED,
        event,
        from_scratch=all_undone,
        reason=ask.by.reason,
        **changes,
    )


def refusal_error(outcome: Outcome) -> Refused | None:
    """Return the error for a command that the store refused; None: it was written, or is stale."""
    match outcome:
        case MovedOn(task):
            return TenantMovedOn(task.id, task.tenant)
        case NoCheckpoint(task):
            return CheckpointGone(task.id, task.last_completed + 1)
    return None


def refusal(task: Task, command: Command, ask: OperatorRequest, code: str) -> Audit:
    return ask.audit(task.id, command, task.status, task.status, refused=code)


def _must(task: Task, command: Command) -> None:
    if not task.can(command):
        raise IllegalTransition(task.status, command, task.legal)


def _at_once(
    task: Task,
    command: Command,
    ask: OperatorRequest,
    next: Next,
    event: ev.Event,
    *,
    force: bool | None = None,  # None: the command does not set the task going
    from_scratch: bool = False,
    continues: bool = False,  # from its checkpoint, which must be there
    **changes: Any,
) -> Transition:
    changes = NO_REQUESTS | {"unknown_since": None, "forced": bool(force)} | changes
    after = apply_command(task, command, now=ask.now, **changes)
    return Transition(
        before=task,
        after=after,
        request=ask.request,
        next=next,
        events=(event,),
        drop_checkpoint=from_scratch,
        drop_stages=from_scratch,
        not_if_moved_on=force is False and task.workflow and task.tenant is not None,
        not_without_checkpoint=continues,
        audit=ask.audit(task.id, command, task.status, after.status),
    )


def _request(
    task: Task, command: Command, ask: OperatorRequest, event: ev.Event, **flags: Any
) -> Transition:
    """Leave a request on a task that a worker holds; only the holder changes its status."""
    apply_command(task, command, now=ask.now)
    return stay(
        task, apply_command(task, Command.CHECKPOINT, now=ask.now, **flags), command, ask, event
    )


def stay(
    task: Task, after: Task, command: Command, ask: OperatorRequest, event: ev.Event
) -> Transition:
    """Return a transition that leaves the task in its place."""
    return Transition(
        before=task,
        after=after,
        request=ask.request,
        next=Next.STAY,
        events=(event,),
        audit=ask.audit(task.id, command, task.status, after.status),
    )
