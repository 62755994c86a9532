"""Decisions of a lease's holder about its task, and the decision of a submit.

Each function takes a record and returns the transition to write; nothing is written here. An
operator's commands are in `operate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import events as ev
from holdfast.domain.task import outage
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.placement import Next
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Failure, Lease, StageRecord, Task, apply_command, fact
from holdfast.domain.task.transition import Submission, Transition

NO_REQUESTS: dict[str, Any] = {"pause_requested": False, "cancel_requested": False}
NOT_BEGUN: dict[str, Any] = {
    "failures": 0,
    "crashes": 0,
    "lapses": 0,
    "interrupted": False,
} | outage.NONE
FROM_SCRATCH: dict[str, Any] = {"last_completed": -1, "next_undo": -1} | NOT_BEGUN
NO_DATA = b"null"  # the data beside the record has moved into the checkpoint


class Done(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage function has returned."""

    result: bytes
    data: Mapping[str, Any]
    started_at: float
    duration_seconds: float
    undo: bool | None = None  # whether the stage has an undo function


class Snoozed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage function asked to be called again later."""

    data: Mapping[str, Any]
    started_at: float
    delay_seconds: float


class Failed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage or undo function has raised; ``retry_seconds`` None: another attempt cannot help.

    ``outage_seconds``: it was an outage, and outages in a row may last so long.
    """

    failure: Failure
    started_at: float
    retry_seconds: float | None
    outage_seconds: float | None = None


def submit(task: Task, payload: bytes, digest: str, *, held: bool = False) -> Submission:
    created = ev.TaskCreated(
        task_id=task.id,
        version=task.version,
        at=task.created_at,
        type=task.type,
        tenant=task.tenant,
    )
    return Submission(task=task, payload=payload, digest=digest, events=(created,), held=held)


def stage_done(
    task: Task,
    done: Done,
    *,
    checkpoint: Checkpoint | None,
    now: float,
    policy: ckpt.Policy = ckpt.DEFAULT,
) -> Transition:
    """Commit the result of a stage that is not the last, and the checkpoint after it."""
    index = task.last_completed + 1
    if index >= len(task.stages) - 1:
        raise HoldfastError("the last stage saves no checkpoint; it completes the task")
    saved = ckpt.save(
        checkpoint,
        stages=task.stages,
        index=index,
        data=done.data,
        now=now,
        owner=lease_of(task).owner,
        took_seconds=done.duration_seconds,
        policy=policy,
    )
    return _by_holder(
        task,
        apply_command(_with_progress(task, index), Command.CHECKPOINT, now=now),
        next=Next.STAY,
        events=_stage_completed(task, done, now),
        checkpoint=saved,
        stage=_stage_record(task, done),
        data=NO_DATA if index == 0 and task.begun else None,  # a snooze may have left some
    )


def complete(task: Task, done: Done, *, now: float) -> Transition:
    """Complete the task: status, result, checkpoint, lock and queue change in this one step."""
    index = task.last_completed + 1
    if index != len(task.stages) - 1:
        raise HoldfastError("only the last stage completes a task")
    completed = ev.TaskCompleted(task_id=task.id, version=task.version + 1, at=now)
    return _by_holder(
        task,
        apply_command(_without_requests(_with_progress(task, index)), Command.COMPLETE, now=now),
        next=Next.GONE if task.keep_seconds == 0 else Next.SETTLED,
        events=(*_stage_completed(task, done, now), completed),
        drop_checkpoint=True,
        stage=_stage_record(task, done),
        result=done.result,
        data=msgspec.json.encode(done.data) if done.data else b"{}",
    )


