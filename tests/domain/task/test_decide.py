"""What the holder of a lease decides: one transition for each thing that can happen."""

from collections.abc import Callable

import msgspec
import pytest

from holdfast.domain.errors import HoldfastError, IllegalTransition
from holdfast.domain.task import decide
from holdfast.domain.task import events as ev
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import TABLE, Command, Status
from holdfast.domain.task.task import FailureKind, Task
from holdfast.domain.task.transition import Transition
from tests.support.task_records import LEASE, NOW, done, failed, failure, held, task

S, C = Status, Command
POLICY = Retry(max=3)
LATER = NOW + 10


def stage_done(of: Task) -> Transition:
    return decide.stage_done(of, done(), checkpoint=None, now=LATER)


def complete(of: Task) -> Transition:
    last = msgspec.structs.replace(of, last_completed=len(of.stages) - 2)
    return decide.complete(last, done(), now=LATER)


def retry_later(of: Task) -> Transition:
    return decide.stage_failed(of, failed(), POLICY, checkpoint=None, now=LATER)


def fail(of: Task) -> Transition:
    return decide.stage_failed(of, failed(None), POLICY, checkpoint=None, now=LATER)


def pause(of: Task) -> Transition:
    return decide.boundary(msgspec.structs.replace(of, pause_requested=True), now=LATER)


def cancel(of: Task) -> Transition:
    return decide.boundary(msgspec.structs.replace(of, cancel_requested=True), now=LATER)


def start_over(of: Task) -> Transition:
    return decide.start_over(of, "too old", now=LATER)


def undone(of: Task) -> Transition:
    return decide.stage_undone(of, had_undo=True, data={}, duration_seconds=1.0, now=LATER)


def undo_fails(of: Task) -> Transition:
    return decide.undo_failed(of, failed(None), POLICY, now=LATER)


def rolled_back(of: Task) -> Transition:
    return decide.rolled_back(of, now=LATER)


def give_back(of: Task) -> Transition:
    return decide.give_back(of, "stopping", now=LATER, interrupted=True)


DECISIONS: list[tuple[Command, Callable[[Task], Transition]]] = [
    (C.CHECKPOINT, stage_done),
    (C.CHECKPOINT, start_over),
    (C.COMPLETE, complete),
    (C.RETRY_LATER, retry_later),
    (C.FAIL, fail),
    (C.PAUSE, pause),
    (C.CANCEL, cancel),
    (C.YIELD, give_back),
    (C.UNDO, undone),
    (C.FAIL_ROLLBACK, undo_fails),
    (C.FINISH_ROLLBACK, rolled_back),
]


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(("command", "decision"), DECISIONS)
def test_a_decision_is_legal_exactly_where_the_table_says(
    status: Status, command: Command, decision: Callable[[Task], Transition]
) -> None:
    before = held(status, next_undo=1)
    if command not in TABLE[status]:
        with pytest.raises(IllegalTransition):
            decision(before)
        assert before == held(status, next_undo=1)
        return
    after = decision(before).after
    assert after.status is TABLE[status][command]
    assert before == held(status, next_undo=1)


@pytest.mark.parametrize(("command", "decision"), DECISIONS)
def test_every_decision_names_the_version_and_the_lease_it_expects(
    command: Command, decision: Callable[[Task], Transition]
) -> None:
    before = legal_record(command)
    transition = decision(before)
    assert transition.after.version == before.version + 1
    assert transition.expects == before.version
    assert transition.lease == LEASE.id
    assert transition.after.updated_at == LATER
    assert transition.events
    assert {event.version for event in transition.events} == {before.version + 1}
    assert {event.task_id for event in transition.events} == {before.id}
    assert transition.audit is None


@pytest.mark.parametrize(("command", "decision"), DECISIONS)
def test_a_decision_made_again_is_the_same_request(
    command: Command, decision: Callable[[Task], Transition]
) -> None:
    before = legal_record(command)
    assert decision(before).request == decision(before).request
    newer = msgspec.structs.replace(before, version=before.version + 1)
    assert decision(newer).request != decision(before).request


@pytest.mark.parametrize(("command", "decision"), DECISIONS)
def test_nobody_decides_for_a_task_without_holding_it(
    command: Command, decision: Callable[[Task], Transition]
) -> None:
    free = msgspec.structs.replace(legal_record(command), lease=None)
    with pytest.raises(HoldfastError, match="only the holder of its lease"):
        decision(free)


@pytest.mark.parametrize(("command", "decision"), DECISIONS)
def test_a_decision_touches_nothing_that_is_the_stores(
    command: Command, decision: Callable[[Task], Transition]
) -> None:
    before = legal_record(command)
    after = decision(before).after
    for field in ("id", "type", "tenant", "key", "created_at", "order", "fence", "lease", "due"):
        assert getattr(after, field) == getattr(before, field)


