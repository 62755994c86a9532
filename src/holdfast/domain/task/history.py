"""The transitions of a task, derived from its events: who made each, and by which command.

There is no second log: each version of a record has its events, and the state table has the
status that follows from each command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby

import msgspec

from holdfast.domain.task import events as ev
from holdfast.domain.task.state import TABLE, Command, Status
from holdfast.domain.task.task import By, Task

SUBMIT = "submit"  # makes a task; it is no command of the state table

# The command of a version follows from its last event that is listed here.
COMMANDS: Mapping[type[ev.Event], Command] = {
    ev.TaskReleased: Command.RELEASE,
    ev.TaskHeldBack: Command.HOLD_BACK,
    ev.TaskStarted: Command.START,
    ev.StageCompleted: Command.CHECKPOINT,
    ev.CheckpointDiscarded: Command.CHECKPOINT,
    ev.CheckpointPut: Command.PUT_CHECKPOINT,
    ev.CheckpointRemoved: Command.REMOVE_CHECKPOINT,
    ev.TaskCompleted: Command.COMPLETE,
    ev.TaskRetryScheduled: Command.RETRY_LATER,
    ev.TaskFailedEvent: Command.FAIL,
    ev.TaskSnoozed: Command.YIELD,
    ev.TaskYielded: Command.YIELD,
    ev.TaskDue: Command.DUE,
    ev.LeaseLost: Command.LOSE,
    ev.TaskPaused: Command.PAUSE,
    ev.TaskResumed: Command.RESUME,
    ev.TaskCancelledEvent: Command.CANCEL,
    ev.TaskDiscarded: Command.DISCARD,
    ev.TaskRetried: Command.RETRY,
    ev.TaskRollingBack: Command.ROLLBACK,
    ev.StageUndone: Command.UNDO,
    ev.TaskRolledBackEvent: Command.FINISH_ROLLBACK,
    ev.TaskRollbackFailed: Command.FAIL_ROLLBACK,
}
# Requests by an operator, which the holder applies at the next stage boundary.
REQUESTS: Mapping[type[ev.Event], Command] = {
    ev.PauseRequested: Command.PAUSE,
    ev.CancelRequested: Command.CANCEL,
    ev.PauseWithdrawn: Command.RESUME,
}
# Events that accompany one of the above, or are not kept.
ACCOMPANYING = frozenset(
    {
        ev.TaskAmended,
        ev.TaskCreated,
        ev.StageStarted,
        ev.StageFailed,
        ev.StageUndoFailed,
        ev.TaskProgress,
    }
)

_FIRED = re.compile(r"(.+)@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z(?:\+\w{1,8})?")


class Maker(StrEnum):
    """The kind of party that made a transition."""

    CLIENT = "client"  # a submit
    WORKER = "worker"  # the holder of the lease
    OPERATOR = "operator"  # a person, through the API, the command line or a bulk action
    PLAN = "plan"
    TRIGGER = "trigger"
    STORE = "store"  # a due time has come, or a lease has lapsed


class HistoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """A committed transition of a task."""

    task_id: str
    version: int
    at: float
    command: str
    before: Status | None  # None: there was no task
    after: Status
    maker: Maker
    name: str = ""  # the worker, the actor, the plan or the trigger
    origin: str = ""
    reason: str = ""


def steps(task: Task, events: Sequence[ev.Event]) -> list[HistoryStep]:
    """Return the transitions of the task, the oldest first."""
    return list(_replay(task, events))


def _replay(task: Task, events: Sequence[ev.Event]) -> Iterator[HistoryStep]:
    status, worker = _first_status(task, events), ""
    for version, group in groupby(events, key=lambda event: event.version):
        made = list(group)
        worker = next((e.worker for e in made if isinstance(e, ev.TaskStarted)), worker)
        if isinstance(made[0], ev.TaskCreated):
            yield _first_step(task, made[0], status)
            continue
        event = _deciding_event(made)
        command = COMMANDS.get(type(event)) or REQUESTS.get(type(event))
        if command is None:
            continue
        after = TABLE[status].get(command, status) if type(event) in COMMANDS else status
        maker, by = _maker(event, worker)
        yield HistoryStep(
            task_id=task.id,
            version=version,
            at=event.at,
            command=command,
            before=status,
            after=after,
            maker=maker,
            name=by.actor,
            origin=by.origin,
            reason=by.reason or _reason(event),
        )
        status = after


def _first_status(task: Task, events: Iterable[ev.Event]) -> Status:
    """Return the first status: CREATED for a task that is held back, PENDING for any other."""
    for event in events:
        if isinstance(event, ev.TaskReleased | ev.TaskHeldBack):
            return Status.CREATED
        if isinstance(event, ev.TaskStarted | ev.TaskPaused):
            return Status.PENDING
    return Status.PENDING if task.plan is None else Status.CREATED


def _deciding_event(made: Sequence[ev.Event]) -> ev.Event:
    """Return the event that names the command of its version."""
    return next((event for event in reversed(made) if type(event) not in ACCOMPANYING), made[-1])


def _first_step(task: Task, event: ev.Event, status: Status) -> HistoryStep:
    fired = _FIRED.fullmatch(task.key or "")
    maker, name = Maker.CLIENT, ""
    if task.plan is not None:
        maker, name = Maker.PLAN, task.plan
    elif fired is not None:
        maker, name = Maker.TRIGGER, fired[1]
    return HistoryStep(
        task_id=task.id,
        version=event.version,
        at=event.at,
        command=SUBMIT,
        before=None,
        after=status,
        maker=maker,
        name=name,
    )


def _maker(event: ev.Event, worker: str) -> tuple[Maker, By]:
    by: By | None = getattr(event, "by", None)
    if by is not None:
        kind, _, name = by.actor.partition(":")
        if kind == "plan":
            return Maker.PLAN, msgspec.structs.replace(by, actor=name)
        return Maker.OPERATOR, by
    if isinstance(event, ev.TaskDue):
        return Maker.STORE, By(actor="")
    if isinstance(event, ev.LeaseLost):
        return Maker.STORE, By(actor=event.worker)
    return Maker.WORKER, By(actor=worker)


def _reason(event: ev.Event) -> str:
    failure = getattr(event, "failure", None)
    return failure.summary if failure is not None else getattr(event, "reason", None) or ""