def stage_failed(
    task: Task, failed: Failed, policy: Retry, *, checkpoint: Checkpoint | None, now: float
) -> Transition:
    """Count a failure. It is a stage boundary, too: a requested cancel or pause is applied here."""
    spent, counted = _judge_failure(task, failed, policy, now)
    failure: Failure = counted["failure"]
    shown = outage.for_event(failed.failure, counted)
    events: tuple[ev.Event, ...] = (
        _stage_started(task, failed.started_at),
        fact(ev.StageFailed, task, now, failure=shown, run=task.run),
    )
    command, next_, delay = Command.RETRY_LATER, Next.LATER, failed.retry_seconds or 0.0
    if spent and not task.cancel_requested:
        command, next_ = Command.FAIL, Next.PARKED
        events += (fact(ev.TaskFailedEvent, task, now, failure=failure),)
    elif task.cancel_requested or task.pause_requested:
        command, next_, applied = _apply_request(task, now)
        events += (applied,)
    else:
        events += (_retry_scheduled(task, delay, counted, now),)
    reason = task.reason if command in (Command.CANCEL, Command.PAUSE) else None
    return _by_holder(
        task,
        apply_command(_without_requests(task, reason), command, now=now, **counted),
        next=next_,
        delay_seconds=delay if next_ is Next.LATER else 0.0,
        events=events,
        checkpoint=_with_failure(checkpoint, failed.failure),
    )


def snooze(
    task: Task, snoozed: Snoozed, *, checkpoint: Checkpoint | None, now: float
) -> Transition:
    """Give the slot back without a failure and keep the stage's data, in the checkpoint if there is
    one. It is a stage boundary, too: a requested cancel or pause is applied here."""
    stage, delay = task.stages[task.last_completed + 1], snoozed.delay_seconds
    events: tuple[ev.Event, ...] = (
        _stage_started(task, snoozed.started_at),
        fact(ev.TaskSnoozed, task, now, stage=stage, run=task.run, delay_seconds=delay),
    )
    command, next_ = Command.YIELD, Next.LATER if delay else Next.READY
    if task.cancel_requested or task.pause_requested:
        command, next_, applied = _apply_request(task, now)
        events += (applied,)
    reason = None if command is Command.YIELD else task.reason
    return _by_holder(
        task,
        apply_command(_without_requests(task, reason), command, now=now, **_SNOOZED),
        next=next_,
        delay_seconds=delay if next_ is Next.LATER else 0.0,
        events=events,
        checkpoint=_with_data(task, checkpoint, snoozed.data, now),
        data=None if checkpoint else msgspec.json.encode(snoozed.data),
    )


def boundary(task: Task, *, now: float) -> Transition:
    """Apply the cancel or pause that was requested while a stage ran."""
    command, next_, applied = _apply_request(task, now)
    changes = NO_REQUESTS | {"ran_by": lease_of(task).owner}
    return _by_holder(
        task, apply_command(task, command, now=now, **changes), next=next_, events=(applied,)
    )


def start_over(task: Task, reason: str, *, now: float) -> Transition:
    """Drop an invalid checkpoint and run from stage 0, as new work with new effect keys."""
    changes = FROM_SCRATCH | {"epoch": task.epoch + 1, "run": task.run + 1}
    return _by_holder(
        task,
        apply_command(task, Command.CHECKPOINT, now=now, **changes),
        next=Next.STAY,
        events=(fact(ev.CheckpointDiscarded, task, now, reason=reason),),
        drop_checkpoint=True,
        drop_stages=True,
    )


def stage_undone(
    task: Task, *, had_undo: bool, data: Mapping[str, Any], duration_seconds: float, now: float
) -> Transition:
    changes = NOT_BEGUN | {"next_undo": task.next_undo - 1, "failure": None}
    return _by_holder(
        task,
        apply_command(task, Command.UNDO, now=now, **changes),
        next=Next.STAY,
        events=(
            fact(
                ev.StageUndone,
                task,
                now,
                stage=task.stages[task.next_undo],
                run=task.run,
                had_undo=had_undo,
                duration_seconds=duration_seconds,
            ),
        ),
        data=msgspec.json.encode(data),
    )


