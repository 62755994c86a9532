"""The table of a plan's states: every status against every command."""

from itertools import product
from typing import Any

import pytest

from holdfast.domain.errors import IllegalTransition, InvalidPlan
from holdfast.domain.plan import commands
from holdfast.domain.plan.events import name_of
from holdfast.domain.plan.plan import (
    ASKED,
    MACHINE,
    SETTLED,
    SUSPENDED,
    TABLE,
    FailureCount,
    FailureRate,
    Member,
    MemberState,
    OnHalt,
    PlanChange,
    PlanCommand,
    PlanNext,
    PlanStatus,
)
from tests.support.plan_records import members, plan, with_members
from tests.support.task_records import ASK, NOW

S, C, M = PlanStatus, PlanCommand, MemberState
CREATOR = frozenset({C.SEAL})
DRIVER = frozenset(PlanCommand) - ASKED - CREATOR


@pytest.mark.parametrize(("status", "command"), list(product(PlanStatus, PlanCommand)))
def test_a_command_steps_as_the_table_says_or_is_refused(
    status: PlanStatus, command: PlanCommand
) -> None:
    if command in TABLE[status]:
        assert MACHINE.can(status, command)
        assert MACHINE.step(status, command) is TABLE[status][command]
        return
    assert not MACHINE.can(status, command)
    with pytest.raises(IllegalTransition) as caught:
        MACHINE.step(status, command)
    assert (caught.value.status, caught.value.command) == (status, command)


@pytest.mark.parametrize(("status", "command"), list(product(PlanStatus, sorted(ASKED))))
def test_what_a_person_asks_for_is_carried_out_or_changes_nothing(
    status: PlanStatus, command: PlanCommand
) -> None:
    record = plan(status)
    if record.can(command):
        change = _ask(status, command, cancel_requested=False)
        assert change.after.status is TABLE[status][command]
        assert change.after.version == record.version + 1
        assert change.next is PlanNext.LOOK
        assert change.lease is None
        assert change.audit is not None
        assert [event.version for event in change.events] == [record.version + 1]
    else:
        with pytest.raises(IllegalTransition):
            _ask(status, command, cancel_requested=False)


def _ask(status: PlanStatus, command: PlanCommand, *, cancel_requested: bool) -> PlanChange:
    record = plan(status, cancel_requested=cancel_requested)
    match command:
        case C.PAUSE:
            return commands.pause(record, ASK)
        case C.RESUME:
            return commands.resume(record, ASK)
        case C.CANCEL:
            return commands.cancel(record, ASK)
        case C.RETRY:
            return commands.retry(record, {}, ASK)
        case _:
            return commands.rollback(record, {}, ASK)


@pytest.mark.parametrize(("status", "command"), list(product(PlanStatus, sorted(ASKED))))
def test_once_a_cancel_is_asked_for_nothing_else_can_be(
    status: PlanStatus, command: PlanCommand
) -> None:
    record = plan(status, cancel_requested=True)
    assert not record.can(command)
    assert record.legal == ()
    with pytest.raises(IllegalTransition):
        _ask(status, command, cancel_requested=True)


@pytest.mark.parametrize("status", PlanStatus)
def test_legal_are_the_asked_for_commands_of_the_row_in_their_order(status: PlanStatus) -> None:
    assert set(plan(status).legal) == ASKED & TABLE[status].keys()
    assert list(plan(status).legal) == [c for c in PlanCommand if c in plan(status).legal]


def test_every_status_can_be_reached_and_left_or_is_the_end_of_a_plan() -> None:
    reached = {to for row in TABLE.values() for to in row.values()} | {S.CREATED}
    assert reached == set(PlanStatus)
    for status in PlanStatus:
        assert any(to is not status for to in TABLE[status].values()), status


def test_a_settled_plan_is_moved_by_a_person_only() -> None:
    for status in SETTLED - {S.ROLLED_BACK}:
        assert not DRIVER & TABLE[status].keys()
    assert not plan(S.ROLLED_BACK, counts=({M.ROLLED_BACK: 1}, {M.ROLLED_BACK: 3})).can(C.CANCEL)


def test_after_one_wave_was_rolled_back_the_plan_is_not_settled_while_others_wait() -> None:
    record = plan(S.ROLLED_BACK, waves=(2, 4), counts=({M.ROLLED_BACK: 2}, {}))
    assert not record.settled
    assert record.can(C.CANCEL)
    assert plan(S.ROLLED_BACK, waves=(2, 4), counts=({M.ROLLED_BACK: 2}, {M.CANCELLED: 2})).settled


def test_only_the_creator_s_word_makes_a_plan_ready() -> None:
    rows = ((status, row) for status, row in TABLE.items() if status is not S.READY)
    ways = [(status, c) for status, row in rows for c, to in row.items() if to is S.READY]
    assert ways == [(S.CREATED, C.SEAL)]


def test_a_driver_ends_every_cancel_that_may_be_asked_for() -> None:
    for status, row in TABLE.items():
        if C.CANCEL in row:
            assert row[C.CANCEL] is status, "a request"
            assert row[C.FINISH_CANCEL] is S.CANCELLED


