"""How a plan sees its tasks, and what it wants of each: for every plan, member and task."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from holdfast.domain.plan import members as mem
from holdfast.domain.plan.members import MemberTask, pause_mark
from holdfast.domain.plan.plan import (
    SLOTTED,
    TABLE,
    WAITING,
    Member,
    MemberState,
    Plan,
    PlanCommand,
    PlanStatus,
)
from holdfast.domain.task import operate
from holdfast.domain.task.state import SETTLED, Command, Status
from holdfast.domain.task.task import By, Task, apply_command
from tests.support.plan_records import plan
from tests.support.task_records import ASK, task

P, M, S, C = PlanStatus, MemberState, Status, Command

SETTLED_PLANS = (P.COMPLETED, P.CANCELLED)
ALL = list(product(PlanStatus, MemberState))
AT = 4  # the version of the tasks of these tests
MOST_LOOKS = 12


def plans(status: PlanStatus) -> Iterator[Plan]:
    yield plan(status)
    if PlanCommand.CANCEL in TABLE[status]:
        yield plan(status, cancel_requested=True)


def tasks(status: Status) -> Iterator[Task]:
    reasons = [None, "ada wants it", pause_mark(plan())]
    for reason in reasons if status in (S.PAUSED, S.RUNNING) else [None]:
        yield task(status, version=AT, reason=reason)
        if status is S.RUNNING:
            yield task(status, version=AT, reason=reason, pause_requested=True)
            yield task(status, version=AT, reason=reason, cancel_requested=True)


def scenes(plan_status: PlanStatus, state: MemberState) -> Iterator[tuple[Plan, Member, Task]]:
    every = [one for status in Status for one in tasks(status)]
    for of, version, one in product(plans(plan_status), (0, AT, AT - 1), every):
        yield of, Member(state, version), one


@pytest.mark.parametrize(("plan_status", "state"), ALL)
def test_what_a_plan_wants_is_legal_for_the_task(
    plan_status: PlanStatus, state: MemberState
) -> None:
    for of, before, one in scenes(plan_status, state):
        member = mem.observe_member(of, 0, before, look(one))
        command = mem.next_command(of, 0, member, one)
        assert command is None or one.can(command), (of.cancel_requested, member, one)


@pytest.mark.parametrize(("plan_status", "state"), ALL)
def test_commands_come_to_an_end_and_looking_twice_is_looking_once(
    plan_status: PlanStatus, state: MemberState
) -> None:
    """Nobody but the plan acts, and the workers do as the tasks were asked to."""
    for scene in scenes(plan_status, state):
        *_, sent = settled(*scene)
        assert len(sent) <= 2, (sent, scene)


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("plan_status", [s for s in TABLE if PlanCommand.CANCEL in TABLE[s]])
def test_a_cancel_brings_every_task_to_its_end(plan_status: PlanStatus, state: MemberState) -> None:
    for of, before, one in scenes(plan_status, state):
        if not of.cancel_requested or one.status is S.ROLLING_BACK:
            continue  # what is being undone ends by itself
        member, after, _ = settled(of, before, one)
        assert member.state in (M.CANCELLED, M.COMPLETED, M.ROLLED_BACK, M.SKIPPED), (before, one)
        assert after.status in SETTLED or state is M.SKIPPED, (before, one)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("state", [M.WAITING, M.ADMITTED])
def test_a_rollback_first_brings_all_that_goes_forward_to_rest(
    state: MemberState, status: Status
) -> None:
    of = plan(P.ROLLING_BACK)
    for version, one in product((0, AT), tasks(status)):
        member, *_ = settled(of, Member(state, version), one)
        assert member.state not in (M.WAITING, M.ADMITTED), (state, version, status)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("plan_status", [P.PAUSED, P.HALTED])
def test_a_plan_that_stands_still_keeps_no_slot_for_a_task_that_has_not_begun(
    plan_status: PlanStatus, status: Status
) -> None:
    of = plan(plan_status)
    member, one, _ = settled(of, Member(M.ADMITTED, AT), task(status, version=AT))
    if status in mem.SETS_GOING:
        assert member == (WAITING if status is S.CREATED else Member(M.AGAIN))
        assert one.version > AT or status is not S.CREATED, "a release on its way is void"


def settled(of: Plan, member: Member, one: Task) -> tuple[Member, Task, list[Command]]:
    """When the plan has looked, and asked, until it wants nothing more."""
    sent: list[Command] = []
    for _ in range(MOST_LOOKS):
        member = mem.observe_member(of, 0, member, look(one))
        assert mem.observe_member(of, 0, member, look(one)) == member
        if command := mem.next_command(of, 0, member, one):
            sent.append(command)
            one = carried_out(one, command)
        elif one == (one := at_boundary(one)):
            return member, one, sent
    pytest.fail(f"never comes to rest: {sent}")


def look(one: Task) -> MemberTask:
    return MemberTask(status=one.status, task=one)


def carried_out(one: Task, command: Command) -> Task:
    decisions: dict[Command, Any] = {
        C.RELEASE: operate.release,
        C.HOLD_BACK: operate.hold_back,
        C.RETRY: operate.retry,
        C.PAUSE: operate.pause,
        C.RESUME: operate.resume,
        C.CANCEL: operate.cancel,
        C.DISCARD: operate.discard,
        C.ROLLBACK: operate.rollback,
    }
    by = By(actor="plan", reason=pause_mark(plan()))
    ask = operate.OperatorRequest(by=by, now=ASK.now, request="r")
    after: Task = decisions[command](one, ask).after
    return after


def at_boundary(one: Task) -> Task:
    """What the holder of a running task does there, if it was asked to stop."""
    if one.status is S.RUNNING and one.cancel_requested:
        return apply_command(one, C.CANCEL, now=ASK.now)
    if one.status is S.RUNNING and one.pause_requested:
        return apply_command(one, C.PAUSE, now=ASK.now, pause_requested=False)
    return one


# By example.


def test_a_slot_stays_with_a_task_whose_release_is_on_its_way() -> None:
    member = Member(M.ADMITTED, AT)
    created = task(S.CREATED, version=AT)
    assert mem.observe_member(plan(), 0, member, look(created)) == member
    assert mem.next_command(plan(), 0, member, created) is C.RELEASE


def test_a_task_that_was_held_back_has_lost_its_slot() -> None:
    assert (
        mem.observe_member(plan(), 0, Member(M.ADMITTED, AT), look(task(S.CREATED, version=AT + 1)))
        == WAITING
    )


def test_a_task_to_be_retried_waits_for_a_slot_and_is_set_going() -> None:
    failed = task(S.FAILED, version=AT)
    again = Member(M.AGAIN)
    assert mem.observe_member(plan(), 0, again, look(failed)) == again
    assert mem.may_be_admitted(again, look(failed))
    assert mem.next_command(plan(), 0, Member(M.ADMITTED, AT), failed) is C.RETRY


def test_a_failed_task_whose_retry_was_decided_on_can_still_be_undone() -> None:
    """Its driver died over it, and then a person asked for a rollback."""
    member, failed = Member(M.ADMITTED, AT), task(S.FAILED, version=AT)
    member, failed, sent = settled(plan(P.ROLLING_BACK), member, failed)
    assert (member, sent) == (Member(M.FAILED), [C.HOLD_BACK])
    assert mem.to_undo(plan(P.ROLLING_BACK), 0, member)


def test_an_undo_that_failed_is_tried_again() -> None:
    of, failed = plan(P.ROLLING_BACK), task(S.ROLLBACK_FAILED, version=AT)
    assert mem.observe_member(of, 0, Member(M.FAILED), look(failed)) == Member(M.FAILED)
    undoing = mem.undoing(Member(M.FAILED), look(failed))
    assert undoing == Member(M.UNDOING, AT)
    assert mem.next_command(of, 0, undoing, failed) is C.ROLLBACK


def test_a_pause_by_a_person_is_no_pause_by_the_plan() -> None:
    member = Member(M.ADMITTED, 1)
    paused = task(S.PAUSED, reason="ada wants it")
    assert mem.observe_member(plan(), 0, member, look(paused)) == Member(M.PAUSED)
    assert mem.next_command(plan(), 0, member, paused) is None
    own = task(S.PAUSED, reason=pause_mark(plan()))
    assert mem.observe_member(plan(), 0, member, look(own)) == member
    assert mem.next_command(plan(), 0, member, own) is C.RESUME


def test_a_task_of_which_a_tombstone_is_left_is_what_it_ended_as() -> None:
    assert mem.observe_member(
        plan(), 0, Member(M.ADMITTED, AT), MemberTask(status=S.COMPLETED)
    ) == Member(M.COMPLETED)


def test_a_task_whose_record_is_gone_cannot_be_undone() -> None:
    assert mem.undoing(Member(M.COMPLETED), MemberTask(status=S.COMPLETED)) == Member(
        M.ROLLBACK_FAILED
    )


def test_a_cancelled_task_that_did_nothing_need_not_be_undone_and_is_asked_once() -> None:
    of, member = plan(P.ROLLING_BACK), Member(M.CANCELLED)
    assert mem.to_undo(of, 0, member)
    member = mem.undoing(member, look(task(S.CANCELLED, version=AT)))
    assert member == Member(M.CANCELLED, AT)
    assert not mem.to_undo(of, 0, member)
    begun = task(S.CANCELLED, version=AT, last_completed=0)
    assert mem.undoing(Member(M.CANCELLED), look(begun)) == Member(M.UNDOING, AT)


def test_only_what_is_in_scope_is_undone() -> None:
    of = plan(P.ROLLING_BACK, undo_from=1, undo_upto=3)
    assert [i for i in range(4) if mem.to_undo(of, i, Member(M.COMPLETED))] == [1, 2]


def test_a_skipped_task_is_cancelled_whatever_else_the_plan_is_asked_for() -> None:
    created = task(S.CREATED, version=AT)
    for of in (plan(), plan(P.ROLLING_BACK), plan(P.RUNNING, cancel_requested=True)):
        assert mem.next_command(of, 0, Member(M.SKIPPED, AT), created) is C.CANCEL
        assert mem.observe_member(of, 0, Member(M.SKIPPED, AT), look(task(S.CANCELLED))) == Member(
            M.SKIPPED
        )


def test_a_skipped_task_that_a_person_released_is_left_alone() -> None:
    for of in (plan(), plan(P.ROLLING_BACK), plan(P.RUNNING, cancel_requested=True)):
        assert mem.next_command(of, 0, Member(M.SKIPPED), task(S.RUNNING)) is None


@pytest.mark.parametrize("plan_status", SETTLED_PLANS)
@pytest.mark.parametrize("state", [s for s in M if s not in SLOTTED | {M.SKIPPED}])
def test_a_settled_plan_wants_nothing(plan_status: PlanStatus, state: MemberState) -> None:
    """It has no slots then, and those that it skipped were cancelled before."""
    for of, member, one in scenes(plan_status, state):
        assert mem.next_command(of, 0, member, one) is None


@pytest.mark.parametrize(("plan_status", "state"), ALL)
def test_nothing_begins_anew_unless_it_has_a_slot_and_the_plan_runs(
    plan_status: PlanStatus, state: MemberState
) -> None:
    for of, member, one in scenes(plan_status, state):
        if mem.next_command(of, 0, member, one) in (C.RELEASE, C.RETRY, C.RESUME):
            assert of.status is P.RUNNING
            assert member.state in SLOTTED


# What a person does to tasks of a plan that rests.


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED, S.RUNNING, S.PAUSED])
def test_what_could_not_be_undone_stays_so_until_it_is_undone_or_discarded(status: Status) -> None:
    member = Member(M.ROLLBACK_FAILED)
    rests = plan(P.ROLLBACK_FAILED)
    assert mem.observe_member(rests, 0, member, look(task(status))) == member
    assert (
        mem.observe_member(rests, 0, member, MemberTask(status=S.ROLLED_BACK)) == member
    )  # its record is gone
    for after in (S.ROLLED_BACK, S.CANCELLED):
        assert mem.observe_member(rests, 0, member, look(task(after))).state is mem.RESTS[after]
    assert mem.observe_member(rests, 0, member, look(task(S.ROLLING_BACK))).state is M.UNDOING


def test_a_task_whose_command_was_refused_is_as_it_was_until_somebody_does_something() -> None:
    """Newer work had run over it: its retry has failed, though it is rolled back."""
    refused, rests = Member(M.FAILED, AT), plan(P.PARTIAL_FAILED)
    assert mem.observe_member(rests, 0, refused, look(task(S.ROLLED_BACK, version=AT))) == refused
    done = mem.observe_member(rests, 0, refused, look(task(S.COMPLETED, version=AT + 5)))
    assert done.state is M.COMPLETED


def test_a_task_set_going_by_hand_has_a_slot_unless_the_plan_is_paused() -> None:
    going = look(task(S.RUNNING))
    for status in (P.HALTED, P.PARTIAL_FAILED, P.FAILED, P.RUNNING):
        assert mem.observe_member(plan(status), 0, Member(M.FAILED), going).state is M.ADMITTED
    assert mem.observe_member(plan(P.PAUSED), 0, Member(M.FAILED), going).state is M.FAILED