def test_a_submit_makes_one_event_of_the_first_version() -> None:
    new = task(version=1)
    submission = decide.submit(new, b"{}", "digest", held=True)
    assert submission.held
    assert submission.events == (
        ev.TaskCreated(task_id=new.id, version=1, at=NOW, type=new.type, tenant=new.tenant),
    )


def test_a_stage_commits_its_result_and_the_checkpoint_behind_it() -> None:
    transition = decide.stage_done(
        held(failures=2, crashes=1, interrupted=True, failure=failure()),
        done({"id": 7}, cursor=1),
        checkpoint=None,
        now=LATER,
    )
    after = transition.after
    assert (after.status, after.last_completed, transition.next) == (S.RUNNING, 0, Next.STAY)
    assert (after.failures, after.crashes, after.interrupted, after.failure) == (0, 0, False, None)
    assert after.status_since == NOW
    assert [type(event) for event in transition.events] == [ev.StageStarted, ev.StageCompleted]
    assert transition.events[0].at == NOW + 5
    assert transition.stage is not None
    assert (transition.stage.index, transition.stage.name) == (0, "one")
    assert transition.stage.result == b'{"id":7}'
    assert transition.result is None
    assert transition.checkpoint is not None
    assert transition.checkpoint.custom_data == {"cursor": 1}


def test_a_stage_tells_its_attempt() -> None:
    transition = stage_done(held(failures=2))
    assert isinstance(transition.events[0], ev.StageStarted)
    assert transition.events[0].attempt == 3


def test_the_last_stage_completes_the_task_in_one_step() -> None:
    before = held(last_completed=1, pause_requested=True, cancel_requested=True)
    transition = decide.complete(before, done([1], cursor=2), now=LATER)
    after = transition.after
    assert (after.status, after.settled_at, after.last_completed) == (S.COMPLETED, LATER, 2)
    assert (after.pause_requested, after.cancel_requested) == (False, False)
    assert transition.next is Next.SETTLED
    assert transition.drop_checkpoint
    assert transition.checkpoint is None
    assert (transition.result, transition.data) == (b"[1]", b'{"cursor":2}')
    assert [type(event) for event in transition.events] == [
        ev.StageStarted,
        ev.StageCompleted,
        ev.TaskCompleted,
    ]


def test_a_task_that_is_kept_for_no_time_goes_at_its_end() -> None:
    before = held(last_completed=1, keep_seconds=0)
    assert decide.complete(before, done(), now=LATER).next is Next.GONE


def test_a_failure_schedules_a_retry_after_the_stage_event() -> None:
    transition = retry_later(held())
    after = transition.after
    assert (after.status, after.failures, transition.next) == (S.RETRYING, 1, Next.LATER)
    assert transition.delay_seconds == 60
    assert [type(event) for event in transition.events] == [
        ev.StageStarted,
        ev.StageFailed,
        ev.TaskRetryScheduled,
    ]
    assert after.failure == failure()
    assert after.last_completed == -1


def test_the_third_failure_in_a_row_suspends() -> None:
    statuses = [retry_later(held(failures=n)).after.status for n in (0, 1, 2)]
    assert statuses == [S.RETRYING, S.RETRYING, S.FAILED]
    transition = retry_later(held(failures=2))
    assert (transition.next, transition.delay_seconds) == (Next.PARKED, 0)
    assert [type(event) for event in transition.events][1:] == [ev.StageFailed, ev.TaskFailedEvent]


def test_a_failure_that_cannot_be_retried_suspends_at_once() -> None:
    assert (fail(held()).after.status, fail(held()).after.failures) == (S.FAILED, 1)


def test_a_crash_count_ends_with_a_failure() -> None:
    assert retry_later(held(crashes=2, interrupted=True)).after.crashes == 0


def test_a_cancel_that_waits_is_applied_when_the_stage_fails() -> None:
    transition = retry_later(held(cancel_requested=True, reason="enough"))
    assert (transition.after.status, transition.next) == (S.CANCELLED, Next.SETTLED)
    assert transition.delay_seconds == 0
    assert [type(event) for event in transition.events][1:] == [
        ev.StageFailed,
        ev.TaskCancelledEvent,
    ]
    assert not transition.after.cancel_requested


def test_a_pause_that_waits_is_applied_when_the_stage_fails() -> None:
    transition = retry_later(held(pause_requested=True))
    assert (transition.after.status, transition.next) == (S.PAUSED, Next.PARKED)
    assert transition.after.failures == 1


def test_a_spent_task_is_suspended_though_a_pause_waits() -> None:
    assert fail(held(pause_requested=True)).after.status is S.FAILED


@pytest.mark.parametrize(("flag", "status"), [("pause", S.PAUSED), ("cancel", S.CANCELLED)])
def test_a_request_is_applied_at_the_boundary(flag: str, status: Status) -> None:
    asked = {f"{flag}_requested": True}
    before = msgspec.structs.replace(held(last_completed=0, reason="why"), **asked)
    transition = decide.boundary(before, now=LATER)
    assert transition.after.status is status
    assert not transition.after.pause_requested
    assert not transition.after.cancel_requested
    assert transition.after.reason == "why"
    assert not transition.drop_checkpoint