def undo_failed(task: Task, failed: Failed, policy: Retry, *, now: float) -> Transition:
    spent, counted = _judge_failure(task, failed, policy, now)
    delay = failed.retry_seconds or 0.0
    shown = outage.for_event(failed.failure, counted)
    first = fact(ev.StageUndoFailed, task, now, failure=shown, run=task.run)
    second: ev.Event = (
        fact(ev.TaskRollbackFailed, task, now, failure=counted["failure"])
        if spent
        else _retry_scheduled(task, delay, counted, now)
    )
    command = Command.FAIL_ROLLBACK if spent else Command.RETRY_LATER
    counted["ran_by"] = lease_of(task).owner
    return _by_holder(
        task,
        apply_command(task, command, now=now, **counted),
        next=Next.PARKED if spent else Next.LATER,
        delay_seconds=0.0 if spent else delay,
        events=(first, second),
    )


def rolled_back(task: Task, *, now: float) -> Transition:
    changes = FROM_SCRATCH | {"ran_by": lease_of(task).owner}
    return _by_holder(
        task,
        apply_command(task, Command.FINISH_ROLLBACK, now=now, **changes),
        next=Next.SETTLED,
        events=(fact(ev.TaskRolledBackEvent, task, now),),
        drop_checkpoint=True,
    )


def suspend(task: Task, failure: Failure, *, now: float) -> Transition:
    """Suspend a task that cannot go on, though no stage failed; a requested cancel comes first."""
    if task.cancel_requested:
        return boundary(task, now=now)
    back = task.status is Status.ROLLING_BACK
    kind: type[ev.TaskRollbackFailed | ev.TaskFailedEvent] = (
        ev.TaskRollbackFailed if back else ev.TaskFailedEvent
    )
    command = Command.FAIL_ROLLBACK if back else Command.FAIL
    return _by_holder(
        task,
        apply_command(task, command, now=now, failure=failure, **NO_REQUESTS),
        next=Next.PARKED,
        events=(fact(kind, task, now, failure=failure),),
    )


def give_back(
    task: Task,
    reason: str,
    *,
    now: float,
    interrupted: bool,
    delay_seconds: float = 0.0,
    unknown_since: float | None = None,
) -> Transition:
    """Give the task back, as its worker stops or does not know its type; nothing is counted."""
    changes = {
        "interrupted": task.interrupted or interrupted,
        "unknown_since": unknown_since,
        "ran_by": lease_of(task).owner if interrupted else task.ran_by,
    }
    return _by_holder(
        task,
        apply_command(task, Command.YIELD, now=now, **changes),
        next=Next.LATER if delay_seconds else Next.READY,
        delay_seconds=delay_seconds,
        events=(fact(ev.TaskYielded, task, now, worker=lease_of(task).owner, reason=reason),),
    )


# The parts that several decisions share.


def lease_of(task: Task) -> Lease:
    if task.lease is None:
        raise HoldfastError(f"task {task.id} has no lease: only the holder of its lease may act")
    return task.lease


def _by_holder(
    task: Task,
    after: Task,
    *,
    next: Next,
    events: tuple[ev.Event, ...],
    delay_seconds: float = 0.0,
    checkpoint: Checkpoint | None = None,
    drop_checkpoint: bool = False,
    stage: StageRecord | None = None,
    drop_stages: bool = False,
    result: bytes | None = None,
    data: bytes | None = None,
) -> Transition:
    lease = lease_of(task)
    return Transition(
        before=task,
        after=after,
        # A holder writes once per version, so this identifies the write when it is sent again.
        request=f"{lease.id}:{task.version}",
        lease=lease.id,
        next=next,
        events=events,
        delay_seconds=delay_seconds,
        checkpoint=checkpoint,
        drop_checkpoint=drop_checkpoint,
        stage=stage,
        drop_stages=drop_stages,
        result=result,
        data=data,
    )


# Each stage of each task calls these. Fields named in the call are twice as fast as a mapping.


def _with_progress(task: Task, index: int) -> Task:
    return replace(
        task,
        last_completed=index,
        failure=None,
        unknown_since=None,
        failures=0,
        crashes=0,
        lapses=0,
        interrupted=False,
        outages=0,
        outage_since=None,
    )


