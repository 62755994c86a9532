"""The judge of triggers reports what is wrong with them, whatever was killed. It is pure.

A trigger's own record says up to which fire time it has answered, how many tasks it made and how
many fire times made none; the tasks carry trigger and fire time in their keys. The schedule says
which fire times there were. These three must agree, to the last fire time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast import Status
from holdfast.domain.task.task import Task
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.definition import first_time
from holdfast.domain.trigger.schedule import Every, Once
from holdfast.domain.trigger.trigger import UNFINISHED, Misfire, Overlap, Trigger
from holdfast.ports import Finding
from verify.chaos.ledger import LedgerEntry, LineKind

EVERY_ONE = 10**6
STORED_SECONDS = 0.001  # a store may keep times in coarser steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerHistory:
    names: Sequence[str]  # of all that were asked for
    triggers: Sequence[Trigger]  # as the store lists them
    tasks: Sequence[Task]
    lines: Sequence[LedgerEntry]
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerVerdict:
    lost: Sequence[str]  # triggers that are not there once, tasks that ended as none should
    doubled: Sequence[str]  # fire times with two tasks
    miscounted: Sequence[str]  # a record that does not say what its tasks say
    unanswered: Sequence[str]  # fire times without a task that nobody counted as missed
    doctor: Sequence[str]
    triggers: int
    fire_times: int
    tasks: int
    by_hand: int
    missed: int
    taken_over: int
    stale: int
    jumps: int

    @property
    def complaints(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.miscounted, *self.unanswered, *self.doctor]


@dataclass(frozen=True, slots=True)
class FiredTasks:
    """The tasks of one trigger: by fire time, and those that a person asked for."""

    timed: Counter[float]
    by_hand: Counter[str]

    @property
    def count(self) -> int:
        return self.timed.total() + self.by_hand.total()


def judge_triggers(history: TriggerHistory) -> TriggerVerdict:
    made = _group_tasks(history.tasks)
    kinds = Counter(line.kind for line in history.lines)
    return TriggerVerdict(
        lost=list(_report_lost(history)),
        doubled=[wrong for of_one in made.items() for wrong in _report_doubled(*of_one)],
        miscounted=[w for t in history.triggers for w in _report_miscounted(t, made[t.id])],
        unanswered=[w for t in history.triggers for w in _report_unanswered(t, made[t.id])],
        doctor=[f"doctor: {f.invariant} {f.task_id} {f.message}" for f in history.findings],
        triggers=len(history.triggers),
        fire_times=sum(len(answered_times(t, _first(t))) for t in history.triggers),
        tasks=len(history.tasks),
        by_hand=sum(of.by_hand.total() for of in made.values()),
        missed=sum(trigger.missed for trigger in history.triggers),
        taken_over=kinds[LineKind.TAKEN_OVER],
        stale=kinds[LineKind.STALE],
        jumps=kinds[LineKind.JUMP],
    )


def _group_tasks(tasks: Sequence[Task]) -> Mapping[str, FiredTasks]:
    found: defaultdict[str, FiredTasks] = defaultdict(lambda: FiredTasks(Counter(), Counter()))
    for task in tasks:
        trigger_id, _, at = (task.key or "").rpartition("@")
        of = found[trigger_id]
        if "+" in at:
            of.by_hand[at] += 1
        elif trigger_id:
            of.timed[datetime.fromisoformat(at).timestamp()] += 1
    return found


def _report_lost(history: TriggerHistory) -> Iterator[str]:
    there = Counter(trigger.id for trigger in history.triggers)
    for name in history.names:
        if there[name] != 1:
            yield f"trigger {name} is there {there[name]} times"
    for line in history.lines:
        if line.kind is LineKind.ACK and line.task not in there:
            yield f"trigger {line.task} was answered and is not in the store"
    fired = sum(made.timed.total() for made in _group_tasks(history.tasks).values())
    if fired < len(history.names):
        yield "hardly a trigger has fired: such a round proves nothing"
    ids = {task.id for task in history.tasks}
    for trigger in history.triggers:
        if trigger.last_task is not None and trigger.last_task not in ids:
            yield f"trigger {trigger.id}: its last task {trigger.last_task} is not in the store"
    for task in history.tasks:  # that all of them had ended, the operator has seen
        if task.status is not Status.COMPLETED and (task.settled or task.suspended):
            yield f"task {task.id} ({task.key}) is {task.status}"


def _report_doubled(trigger_id: str, made: FiredTasks) -> Iterator[str]:
    for at, count in made.timed.items():
        if count > 1:
            yield f"trigger {trigger_id}: {count} tasks for the fire time {_format_time(at)}"
    for at_hand, count in made.by_hand.items():
        if count > 1:
            yield f"trigger {trigger_id}: {count} tasks for one wish, {at_hand}"


def _report_miscounted(trigger: Trigger, made: FiredTasks) -> Iterator[str]:
    if trigger.fired != made.count:
        yield f"trigger {trigger.id} says {trigger.fired} tasks, and there are {made.count}"
    strange = made.timed.keys() - set(answered_times(trigger, _first(trigger, STORED_SECONDS * -2)))
    for at in sorted(strange):
        yield f"trigger {trigger.id}: a task for {_format_time(at)}, which it has not answered for"
    is_over = isinstance(trigger.schedule, Once) and trigger.fire_time is None
    if is_over == (trigger.status in UNFINISHED):
        yield f"trigger {trigger.id} is {trigger.status} and waits for {trigger.fire_time}"


def _report_unanswered(trigger: Trigger, made: FiredTasks) -> Iterator[str]:
    """Report a trigger with a fire time that has no task and was not counted as missed."""
    found = made.timed.total() + trigger.missed
    # Whether a time in the very moment of its making was its first, its record cannot tell.
    firsts = {_first(trigger, by) for by in (-STORED_SECONDS, 0.0, STORED_SECONDS)}
    counts = {len(answered_times(trigger, first)) for first in firsts}
    if found not in counts:
        yield (
            f"trigger {trigger.id} ({trigger.misfire}, {trigger.overlap}) has answered for "
            f"{max(counts)} fire times: {made.timed.total()} tasks, {trigger.missed} missed"
        )
    makes_all = trigger.misfire is Misfire.CATCH_UP and trigger.overlap is Overlap.ALLOW
    if makes_all and trigger.missed:
        yield f"trigger {trigger.id} catches up, and {trigger.missed} fire times made no task"


def answered_times(trigger: Trigger, first: float) -> list[float]:
    """Return the fire times that the trigger has answered for, up to the one it waits for."""
    upto = first if trigger.fire_time is None else trigger.fire_time  # one that fires once is over
    found = times.latest(trigger.schedule, first, upto, EVERY_ONE)
    return [at for at in found if at != trigger.fire_time]


def _first(trigger: Trigger, by_seconds: float = 0.0) -> float:
    made_at, schedule = trigger.created_at + by_seconds, trigger.schedule
    if isinstance(schedule, Every) and schedule.start < made_at:
        owed = EVERY_ONE if trigger.misfire is Misfire.CATCH_UP else 1  # it fires at once
        return times.latest(schedule, schedule.start, made_at, owed)[0]
    found = first_time(schedule, made_at)
    assert found is not None
    return found


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat()
