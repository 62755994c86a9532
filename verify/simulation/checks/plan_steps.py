"""Checks of each step of a plan and of its tasks, whoever made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from holdfast.domain.plan.members import in_scope, to_undo
from holdfast.domain.plan.plan import (
    SETTLED,
    SLOTTED,
    TABLE,
    WAITING,
    Member,
    MemberState,
    Plan,
    PlanChange,
    PlanNext,
    PlanStatus,
)
from holdfast.domain.task import events as ev
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By
from holdfast.domain.task.transition import Busy, Outcome, Transition
from verify.simulation.checks.book import Breach, RecordMove, WorldBook

M, P = MemberState, PlanStatus

Members = Mapping[int, Member]

MOVING = frozenset({Status.PENDING, Status.RUNNING, Status.RETRYING, Status.ROLLING_BACK})
SETS_GOING = (
    ev.TaskReleased,
    ev.TaskRetried,
    ev.TaskResumed,
    ev.TaskRollingBack,
    ev.PauseWithdrawn,
)
UNENDED = (M.ADMITTED, M.UNDOING, M.PAUSED)
SECOND = 1e-3


@dataclass(slots=True)
class PlanBook:
    book: WorldBook
    known: dict[str, tuple[Plan, dict[int, Member]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)  # of each task in its plan
    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    applied: set[tuple[str, str, int]] = field(default_factory=set)
    by_hand: set[str] = field(default_factory=set)  # tasks that a person has set going
    touched: set[str] = field(default_factory=set)  # tasks of which a person has asked anything
    moving: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by plan
    busy: dict[tuple[str, int], str] = field(default_factory=dict)  # release of a version: by whom
    fences: dict[str, int] = field(default_factory=dict)
    leased_at: dict[str, float] = field(default_factory=dict)  # by the store's clock
    paused_at: dict[str, float] = field(default_factory=dict)  # by the store's clock

    def count(self, name: str) -> None:
        self.book.counts[f"plan {name}"] += 1


def check_write(
    book: PlanBook, before: Plan, members: Members, change: PlanChange, after: Plan
) -> Iterator[Breach]:
    """Check a change that was applied for the first time."""
    if change.lease is not None and (before.lease is None or before.lease.id != change.lease):
        yield "I3", f"{after.id} was written under {change.lease}, it has {before.lease}"
    if before.version != change.before.version:
        yield "I3", f"{after.id} was written over version {before.version}"
    if after.version != before.version + 1:
        yield "I4", f"{after.id}: version {before.version} became {after.version}"
    if replace(after, lease=None, fence=0) != replace(change.after, lease=None, fence=0):
        yield "I3", f"{after.id} is not what was decided"
    if not change.events or any(event.version != after.version for event in change.events):
        yield "I15", f"{after.id}: version {after.version} has {change.events}"
    if after.status is not before.status and after.status not in TABLE[before.status].values():
        yield "S2", f"{after.id} went from {before.status} to {after.status}"
    after_is = {**members, **dict(change.moves)}
    chosen = [i for i, member in change.moves if _is_chosen(members.get(i, WAITING), member)]
    yield from _check_slots(book, after, members, after_is, chosen)
    yield from _check_admissions(
        before, after, [i for i in chosen if after_is[i].state is M.ADMITTED]
    )
    yield from _check_waves(before, after, change)
    undone = [i for i in chosen if after_is[i].state is M.UNDOING]
    yield from _check_undo_order(book, before, after_is, undone)
    yield from _check_end(before, after, change, after_is)
    for index in chosen:
        book.by_hand.discard(book.ids[after.id][index])


def _is_chosen(before: Member, after: Member) -> bool:
    """Return whether the member was given a slot, rather than found on its way."""
    return after.state in SLOTTED and after.version != 0 and before != after


def _check_slots(
    book: PlanBook, plan: Plan, before: Members, after: Members, chosen: list[int]
) -> Iterator[Breach]:
    most, ids = plan.max_concurrency or plan.total, book.ids[plan.id]
    taken = [index for index, member in after.items() if member.state in SLOTTED]
    if chosen and len(taken) > most:
        yield "slots", f"{plan.id} let {chosen} go, {len(taken)} have slots, at most {most} may"
    alone = [i for i in taken if ids[i] not in book.by_hand]
    if len(alone) > most:
        yield "slots", f"{len(alone)} tasks of {plan.id} have slots, at most {most} may"
    for index, member in before.items():
        if member.state in SLOTTED and after[index].state not in SLOTTED:
            yield from _check_stopped(book, plan, index)


def _check_stopped(book: PlanBook, plan: Plan, index: int) -> Iterator[Breach]:
    task_id = book.ids[plan.id][index]
    if task_id in book.moving[plan.id] - book.by_hand:
        yield "slots", f"{plan.id} took the slot of {task_id}, which is on its way"


def _check_admissions(before: Plan, after: Plan, chosen: list[int]) -> Iterator[Breach]:
    if not chosen:
        return
    if not before.status is after.status is P.RUNNING or before.cancel_requested:
        yield "admitted", f"{before.id} let {chosen} go while it was {before.status}"
    if late := [index for index in chosen if index >= before.waves[before.wave]]:
        yield "wave", f"{before.id} let {late} go, which are behind wave {before.wave + 1}"
    if _is_unhealthy(after):
        yield "halt", f"{before.id} let {chosen} go and should have halted: {after.counts}"


def _is_unhealthy(plan: Plan) -> bool:
    failed = plan.count(M.FAILED, wave=plan.wave) - plan.forgiven
    rule, size = plan.halt_on, plan.size(plan.wave)
    return rule is not None and rule.broken_by(max(0, failed), size)


def _check_waves(before: Plan, after: Plan, change: PlanChange) -> Iterator[Breach]:
    if after.wave == before.wave:
        return
    if change.audit is not None and after.wave < before.wave:
        return  # a retry begins where the first failed
    wave, counted = before.wave, replace(after, wave=before.wave)
    if after.wave != wave + 1 or before.status is not P.RUNNING:
        yield "wave", f"{before.id} went from wave {wave} to {after.wave}, {before.status}"
    if counted.waiting(wave) or counted.count(*UNENDED, wave=wave):
        yield "wave", f"{before.id} left wave {wave + 1}, in which are {counted.counts[wave]}"
    if _is_unhealthy(replace(counted, forgiven=before.forgiven)):
        yield "halt", f"{before.id} left wave {wave + 1} and should have halted"
    soaked = after.updated_at - (before.soaks_since or after.updated_at)
    if before.wave_ran and soaked < before.soak_seconds - SECOND:
        yield "soak", f"wave {wave + 1} of {before.id} soaked {soaked} of {before.soak_seconds} s"


def _check_undo_order(
    book: PlanBook, plan: Plan, members: Members, chosen: list[int]
) -> Iterator[Breach]:
    if not chosen:
        return
    if plan.status is not P.ROLLING_BACK:
        yield "undo", f"{plan.id} rolls back {chosen} while it is {plan.status}"
    whole = not plan.undo_from and plan.undo_upto in (None, plan.total)
    unended = [i for i in range(plan.total) if whole and i not in members]
    slotted = [i for i, member in members.items() if member.state is M.ADMITTED]
    running = [i for i in slotted if in_scope(plan, i)]
    by_choice = [i for i in running if members[i].version != 0]
    if unended or by_choice:
        yield "undo", f"{plan.id} rolls back {chosen}, and {unended or by_choice} may still run"
    ids, there = book.ids[plan.id], book.book.tasks  # of one that is gone nothing can be undone
    left = [i for i, member in members.items() if to_undo(plan, i, member) and ids[i] in there]
    if newer := [i for i in left if i > min(chosen)]:
        yield "undo", f"{plan.id} rolls back {chosen} before {newer}"


def _check_end(before: Plan, after: Plan, change: PlanChange, members: Members) -> Iterator[Breach]:
    if (change.next is PlanNext.SETTLED) != after.settled or after.settled > (
        after.status in SETTLED
    ):
        yield "I1", f"{after.id} is {after.status} and goes {change.next}"
    if after.status is before.status or change.audit is not None:
        return
    states = {member.state for member in members.values()}
    failed, done = states & {M.FAILED, M.ROLLBACK_FAILED}, M.COMPLETED in states
    is_over = not after.all_waiting and not states & {*UNENDED}
    slotted = any(m.state in SLOTTED and in_scope(after, i) for i, m in members.items())
    right = {
        P.COMPLETED: is_over and not failed,
        P.PARTIAL_FAILED: is_over and bool(failed) and done,
        P.FAILED: is_over and bool(failed) and not done,
        P.CANCELLED: is_over and not failed,
        # Tasks of waves that were not asked for stay as they are.
        P.ROLLED_BACK: not slotted and M.ROLLBACK_FAILED not in states,
        P.ROLLBACK_FAILED: not slotted and M.ROLLBACK_FAILED in states,
        P.HALTED: _is_unhealthy(after),
    }
    if not right.get(after.status, True):
        yield "ended", f"{after.id} became {after.status} with {after.counts}"


# -- the tasks of a plan


def task_moved(book: PlanBook, move: RecordMove) -> Iterator[Breach]:
    task, plan_id = move.task, move.task.plan
    if plan_id is None or plan_id not in book.known or task.id not in book.numbers:
        return
    moving = book.moving[plan_id]
    if any(_is_a_persons(event) for event in move.events):
        book.touched.add(task.id)
    if move.after is None or move.after.status not in MOVING:
        moving.discard(task.id)
        return
    if any(isinstance(event, SETS_GOING) and _is_a_persons(event) for event in move.events):
        book.by_hand.add(task.id)
    if task.id in moving or move.before is None:
        return
    moving.add(task.id)
    plan, members = book.known[plan_id]
    member = members.get(book.numbers[task.id], WAITING)
    if task.id in book.by_hand:
        book.count("task by hand")
        return
    if member.state not in SLOTTED:
        yield "admitted", f"it became {task.status}, for its plan it is {member.state}"
    most, alone = plan.max_concurrency or plan.total, moving - book.by_hand
    if len(alone) > most:
        yield "slots", f"{len(alone)} tasks of {plan_id} are on their way, at most {most} may"


def let_go(
    book: PlanBook, batch: Sequence[Transition], answers: Sequence[Outcome], *, driver: str
) -> Iterator[Breach]:
    """Check that a driver that was answered "busy" takes the slot back before it tries again.
    ``driver`` is empty if the answer may not have reached it."""
    for transition, outcome in zip(batch, answers, strict=True):
        if not transition.not_if_busy:
            continue
        name = (transition.task_id, transition.expects)
        if driver and book.busy.get(name) == driver:
            yield "slots", f"{transition.task_id} kept its slot while its tenant was busy"
        if isinstance(outcome, Busy):
            book.busy[name] = driver


def _is_a_persons(event: ev.Event) -> bool:
    by: By | None = getattr(event, "by", None)
    return by is not None and not by.actor.startswith("plan:")


def rests(book: PlanBook, plan: Plan, change: PlanChange) -> Iterator[Breach]:
    """Check that no task which the plan has started still runs when no driver has the plan."""
    if change.lease is None or change.next not in (PlanNext.REST, PlanNext.SETTLED):
        return
    if left := sorted(book.moving[plan.id] - book.by_hand):
        yield "ended", f"{plan.id} goes to rest as {plan.status}, and {left} are on their way"


def handed_out(book: PlanBook, before: Plan, after: Plan, *, now: float) -> Iterator[Breach]:
    lease, book.leased_at[after.id] = after.lease, now
    if lease is None or after.fence != lease.fence or after.fence <= book.fences.get(after.id, 0):
        yield "I5", f"{after.id} was handed out with {lease} after {book.fences.get(after.id)}"
    book.fences[after.id] = after.fence
    if before.lease is not None:
        book.count("taken over")
    if replace(after, lease=None, fence=0) != replace(before, lease=None, fence=0):
        yield "I3", f"to hand out {after.id} changed it"