def test_a_cancel_goes_before_a_pause() -> None:
    before = held(pause_requested=True, cancel_requested=True)
    assert decide.boundary(before, now=LATER).after.status is S.CANCELLED


def test_starting_over_clears_everything_and_has_new_effect_keys() -> None:
    transition = start_over(held(last_completed=1, failures=1, epoch=2))
    assert (transition.after.last_completed, transition.after.epoch) == (-1, 3)
    assert not transition.after.begun
    assert transition.drop_checkpoint
    assert transition.drop_stages


def test_an_undo_steps_back_by_one() -> None:
    transition = undone(held(S.ROLLING_BACK, next_undo=1, failures=2))
    assert (transition.after.next_undo, transition.after.failures) == (0, 0)
    (event,) = transition.events
    assert isinstance(event, ev.StageUndone)
    assert (event.stage, event.had_undo) == ("two", True)


def test_an_undo_that_fails_is_retried_then_stops_the_rollback() -> None:
    before = held(S.ROLLING_BACK, next_undo=1)
    first = decide.undo_failed(before, failed(30.0), POLICY, now=LATER)
    assert (first.after.status, first.next, first.delay_seconds) == (S.ROLLING_BACK, Next.LATER, 30)
    spent = msgspec.structs.replace(before, failures=2)
    last = decide.undo_failed(spent, failed(30.0), POLICY, now=LATER)
    assert (last.after.status, last.after.next_undo) == (S.ROLLBACK_FAILED, 1)
    assert [type(event) for event in last.events] == [ev.StageUndoFailed, ev.TaskRollbackFailed]
    assert [type(event) for event in first.events] == [ev.StageUndoFailed, ev.TaskRetryScheduled]


def test_the_end_of_a_rollback_settles_the_task_with_nothing_completed() -> None:
    transition = rolled_back(held(S.ROLLING_BACK, last_completed=2))
    after = transition.after
    assert (after.status, after.settled_at, after.last_completed) == (S.ROLLED_BACK, LATER, -1)
    assert transition.drop_checkpoint


@pytest.mark.parametrize(
    ("status", "after"), [(S.RUNNING, S.FAILED), (S.ROLLING_BACK, S.ROLLBACK_FAILED)]
)
def test_a_task_that_cannot_go_on_is_suspended_without_a_failed_stage(
    status: Status, after: Status
) -> None:
    poison = failure(kind=FailureKind.POISON)
    transition = decide.suspend(held(status, crashes=3), poison, now=LATER)
    assert (transition.after.status, transition.next) == (after, Next.PARKED)
    assert (transition.after.failures, transition.after.failure) == (0, poison)
    assert len(transition.events) == 1


def test_a_task_that_cannot_go_on_is_cancelled_if_that_was_asked() -> None:
    before = held(cancel_requested=True, reason="enough")
    transition = decide.suspend(before, failure(kind=FailureKind.POISON), now=LATER)
    assert (transition.after.status, transition.next) == (S.CANCELLED, Next.SETTLED)
    assert not transition.after.cancel_requested


def test_giving_back_counts_nothing_and_remembers_an_interruption() -> None:
    before = held(failures=1, crashes=1)
    after = give_back(before).after
    assert (after.status, after.failures, after.crashes) == (S.PENDING, 1, 1)
    assert after.interrupted
    kept = decide.give_back(held(interrupted=True), "stopping", now=LATER, interrupted=False)
    assert kept.after.interrupted
    later = decide.give_back(before, "unknown type", now=LATER, interrupted=False, delay_seconds=5)
    assert (later.next, later.delay_seconds) == (Next.LATER, 5)


def test_the_last_stage_has_no_checkpoint() -> None:
    with pytest.raises(HoldfastError, match="last stage"):
        stage_done(held(last_completed=1))


def test_the_place_is_left_to_the_store() -> None:
    assert complete(held()).after.place is Place.LEASED


def test_a_failure_without_a_completed_stage_makes_no_checkpoint() -> None:
    checkpoint: Checkpoint | None = retry_later(held()).checkpoint
    assert checkpoint is None


def legal_record(command: Command) -> Task:
    status = S.ROLLING_BACK if command not in TABLE[S.RUNNING] else S.RUNNING
    return held(status, next_undo=1)


def test_a_reason_goes_with_the_request_it_belonged_to() -> None:
    late = msgspec.structs.replace(held(), cancel_requested=True, reason="too late")
    assert complete(late).after.reason is None


def test_a_failure_shows_that_a_worker_knew_the_type() -> None:
    before = msgspec.structs.replace(held(), unknown_since=1.0)
    assert retry_later(before).after.unknown_since is None


def test_a_cancel_that_waits_beats_a_suspension() -> None:
    before = msgspec.structs.replace(held(), cancel_requested=True)
    assert decide.suspend(before, failure(), now=LATER).after.status is S.CANCELLED
