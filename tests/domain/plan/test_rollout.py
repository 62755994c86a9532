"""How a plan goes on: wave by wave, to its end, to a halt, or back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.plan import commands, rollout
from holdfast.domain.plan import events as ev
from holdfast.domain.plan.commands import Members
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import (
    ASKED,
    SLOTTED,
    FailureCount,
    FailureRate,
    Member,
    MemberState,
    OnHalt,
    Plan,
    PlanChange,
    PlanCommand,
    PlanNext,
    PlanStatus,
)
from tests.support.plan_records import members, plan, seen, with_members, written
from tests.support.task_records import ASK, NOW

P, M = PlanStatus, MemberState
W, A, U, PA, CO, F, CA, SK, RB, RF = (
    M.WAITING,
    M.ADMITTED,
    M.UNDOING,
    M.PAUSED,
    M.COMPLETED,
    M.FAILED,
    M.CANCELLED,
    M.SKIPPED,
    M.ROLLED_BACK,
    M.ROLLBACK_FAILED,
)


def advanced(
    of: Plan, there: Members | None = None, *, now: float = NOW + 60, **found: Any
) -> PlanChange:
    there = there or {}
    change = rollout.advance(with_members(of, there), there, seen(**found), now=now, request="r")
    assert change is not None
    return change


def stays(of: Plan, there: Members, *, now: float = NOW + 60, **found: Any) -> bool:
    of = with_members(of, there)
    return rollout.advance(of, there, seen(**found), now=now, request="r") is None


def names(change: PlanChange) -> list[str]:
    return [ev.name_of(event) for event in change.events]


def test_a_ready_plan_starts_with_its_first_wave() -> None:
    change = advanced(plan(P.READY, started_at=None))
    assert change.after.status is P.RUNNING
    assert change.after.started_at == NOW + 60
    assert names(change) == ["PlanStarted", "WaveStarted"]
    assert change.next is PlanNext.DRIVE
    assert change.lease == "lease-1"


def test_what_was_found_is_written_down_in_one_version() -> None:
    change = advanced(plan(), members(A), moves={0: Member(CO), 1: Member(A, 3)})
    assert dict(change.moves) == {0: Member(CO), 1: Member(A, 3)}
    assert change.after.version == 8
    assert change.after.counts == ({CO: 1}, {A: 1})
    told = next(event for event in change.events if isinstance(event, ev.PlanAdvanced))
    assert told.moved == ((0, "completed"), (1, "admitted"))


def test_where_nothing_has_changed_nothing_is_written() -> None:
    assert stays(plan(), members(A), moving=True)
    assert stays(plan(wave=1), members(CO, A, W, W), moving=True)


@pytest.mark.parametrize("state", [W, A, PA])
def test_the_next_wave_waits_for_the_last_of_this_one(state: MemberState) -> None:
    assert stays(plan(waves=(2, 4)), members(CO, state), moving=True)


@pytest.mark.parametrize("state", [CO, F, CA, SK, RB])
def test_the_next_wave_starts_when_this_one_has_ended(state: MemberState) -> None:
    change = advanced(plan(waves=(2, 4), forgiven=1, wave_ran=True), members(CO, state))
    assert (change.after.wave, change.after.forgiven, change.after.wave_ran) == (1, 0, False)
    assert names(change) == ["WaveEnded", "WaveStarted"]


def test_a_wave_soaks_before_the_next_one_starts_and_nobody_looks_meanwhile() -> None:
    of = plan(soak_seconds=600.0, wave_ran=True)
    change = advanced(of, members(CO))
    assert (change.after.wave, change.after.soaks_since) == (0, NOW + 60)
    assert names(change) == ["WaveEnded"]
    assert (change.next, change.delay_seconds) == (PlanNext.LOOK, 600.0)
    early = advanced(change.after, members(CO), now=NOW + 300)
    assert (early.after.wave, early.next, early.delay_seconds) == (0, PlanNext.LOOK, 360.0)
    late = advanced(change.after, members(CO), now=NOW + 660)
    assert (late.after.wave, late.after.soaks_since) == (1, None)
    assert names(late) == ["WaveStarted"]


def test_a_wall_clock_that_was_set_back_soaks_at_most_once_more() -> None:
    of = plan(soak_seconds=600.0, soaks_since=NOW, wave_ran=True)
    assert advanced(of, members(CO), now=NOW - 86_400).delay_seconds == 600.0


def test_a_wave_that_let_nothing_go_need_not_soak() -> None:
    assert advanced(plan(soak_seconds=600.0, wave_ran=False), members(CO)).after.wave == 1


def test_the_last_wave_does_not_soak() -> None:
    of = plan(soak_seconds=600.0, wave=1, wave_ran=True)
    assert advanced(of, members(CO, CO, CO, CO)).after.status is P.COMPLETED


def test_a_task_that_is_set_going_in_a_soak_ends_it() -> None:
    of = plan(soak_seconds=600.0, soaks_since=NOW, wave_ran=True)
    change = advanced(of, members(F), moves={0: Member(A)}, moving=True)
    assert (change.after.wave, change.after.soaks_since) == (0, None)
    assert change.next is PlanNext.DRIVE


@pytest.mark.parametrize(
    ("rule", "failed", "halts"),
    [
        (FailureRate(0.25), 1, False),
        (FailureRate(0.25), 2, True),
        (FailureRate(0.0), 1, True),
        (FailureCount(1), 1, False),
        (FailureCount(1), 2, True),
        (None, 3, False),
    ],
)
def test_a_plan_halts_when_too_many_of_a_wave_have_failed(
    rule: Any, failed: int, halts: bool
) -> None:
    there = members(*[F] * failed, A)
    of = with_members(plan(waves=(4, 8), halt_on=rule), there)
    change = rollout.advance(of, there, seen(moving=True), now=NOW, request="r")
    assert (change is not None and change.after.status is P.HALTED) is halts
    if change is not None:
        assert change.after.reason is not None
        assert f"{failed} of the 4 tasks of wave 1 have failed" in change.after.reason
        assert names(change) == ["PlanHalted"]
        assert change.next is PlanNext.DRIVE, "a task still runs"


def test_in_the_moment_of_a_halt_nobody_gets_a_slot() -> None:
    of = plan(waves=(4,), halt_on=FailureCount(0))
    found: dict[str, Any] = {"chosen": {1: Member(A, 3)}, "skipped": ("t-2",)}
    change = advanced(of, members(A), moves={0: Member(F)}, **found)
    assert dict(change.moves) == {0: Member(F)}
    assert names(change) == ["PlanAdvanced", "PlanHalted"]
    assert change.next is PlanNext.REST


def test_failures_of_other_waves_do_not_halt() -> None:
    assert stays(plan(wave=1, halt_on=FailureCount(0)), members(F, A, A, A), moving=True)


def test_what_was_forgiven_does_not_halt_again_and_one_more_does() -> None:
    of = plan(waves=(4,), halt_on=FailureCount(0), forgiven=2)
    assert stays(of, members(F, F, A, A), moving=True)
    assert advanced(of, members(F, F, A, A), moves={2: Member(F)}).after.status is P.HALTED


def test_a_halted_plan_is_driven_until_its_tasks_have_ended_and_then_rests() -> None:
    of = plan(P.HALTED)
    assert stays(of, members(A, A), moving=True)
    change = advanced(of, members(A, F), moves={0: Member(CO)})
    assert (change.after.status, change.next) == (P.HALTED, PlanNext.REST)


@pytest.mark.parametrize(
    ("on_halt", "scope"), [(OnHalt.ROLLBACK, (1, 4)), (OnHalt.ROLLBACK_PLAN, (0, 4))]
)
def test_a_halt_unwinds_the_wave_or_the_plan(on_halt: OnHalt, scope: tuple[int, int]) -> None:
    of = plan(wave=1, halt_on=FailureCount(0), on_halt=on_halt)
    halted = advanced(of, members(CO, F))
    assert (halted.after.status, halted.next) == (P.HALTED, PlanNext.DRIVE)
    change = advanced(halted.after, members(CO, F))
    assert change.after.status is P.ROLLING_BACK
    assert (change.after.undo_from, change.after.undo_upto) == scope
    assert names(change) == ["PlanRollingBack"]
    [event] = change.events
    assert isinstance(event, ev.PlanRollingBack)
    assert (event.by, event.tasks) == (None, scope[1] - scope[0])


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ((CO, CO, CO, CO), P.COMPLETED),
        ((CO, SK, CA, CO), P.COMPLETED),
        ((SK, SK, SK, SK), P.COMPLETED),
        ((CO, F, CO, CO), P.PARTIAL_FAILED),
        ((F, SK, CA, CA), P.FAILED),
        ((F, F, F, F), P.FAILED),
        ((CA, CA, CA, CA), P.CANCELLED),
    ],
)
def test_a_plan_ends_as_its_tasks_have_ended(
    states: tuple[MemberState, ...], status: PlanStatus
) -> None:
    change = advanced(plan(wave=1), members(*states))
    assert change.after.status is status
    assert change.after.progress == 1.0
    suspended = status in (P.PARTIAL_FAILED, P.FAILED)
    assert change.next is (PlanNext.REST if suspended else PlanNext.SETTLED)
    assert (change.after.settled_at is None) is suspended


@pytest.mark.parametrize("state", [A, PA])
def test_a_plan_does_not_end_over_a_task_of_a_former_wave_that_goes_on(state: MemberState) -> None:
    """A person has set it going again."""
    assert stays(plan(wave=1), members(state, CO, CO, CO), moving=True)


@pytest.mark.parametrize(
    "of",
    [
        plan(wave=1),
        plan(wave=1, cancel_requested=True),
        plan(P.ROLLING_BACK, undo_from=0, undo_upto=0),
    ],
)
def test_a_plan_does_not_end_before_those_it_skips_are_cancelled(of: Plan) -> None:
    there = members(CO, CO, CO, CO) | {3: Member(SK, 4)}
    assert stays(of, there)
    assert advanced(of, there, moves={3: Member(SK)}).next is PlanNext.SETTLED


def test_who_is_skipped_and_whose_task_cannot_be_undone_is_told() -> None:
    change = advanced(plan(), moves={0: Member(SK, 4)}, skipped=("t-1",), refused=("t-2",))
    assert names(change)[:2] == ["TenantsSkipped", "RollbackRefused"]


@pytest.mark.parametrize("state", [A, U, PA, F, RF, W])
@pytest.mark.parametrize("status", [P.READY, P.RUNNING, P.PAUSED, P.HALTED, P.PARTIAL_FAILED])
def test_a_cancel_waits_for_every_task(status: PlanStatus, state: MemberState) -> None:
    of = plan(status, cancel_requested=True)
    assert stays(of, members(CO, SK, CA, state))
    change = advanced(of, members(CO, SK, CA, state), moves={3: Member(CA)})
    assert (change.after.status, change.next) == (P.CANCELLED, PlanNext.SETTLED)
    assert not change.after.cancel_requested
    assert "PlanCancelled" in names(change)


@pytest.mark.parametrize("status", [P.PAUSED, P.HALTED, P.PARTIAL_FAILED, P.FAILED])
def test_a_plan_that_waits_for_a_person_is_looked_at_by_nobody(status: PlanStatus) -> None:
    assert advanced(plan(status), members(CO, F)).next is PlanNext.REST


def test_a_paused_plan_is_driven_while_its_tasks_still_move() -> None:
    assert stays(plan(P.PAUSED), members(A), moving=True)


@pytest.mark.parametrize("state", [W, A, U])
def test_a_rollback_goes_on_while_anything_moves(state: MemberState) -> None:
    of = plan(P.ROLLING_BACK, undo_from=0, undo_upto=4)
    assert stays(of, members(RB, RB, RB, state))


@pytest.mark.parametrize("state", [CO, F, PA, CA])
def test_a_rollback_is_not_over_before_all_in_scope_is_undone(state: MemberState) -> None:
    there = members(state, RB, RB, RB)
    assert stays(plan(P.ROLLING_BACK, undo_from=0, undo_upto=4), there)
    out_of_scope = plan(P.ROLLING_BACK, undo_from=1, undo_upto=4)
    assert advanced(out_of_scope, there).after.status is P.ROLLED_BACK


def test_a_rollback_ends_rolled_back_or_failed() -> None:
    of = plan(P.ROLLING_BACK, undo_from=0, undo_upto=4)
    done = advanced(of, members(RB, RB, SK, RB) | {0: Member(CA, 3)})
    assert (done.after.status, done.next) == (P.ROLLED_BACK, PlanNext.SETTLED)
    failed = advanced(of, members(RB, RB, SK, RF))
    assert (failed.after.status, failed.next) == (P.ROLLBACK_FAILED, PlanNext.REST)
    assert names(failed) == ["PlanRollbackFailed"]


# Any sequence of what may be found and asked for.

moves = st.dictionaries(
    st.integers(0, 5), st.builds(Member, st.sampled_from(M), st.integers(0, 2)), max_size=4
)
steps = st.one_of(
    st.tuples(st.just("look"), moves, moves, st.booleans()),
    st.tuples(st.just("ask"), st.sampled_from(sorted(ASKED))),
)


@given(
    st.sampled_from([(6,), (1, 6), (2, 3, 6)]),
    st.sampled_from([None, FailureCount(0), FailureRate(0.5)]),
    st.sampled_from(OnHalt),
    st.sampled_from([0.0, 10.0]),
    st.lists(steps, max_size=30),
)
def test_counts_agree_with_the_members_and_every_version_tells(
    waves: tuple[int, ...], rule: Any, on_halt: OnHalt, soak: float, sequence: list[Any]
) -> None:
    of = plan(P.READY, waves=waves, halt_on=rule, on_halt=on_halt, soak_seconds=soak)
    there: dict[int, Member] = {}
    for number, step in enumerate(sequence):
        change = taken(of, there, step, now=NOW + 5.0 * number)
        if change is None:
            continue
        check(of, change)
        there = written(there, change)
        of = change.after
        assert of.counts == with_members(of, there).counts
        assert 0.0 <= of.progress <= 1.0
        assert of.count(*M) + of.all_waiting == of.total
        assert 0 <= of.wave < len(of.waves)


def taken(of: Plan, there: Members, step: Any, *, now: float) -> PlanChange | None:
    if step[0] == "look":
        if of.settled:
            return None
        _, found, chosen, moving = step
        look = seen(found, chosen=chosen, moving=moving)
        return rollout.advance(of, there, look, now=now, request="r")
    command = PlanCommand(step[1])
    if not of.can(command):
        return None
    if command is PlanCommand.RETRY:
        return commands.retry(of, there, ASK)
    if command is PlanCommand.ROLLBACK:
        return commands.rollback(of, there, ASK)
    asks: dict[PlanCommand, Any] = {
        PlanCommand.PAUSE: commands.pause,
        PlanCommand.RESUME: commands.resume,
        PlanCommand.CANCEL: commands.cancel,
    }
    change: PlanChange = asks[command](of, ASK)
    return change


def check(before: Plan, change: PlanChange) -> None:
    after, events = change.after, list[PlanEvent](change.events)
    assert after.version == before.version + 1
    assert events, "every version has an event"
    assert {event.version for event in events} == {after.version}
    assert after.settled == (change.next is PlanNext.SETTLED) == (after.settled_at is not None)
    if after.settled:
        assert not after.count(*SLOTTED)
        assert not after.cancel_requested
    if change.next is PlanNext.REST:
        assert after.is_stopped
