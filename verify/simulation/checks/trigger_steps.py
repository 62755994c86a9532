"""Checks of each step of a trigger, whoever made it.

The policies are told here a second time, from the words of the documents and not from the code:
each change answers for the fire times that it passes, with a task or as missed (I12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Conflict, Existing, Inserted, Submission
from holdfast.domain.trigger import firing
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.definition import definition_of
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import (
    LEASE,
    TABLE,
    UNFINISHED,
    Changed,
    Misfire,
    NoRoom,
    Overlap,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerStatus,
    with_last_task,
)
from verify.simulation.checks.book import Breach, WorldBook

T = TriggerStatus

MANY = 5_000  # fire times passed in one step, at most
AT_ONCE = 100  # tasks of one change
SECOND = 1e-3
REST = (Place.PARKED, Place.SETTLED)


@dataclass(slots=True)
class TriggerBook:
    book: WorldBook
    known: dict[str, Trigger] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)  # by the store's clock
    applied: set[tuple[str, str, int]] = field(default_factory=set)
    overlapped: set[tuple[str, int]] = field(default_factory=set)
    redefined: set[str] = field(default_factory=set)  # its times began anew: one may come again

    def count(self, name: str) -> None:
        self.book.counts[f"trigger {name}"] += 1

    def forget(self, trigger_id: str) -> None:
        """Forget a trigger that was deleted: one that is made later under its id counts its
        versions from 1 again, and a scheduler's write may then repeat a request of the first."""
        self.applied = {write for write in self.applied if write[0] != trigger_id}
        self.overlapped = {fired for fired in self.overlapped if fired[0] != trigger_id}
        self.known.pop(trigger_id, None)


def handed_out(
    book: TriggerBook,
    given: Sequence[Trigger],
    owner: str,
    *,
    now: float,
    wall: float,
    is_due: bool = True,
) -> Iterator[Breach]:
    """Check triggers that were handed out; ``is_due`` is False for a claim by id at any time."""
    for after in given:
        before = book.known.get(after.id)
        if before is None or before.status not in LEASE or before.trigger_at is None:
            yield "I12", f"{after.id} was handed out, it was {before}"
            continue
        if is_due and before.owner is None and before.trigger_at > wall + SECOND:
            yield "L2", f"{after.id} was handed out {before.trigger_at - wall:.3f} s early"
        holds = before.lease_until is not None and before.lease_until > now
        again = holds and not is_due and before.owner == owner  # the first answer was lost
        if holds and not again:
            yield "I3", f"{after.id} was handed out while {before.owner} had it"
        taken_over = before.owner is not None and not again
        if taken_over:
            book.count("taken over")
        wanted = (LEASE[before.status], before.version + 1, owner, before.retry_count + taken_over)
        if (after.status, after.version, after.owner, after.retry_count) != wanted:
            yield "I4", f"{after.id} was handed out as {after}"


def check_apply(
    book: TriggerBook,
    batch: Sequence[TriggerChange],
    answers: Sequence[TriggerOutcome],
    now_is: Mapping[str, Trigger],
) -> Iterator[Breach]:
    for change, outcome in zip(batch, answers, strict=True):
        before, after = book.known.get(change.after.id), now_is.get(change.after.id)
        is_written = after is not before
        name = (change.after.id, change.after.request, change.after.version)
        if not isinstance(outcome, Changed):
            if name in book.applied and before and before.version == change.after.version:
                yield "I9", f"{before.id}: a write sent again was answered {outcome}"
            if is_written:
                yield "I3", f"{change.after.id}: answered {outcome} and written all the same"
            yield from _check_refusal(book, before, change, outcome)
        elif name in book.applied:
            book.count("write repeated")
            if is_written or outcome.tasks:
                yield "I9", f"{change.after.id}: a write sent again was done again"
        else:
            book.applied.add(name)
            yield from _check_write(book, before, change, outcome, after)


def _check_refusal(
    book: TriggerBook, before: Trigger | None, change: TriggerChange, outcome: TriggerOutcome
) -> Iterator[Breach]:
    match outcome:
        case TriggerStale():
            if before is not None and before.version == change.before.version:
                yield "I3", f"{before.id}: a right write was refused"
            book.count("zombie refused" if change.audit is None else "decided anew")
        case Overlapping(task_id=task_id):
            task = book.book.tasks.get(task_id)
            if change.before.overlap is Overlap.ALLOW or task is None or task.place in REST:
                yield "I12", f"{change.after.id}: overlaps with {task_id}, which has ended"
            book.overlapped.add((change.before.id, change.before.version))
            book.count(f"overlapped {change.before.overlap}")
        case NoRoom():
            book.count("without room")