def _without_requests(task: Task, reason: str | None = None) -> Task:
    owner = lease_of(task).owner
    return replace(task, pause_requested=False, cancel_requested=False, reason=reason, ran_by=owner)


def _apply_request(task: Task, now: float) -> tuple[Command, Next, ev.Event]:
    """Return the command, the place and the event of a requested cancel, or else of the pause."""
    if task.cancel_requested:
        cancelled = fact(ev.TaskCancelledEvent, task, now, reason=task.reason)
        return Command.CANCEL, Next.SETTLED, cancelled
    return Command.PAUSE, Next.PARKED, fact(ev.TaskPaused, task, now, reason=task.reason)


def _judge_failure(
    task: Task, failed: Failed, policy: Retry, now: float
) -> tuple[bool, dict[str, Any]]:
    """Return whether no attempt is left, and the counts of the record after this failure."""
    limit = failed.outage_seconds
    if limit is not None:
        spent, failure, row = outage.judge(task, failed.failure, limit_seconds=limit, now=now)
        return spent, _failure_counts(task.failures, failure, policy) | row
    failures = task.failures + 1
    spent = failed.retry_seconds is None or failures >= policy.max
    return spent, _failure_counts(failures, failed.failure, policy) | outage.NONE


def _retry_scheduled(task: Task, delay: float, counted: Mapping[str, Any], now: float) -> ev.Event:
    counts = {name: counted[name] for name in ("failures", "outages")}
    return fact(ev.TaskRetryScheduled, task, now, delay_seconds=delay, **counts)


def _failure_counts(failures: int, failure: Failure, policy: Retry) -> dict[str, Any]:
    return {
        "failures": failures,
        "failure": failure,
        "retry_max": policy.max,
        "crashes": 0,
        "lapses": 0,
        "interrupted": False,
        "forced": False,
        "unknown_since": None,
    }


def _stage_started(task: Task, at: float) -> ev.Event:
    return ev.StageStarted(
        task_id=task.id,
        version=task.version + 1,
        at=at,
        stage=task.stages[task.last_completed + 1],
        attempt=task.attempt,
        run=task.run,
    )


def _stage_completed(task: Task, done: Done, now: float) -> tuple[ev.Event, ev.Event]:
    completed = ev.StageCompleted(
        task_id=task.id,
        version=task.version + 1,
        at=now,
        stage=task.stages[task.last_completed + 1],
        run=task.run,
        epoch=task.epoch,
        duration_seconds=done.duration_seconds,
    )
    return _stage_started(task, done.started_at), completed


def _stage_record(task: Task, done: Done) -> StageRecord:
    index = task.last_completed + 1
    return StageRecord(
        index=index,
        name=task.stages[index],
        result=done.result,
        duration_seconds=done.duration_seconds,
        run=task.run,
        epoch=task.epoch,
        undo=done.undo,
    )


# The stage has begun without a failure: a rollback must undo what it may have done so far.
_SNOOZED: dict[str, Any] = NOT_BEGUN | {
    "interrupted": True,
    "failure": None,
    "forced": False,
    "unknown_since": None,
}


def _with_data(
    task: Task, checkpoint: Checkpoint | None, data: Mapping[str, Any], now: float
) -> Checkpoint | None:
    """Return the checkpoint with new data and time: it must not expire while its task snoozes."""
    if checkpoint is None:
        return None
    return ckpt.save(
        checkpoint,
        stages=task.stages,
        index=checkpoint.last_completed_stage_index,
        data=data,
        now=now,
        owner=lease_of(task).owner,
    )


def _with_failure(checkpoint: Checkpoint | None, failure: Failure) -> Checkpoint | None:
    if checkpoint is None:
        return None
    return replace(
        checkpoint,
        version=checkpoint.version + 1,
        failure_history=ckpt.remember(checkpoint.failure_history, failure),
    )