@pytest.mark.parametrize("status", PlanStatus)
def test_a_plan_rests_when_only_a_person_can_move_it(status: PlanStatus) -> None:
    quiet = status in SETTLED | SUSPENDED | {S.PAUSED}
    assert plan(status).is_stopped is quiet
    assert not plan(status, cancel_requested=True).is_stopped
    unwinds = status is S.HALTED
    assert plan(status, on_halt=OnHalt.ROLLBACK).is_stopped is (quiet and not unwinds)


def test_a_resume_after_a_halt_forgives_what_has_failed_in_the_wave() -> None:
    there = members(M.FAILED, M.FAILED, M.FAILED)
    record = with_members(plan(S.HALTED, wave=1, reason="why"), there)
    after = commands.resume(record, ASK).after
    assert (after.status, after.forgiven, after.reason) == (S.RUNNING, 2, None)


def test_a_resume_after_a_pause_forgives_nothing() -> None:
    record = with_members(plan(S.PAUSED, wave=1, forgiven=1), members(M.FAILED, M.FAILED, M.FAILED))
    assert commands.resume(record, ASK).after.forgiven == 1


def test_a_plan_that_was_paused_before_it_began_begins_when_it_is_resumed() -> None:
    change = commands.resume(plan(S.PAUSED, started_at=None), ASK)
    assert change.after.started_at == ASK.now
    told = [name_of(event) for event in change.events]
    assert told == ["PlanResumed", "PlanStarted", "WaveStarted"]


def test_a_retry_sets_the_failed_and_the_rolled_back_going_from_their_lowest_wave() -> None:
    there = members(M.COMPLETED, M.ROLLED_BACK, M.CANCELLED, M.FAILED)
    fields: dict[str, Any] = {
        "waves": (1, 2, 4),
        "wave": 2,
        "forgiven": 1,
        "soaks_since": NOW,
        "wave_ran": True,
    }
    record = with_members(plan(S.HALTED, **fields), there)
    change = commands.retry(record, there, ASK)
    assert {index: member.state for index, member in change.moves} == {1: M.AGAIN, 3: M.AGAIN}
    after = change.after
    assert (after.wave, after.forgiven, after.soaks_since, after.wave_ran) == (1, 0, None, False)
    assert after.counts == ({M.COMPLETED: 1}, {M.AGAIN: 1}, {M.CANCELLED: 1, M.AGAIN: 1})
    assert after.progress == 0.5


def test_a_retry_never_goes_on_to_a_higher_wave() -> None:
    there = {3: Member(M.FAILED)}
    record = with_members(plan(S.HALTED, wave=0), there)
    assert commands.retry(record, there, ASK).after.wave == 0


def test_a_rollback_is_of_all_or_of_one_wave() -> None:
    whole = commands.rollback(plan(S.PAUSED), {}, ASK).after
    assert (whole.undo_from, whole.undo_upto, whole.undo_forced) == (0, 4, False)
    second = commands.rollback(plan(S.PAUSED), {}, ASK, wave=2, force=True).after
    assert (second.undo_from, second.undo_upto, second.undo_forced) == (1, 4, True)


@pytest.mark.parametrize("wave", [-1, 0, 3])
def test_a_rollback_of_a_wave_that_is_not_there_is_refused(wave: int) -> None:
    with pytest.raises(InvalidPlan, match="waves 1 to 2"):
        commands.rollback(plan(S.PAUSED), {}, ASK, wave=wave)


def test_a_rollback_that_failed_is_tried_again_where_it_is_asked_for() -> None:
    there = members(M.ROLLBACK_FAILED, M.ROLLBACK_FAILED)
    record = with_members(plan(S.ROLLBACK_FAILED), there)
    change = commands.rollback(record, there, ASK, wave=2)
    assert change.moves == ((1, Member(M.FAILED)),)
    assert change.after.counts == ({M.ROLLBACK_FAILED: 1}, {M.FAILED: 1})


def test_leaving_a_settled_status_unsettles_the_record() -> None:
    record = plan(S.COMPLETED)
    assert record.settled_at is not None
    assert commands.rollback(record, {}, ASK).after.settled_at is None


def test_a_refusal_is_written_down_as_one() -> None:
    entry = commands.refusal(plan(S.COMPLETED), C.PAUSE, ASK, "illegal")
    assert (entry.task_id, entry.command, entry.refused) == ("plan:upgrade-7", "pause", "illegal")
    assert entry.before == entry.after


def test_a_share_is_broken_when_more_than_it_has_failed() -> None:
    assert not FailureRate(0.5).broken_by(2, 4)
    assert FailureRate(0.5).broken_by(3, 4)
    assert not FailureRate(0.0).broken_by(0, 4)
    assert FailureRate(0.0).broken_by(1, 400)
    assert not FailureRate(1.0).broken_by(4, 4)


def test_a_count_is_broken_when_more_than_it_have_failed() -> None:
    assert not FailureCount(2).broken_by(2, 2)
    assert FailureCount(2).broken_by(3, 1000)


def test_a_task_belongs_to_the_wave_that_lets_it_go() -> None:
    record = plan(waves=(1, 3, 4))
    assert [record.wave_of(index) for index in range(4)] == [0, 1, 1, 2]
    assert [list(record.span(wave)) for wave in range(3)] == [[0], [1, 2], [3]]