def _check_write(
    book: TriggerBook,
    before: Trigger | None,
    change: TriggerChange,
    outcome: Changed,
    now_is: Trigger | None,
) -> Iterator[Breach]:
    after = change.after
    if before is None and change.before.version == 0:
        if now_is != after or after.version != 1 or change.submissions:
            yield "I4", f"{after.id} was created as {now_is}"
        book.count("created")
        return
    if before is None or before.version != change.before.version:
        yield "I3", f"{after.id}: written over {before}, decided on version {change.before.version}"
        return
    if now_is != with_last_task(change, outcome.tasks):
        yield "I3", f"{after.id}: the record is not the one that was decided"
    if after.version != before.version + 1:
        yield "I4", f"{after.id}: version {before.version} became {after.version}"
    if len(outcome.tasks) != len(change.submissions):
        yield "I12", f"{after.id}: {len(change.submissions)} tasks, {len(outcome.tasks)} answers"
    yield from _check_tasks(book, change, outcome)
    if change.audit is not None:
        yield from _check_request(book, before, change)
    elif definition_of(before) != definition_of(after) or before.status not in UNFINISHED:
        book.redefined.add(after.id)
        if change.submissions:
            yield "I12", f"{after.id}: a new definition made a task"
        dropped = after.status is T.CANCELLED
        book.count("dropped" if dropped else "redefined")
    elif after.status is T.CANCELLED:
        book.count("dropped")
        if change.submissions or not before.declared:
            yield "I12", f"{after.id} was dropped, and nobody had asked for it"
    else:
        yield from _check_firing(book, before, change)


def _check_tasks(book: TriggerBook, change: TriggerChange, outcome: Changed) -> Iterator[Breach]:
    for answer in outcome.tasks:
        again = change.after.id in book.redefined and isinstance(answer, Existing | Conflict)
        if not isinstance(answer, Inserted) and not again:
            yield "I12", f"{change.after.id}: its task was answered {answer}"


def _check_request(book: TriggerBook, before: Trigger, change: TriggerChange) -> Iterator[Breach]:
    after, audit = change.after, change.audit
    assert audit is not None
    book.count(f"asked {audit.command}")
    if before.status not in UNFINISHED or after.status not in TABLE[before.status].values():
        yield "S2", f"{after.id}: {audit.command} took it from {before.status} to {after.status}"
    if (after.fired - before.fired) != len(change.submissions) or len(change.submissions) > 1:
        yield "I12", f"{after.id}: {audit.command} made {len(change.submissions)} tasks"
    ended = after.status not in UNFINISHED
    if after.fire_time != (None if ended else before.fire_time) or after.missed != before.missed:
        yield "I12", f"{after.id}: {audit.command} moved its fire time to {after.fire_time}"


def _check_firing(book: TriggerBook, before: Trigger, change: TriggerChange) -> Iterator[Breach]:
    """Check a change that a scheduler made."""
    after, made = change.after, change.submissions
    if before.status is not T.PROCESSING or before.owner is None:
        yield "I3", f"{after.id} was moved on while it was {before.status} and nobody's"
        return
    if after.status not in TABLE[before.status].values() or after.owner is not None:
        yield "S2", f"{after.id} went from {before.status} to {after.status}, {after.owner}'s"
    assert before.fire_time is not None
    if after.fire_time == before.fire_time:
        book.count("put off" if after.status is T.PENDING else f"rests {after.status}")
        if made or after.missed != before.missed:
            yield "I12", f"{after.id} made a task and did not move on"
        return
    if after.fire_time is not None and after.fire_time < before.fire_time:
        yield from _check_brought_back(book, before, change)
        return
    yield from _check_counts(before, after, made)
    yield from _check_policy(book, before, made)
    yield from _check_overlap(book, before, made)


def _check_brought_back(
    book: TriggerBook, before: Trigger, change: TriggerChange
) -> Iterator[Breach]:
    """Check a trigger that was brought back from a time that a clock ahead had chosen: it goes to
    its next one, with no task of its own."""
    after = change.after
    book.count("brought back")
    book.redefined.add(after.id)
    if change.submissions or (after.fired, after.missed) != (before.fired, before.missed):
        yield "I12", f"{after.id} was brought back and made {len(change.submissions)} tasks"
    if after.fire_time != times.next_after(before.schedule, before.updated_at):
        yield "I12", f"{after.id} was brought back to {after.fire_time} at {before.updated_at}"


