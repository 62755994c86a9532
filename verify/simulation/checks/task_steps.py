"""Checks of each step of one record, whichever command made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.domain.task import events as ev
from holdfast.domain.task.outage import OUTAGES
from holdfast.domain.task.state import HOLDER, OPERATOR, SETTLED, TABLE, Command, Status
from holdfast.domain.task.task import FailureKind, Task
from verify.simulation.checks.book import Breach, RecordMove, WorldBook
from verify.simulation.deploys import CHANGING, RESTARTING

# The last event of a step says which command made it.
COMMANDS: Mapping[type[ev.Event], Command] = {
    ev.TaskReleased: Command.RELEASE,
    ev.TaskHeldBack: Command.HOLD_BACK,
    ev.TaskStarted: Command.START,
    ev.StageCompleted: Command.CHECKPOINT,
    ev.CheckpointDiscarded: Command.CHECKPOINT,
    ev.PauseRequested: Command.CHECKPOINT,
    ev.CancelRequested: Command.CHECKPOINT,
    ev.PauseWithdrawn: Command.CHECKPOINT,
    ev.TaskPaused: Command.PAUSE,
    ev.TaskResumed: Command.RESUME,
    ev.TaskRetryScheduled: Command.RETRY_LATER,
    ev.TaskDue: Command.DUE,
    ev.TaskRetried: Command.RETRY,
    ev.TaskYielded: Command.YIELD,
    ev.TaskSnoozed: Command.YIELD,
    ev.TaskCompleted: Command.COMPLETE,
    ev.TaskFailedEvent: Command.FAIL,
    ev.TaskCancelledEvent: Command.CANCEL,
    ev.TaskDiscarded: Command.DISCARD,
    ev.TaskRollingBack: Command.ROLLBACK,
    ev.StageUndone: Command.UNDO,
    ev.TaskRolledBackEvent: Command.FINISH_ROLLBACK,
    ev.TaskRollbackFailed: Command.FAIL_ROLLBACK,
    ev.LeaseLost: Command.LOSE,
}
REQUESTS = (ev.PauseRequested, ev.CancelRequested, ev.PauseWithdrawn)
CRASH_LIMIT = 3
OUTAGE_NAMES = frozenset(f"holdfast.{kind.stored_name}" for kind in OUTAGES)


def check(book: WorldBook, move: RecordMove) -> Iterator[Breach]:
    """Check a record that has a new version."""
    before, after = move.before, move.after
    if after is None:
        return
    if before is None:
        created = [type(event) for event in move.events] == [ev.TaskCreated]
        if after.version != 1 or not created:
            yield "I15", f"it was created at version {after.version} with {move.events}"
        return
    if after.version != before.version + 1:
        yield "I4", f"version {before.version} became {after.version}"
    if not move.events:
        yield "I15", f"version {after.version} has no event"
        return
    if any(event.version != after.version for event in move.events):
        yield "I15", f"version {after.version} has events of {[e.version for e in move.events]}"
    yield from _check_command(before, after, move.events[-1])
    yield from _check_settled(before, after, move.events[-1])
    yield from _check_runs_and_epochs(before, after, move.events[-1])
    yield from _check_requests(before, after, move.events[-1])
    yield from _check_counts(before, after, move.events)
    for event in move.events:
        match event:
            case ev.StageCompleted():
                yield from _check_stage_completed(book, before, after, event)
            case ev.StageUndone():
                yield from _check_stage_undone(book, before, after, event)
            case ev.CheckpointDiscarded() if after.type not in RESTARTING:
                yield "C4", f"it starts over, but nobody declared so: {event.reason}"
            case ev.TaskRollingBack():
                yield from _check_rollback_begin(book, after)
            case ev.TaskRolledBackEvent():
                yield from _check_rollback_end(book, before)


def _check_command(before: Task, after: Task, last: ev.Event) -> Iterator[Breach]:
    command = COMMANDS[type(last)]
    if TABLE[before.status].get(command) is not after.status:
        yield "S2", f"{command} took it from {before.status} to {after.status}"
    by_operator = getattr(last, "by", None) is not None
    if isinstance(last, REQUESTS):
        if before.lease is None:
            yield "S3", f"{ev.name_of(last)} was left on a task that nobody holds"
    elif before.lease is not None and by_operator:
        yield "S3", f"{command} by an operator moved a task that is held"
    elif before.lease is None and command in HOLDER and not by_operator:
        yield "S3", f"{command} was made without a lease"
    elif command in OPERATOR - HOLDER and not by_operator:
        yield "S3", f"{command} is an operator's command, but no operator gave it"


def _check_settled(before: Task, after: Task, last: ev.Event) -> Iterator[Breach]:
    if before.status not in SETTLED:
        return
    if isinstance(last, ev.TaskHeldBack) and after.status is before.status:
        return
    if not isinstance(last, ev.TaskRetried | ev.TaskRollingBack):
        yield "I8", f"{before.status} became {after.status} by {ev.name_of(last)}"
    elif after.run != before.run + 1:
        yield "I8", f"a settled task went on in run {after.run} after run {before.run}"


def _check_runs_and_epochs(before: Task, after: Task, last: ev.Event) -> Iterator[Breach]:
    new_run = isinstance(last, ev.TaskRetried | ev.TaskRollingBack | ev.CheckpointDiscarded)
    if after.run != before.run + new_run:
        yield "I8", f"run {before.run} became {after.run} by {ev.name_of(last)}"
    from_scratch = isinstance(last, ev.CheckpointDiscarded) or (
        isinstance(last, ev.TaskRetried) and not last.from_checkpoint
    )
    if after.epoch != before.epoch + from_scratch:
        yield "I6", f"epoch {before.epoch} became {after.epoch} by {ev.name_of(last)}"


def _check_requests(before: Task, after: Task, last: ev.Event) -> Iterator[Breach]:
    """Check that a request is carried out or comes too late, and is never forgotten."""
    by_operator = getattr(last, "by", None) is not None  # an operator may withdraw a request
    dropped = before.cancel_requested and not after.cancel_requested and not by_operator
    if dropped and after.status not in (Status.CANCELLED, Status.COMPLETED):
        yield "S7", f"a cancel was asked for, and the task became {after.status}"
    dropped = before.pause_requested and not after.pause_requested
    if dropped and after.status is Status.PENDING:
        yield "S7", f"a pause was asked for, and {ev.name_of(last)} forgot it"
    by_holder = before.lease is not None and not isinstance(last, REQUESTS)
    if by_holder and isinstance(last, ev.TaskPaused) and not before.pause_requested:
        yield "S7", "it was paused, but no pause was asked for any more"
    if by_holder and isinstance(last, ev.TaskCancelledEvent) and not before.cancel_requested:
        yield "S7", "it was cancelled, but no cancel was asked for"


def _check_counts(before: Task, after: Task, events: tuple[ev.Event, ...]) -> Iterator[Breach]:
    last = events[-1]
    failed = any(isinstance(event, ev.StageFailed | ev.StageUndoFailed) for event in events)
    in_outage = failed and after.failure is not None and after.failure.error in OUTAGE_NAMES
    if failed and after.failures != before.failures + (not in_outage):
        yield "I16", f"a failure took the count from {before.failures} to {after.failures}"
    yield from _check_outages(before, after, last, in_outage=in_outage)
    if failed and len(events) > 1 and isinstance(last, ev.StageFailed | ev.StageUndoFailed):
        yield "S6", "the stage's failure comes after what followed from it"
    if after.failures > after.retry_max:
        yield "I16", f"{after.failures} failures, at most {after.retry_max} are allowed"
    waits = isinstance(last, ev.TaskRetryScheduled)
    if waits and not in_outage and after.failures >= after.retry_max:
        yield "I16", f"it is tried again after failure {after.failures} of {after.retry_max}"
    if isinstance(last, ev.LeaseLost) and after.crashes != before.crashes + last.counted:
        yield "I16", f"a lost lease took the crashes from {before.crashes} to {after.crashes}"
    if after.suspended and after.failure is None:
        yield "L4", f"it is {after.status} and does not say why"


def _check_outages(
    before: Task, after: Task, last: ev.Event, *, in_outage: bool
) -> Iterator[Breach]:
    """Check that a row of outages grows by one, or begins anew after anything else."""
    if not in_outage:
        counted = isinstance(last, ev.StageCompleted | ev.StageUndone | ev.TaskSnoozed)
        failed = isinstance(last, ev.TaskRetryScheduled | ev.TaskRetried | ev.TaskRollingBack)
        if (counted or failed) and after.outages:
            yield "I16", f"{after.outages} outages in a row behind {ev.name_of(last)}"
        return
    stages = {task.failure.stage for task in (before, after) if task.failure is not None}
    goes_on = before.outages > 0 and before.crashes == before.lapses == 0 and len(stages) == 1
    if after.outages != (before.outages + 1 if goes_on else 1):
        yield "I16", f"an outage took the row from {before.outages} to {after.outages}"
    if after.outage_since != (before.outage_since if goes_on else after.updated_at):
        yield "I16", f"the row of outages began at {before.outage_since}, not {after.outage_since}"
    kind = after.failure.kind if after.failure is not None else None
    if (
        isinstance(last, ev.TaskFailedEvent | ev.TaskRollbackFailed)
        and kind is not FailureKind.OUTAGE
    ):
        yield "I16", f"an outage suspended it as {kind}"


def _check_stage_completed(
    book: WorldBook, before: Task, after: Task, event: ev.StageCompleted
) -> Iterator[Breach]:
    index, stages = before.last_completed + 1, after.stages
    if stages != before.stages and before.type not in CHANGING:
        yield "I7", f"its stages {before.stages} became {stages}"
    if stages[:index] != before.stages[:index]:
        yield "I7", f"its completed stages {before.stages[:index]} became {stages[:index]}"
    if (event.run, event.epoch) != (before.run, before.epoch):
        yield "I6", f"run {event.run} of epoch {event.epoch} completed a stage of {before.run}"
    if index >= len(stages) or event.stage != stages[index]:
        yield "I7", f"stage {event.stage} completed after {before.last_completed + 1} stages"
    if after.last_completed != index:
        yield "I7", f"stage {index} completed, the record says {after.last_completed}"
    done = (after.id, after.epoch, event.stage)
    if done in book.completed:
        yield "I6", f"stage {event.stage} of epoch {after.epoch} was committed twice"
    book.completed.add(done)
    run = book.invocations.get((f"{after.id}/{after.epoch}/{event.stage}", before.fence))
    if run is None or run.returned is None:
        yield "I6", f"stage {event.stage} was committed, but its holder's call has not returned"


def _check_stage_undone(
    book: WorldBook, before: Task, after: Task, event: ev.StageUndone
) -> Iterator[Breach]:
    if before.next_undo < 0 or event.stage != before.stages[before.next_undo]:
        yield "I7", f"{event.stage} was undone, the next to undo was number {before.next_undo}"
    if after.next_undo != before.next_undo - 1:
        yield "I7", f"an undo took the next one from {before.next_undo} to {after.next_undo}"
    done = (after.id, after.epoch, event.stage)
    if done in book.undone:
        yield "I6", f"stage {event.stage} of epoch {after.epoch} was undone twice"
    book.undone.add(done)
    if done in book.undoable and not event.had_undo:
        yield "S8", f"{event.stage} had an undo when it was committed, and was passed over"
    run = book.invocations.get((f"{after.id}/{after.epoch}/{event.stage}/undo", before.fence))
    if event.had_undo and (run is None or run.returned is None):
        yield "I6", f"the undo of {event.stage} was committed, but its call has not returned"


def _check_rollback_begin(book: WorldBook, after: Task) -> Iterator[Breach]:
    left = _to_undo(book, after) - set(after.stages[: after.next_undo + 1])
    if left:
        yield "S8", f"the rollback starts at {after.next_undo}, but stages {sorted(left)} had begun"


def _to_undo(book: WorldBook, task: Task) -> set[str]:
    """Return the stages that have begun and are not undone. A stage that has begun and not come to
    its end may have gone, or moved, with a deploy; one that is completed may not."""
    names = book.begun[task.id, task.epoch]
    if task.type in CHANGING:
        names = {name for name in names if (task.id, task.epoch, name) in book.completed}
    return {name for name in names if (task.id, task.epoch, name) not in book.undone}


def _check_rollback_end(book: WorldBook, before: Task) -> Iterator[Breach]:
    for name in sorted(_to_undo(book, before)):
        yield "S8", f"it is rolled back, but {name} had begun and is not undone"