def _check_counts(before: Trigger, after: Trigger, made: Sequence[Submission]) -> Iterator[Breach]:
    """Check that each fire time that was passed made a task or is counted as missed."""
    assert before.fire_time is not None
    passed = _passed_times(before, after)
    missed = after.missed - before.missed
    is_complete = len(made) + missed == len(passed)
    if not is_complete and (
        len(passed) <= firing.FIRE_TIMES_MAX or len(made) + missed > len(passed)
    ):
        counts = f"{len(passed)} fire times, {len(made)} tasks, {missed} missed"
        yield "I12", f"{after.id} moved on from {before.fire_time} to {after.fire_time}: {counts}"
    if after.fired - before.fired != len(made):
        yield "I12", f"{after.id} says {after.fired} after {before.fired}, {len(made)} were made"
    if passed and passed[-1] > max(before.updated_at, before.fire_time) + SECOND:
        yield "I12", f"{after.id} answered for {passed[-1]} at {before.updated_at}"


def _passed_times(before: Trigger, after: Trigger) -> list[float]:
    assert before.fire_time is not None
    if after.fire_time is None:
        ends = isinstance(before.schedule, Once)
        return [before.fire_time] if ends else []
    return times.latest(before.schedule, before.fire_time, after.fire_time - SECOND, MANY)


def _check_policy(
    book: TriggerBook, before: Trigger, made: Sequence[Submission]
) -> Iterator[Breach]:
    assert before.fire_time is not None
    now = max(before.updated_at, before.fire_time)
    due = times.latest(before.schedule, before.fire_time, now, MANY)
    wanted = _times_to_fire(before, due, now)
    if len(due) > 1 or now - due[-1] > before.grace_seconds:
        book.count(f"misfire {before.misfire}")
    keys = [submission.task.key for submission in made]
    if not keys and (before.id, before.version) in book.overlapped:
        wanted = []  # unless the last task has ended since that was answered
    if keys != [firing.key(before, at) for at in wanted]:
        policy = f"{before.misfire}, {before.overlap}: due were {due[-5:]}, wanted {wanted}"
        yield "I12", f"{before.id} at {now} made {keys}; {policy}"


def _times_to_fire(trigger: Trigger, due: Sequence[float], now: float) -> Sequence[float]:
    times_due: Sequence[float] = ()
    match trigger.misfire:
        case Misfire.ONCE:
            times_due = due[-1:]
        case Misfire.SKIP:
            late = trigger.grace_seconds + trigger.jitter_seconds
            times_due = [at for at in due if now - at <= late]
        case Misfire.CATCH_UP:
            times_due = due[-trigger.catch_up_max :]
    return times_due[: AT_ONCE if trigger.overlap is Overlap.ALLOW else 1]


def _check_overlap(
    book: TriggerBook, before: Trigger, made: Sequence[Submission]
) -> Iterator[Breach]:
    last: Task | None = book.book.tasks.get(before.last_task or "")
    if made and before.overlap is not Overlap.ALLOW and last and last.place not in REST:
        yield "overlap", f"{before.id} fired while {last.id} was {last.place}"


def in_place(trigger: Trigger) -> Iterator[Breach]:
    """Check that a trigger waits for its time, is leased, rests or has ended: one of these."""
    waits, leased = trigger.trigger_at is not None, trigger.owner is not None
    has_next = trigger.fire_time is not None
    where = {
        T.PENDING: (True, False, True),
        T.PROCESSING: (True, True, True),
        T.PAUSED: (False, False, True),
        T.SUSPENDED: (False, False, True),
        T.COMPLETED: (False, False, False),
        T.CANCELLED: (False, False, False),
    }
    if (waits, leased, has_next) != where[trigger.status]:
        yield "I1", f"{trigger.id} is lost: {trigger}"
    if leased != (trigger.lease_until is not None):
        yield "I3", f"{trigger.id} is {trigger.owner}'s until {trigger.lease_until}"
    if trigger.status is T.SUSPENDED and not trigger.reason:
        yield "L4", f"{trigger.id} is suspended and does not say why"


def check_deleted(trigger: Trigger, *, wall: float) -> Iterator[Breach]:
    if trigger.ended_at is None or trigger.ended_at + trigger.keep_seconds > wall:
        yield "I1", f"{trigger.id} was deleted while it was {trigger.status}"
