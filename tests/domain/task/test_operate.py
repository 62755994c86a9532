"""What an operator may ask: at once where nothing runs, as a request where something does."""

from collections.abc import Callable

import msgspec
import pytest

from holdfast.domain.audit import Audit
from holdfast.domain.errors import IllegalTransition, NotSuspended
from holdfast.domain.task import events as ev
from holdfast.domain.task import operate
from holdfast.domain.task.placement import Next
from holdfast.domain.task.state import SUSPENDED, TABLE, Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.testing.contract.drivers.store_driver import OPERATE
from tests.support.task_records import ASK, BY, NOW, failure, held, task

S, C = Status, Command

NEXT = {
    C.RELEASE: Next.READY,
    C.PAUSE: Next.PARKED,
    C.RESUME: Next.READY,
    C.CANCEL: Next.SETTLED,
    C.RETRY: Next.READY,
    C.ROLLBACK: Next.READY,
    C.DISCARD: Next.SETTLED,
}
EVENTS = {
    C.RELEASE: ev.TaskReleased,
    C.PAUSE: ev.TaskPaused,
    C.RESUME: ev.TaskResumed,
    C.CANCEL: ev.TaskCancelledEvent,
    C.RETRY: ev.TaskRetried,
    C.ROLLBACK: ev.TaskRollingBack,
    C.DISCARD: ev.TaskDiscarded,
}


def at_rest(status: Status) -> Task:
    return held(status) if status is S.RUNNING else task(status)


@pytest.mark.parametrize("status", [s for s in Status if s is not S.RUNNING])
@pytest.mark.parametrize("command", list(OPERATE))
def test_a_command_acts_at_once_or_is_refused(status: Status, command: Command) -> None:
    before = task(status)
    if command not in TABLE[status]:
        with pytest.raises(IllegalTransition) as refused:
            OPERATE[command](before, ASK)
        assert (refused.value.status, refused.value.command) == (status, command)
        assert before == task(status)
        return
    transition = OPERATE[command](before, ASK)
    assert transition.after.status is TABLE[status][command]
    assert transition.next is NEXT[command]
    assert [type(event) for event in transition.events] == [EVENTS[command]]
    assert transition.after.status_since == ASK.now
    assert before == task(status)


@pytest.mark.parametrize(
    ("command", "event", "flags"),
    [
        (C.PAUSE, ev.PauseRequested, (True, False)),
        (C.CANCEL, ev.CancelRequested, (False, True)),
    ],
)
def test_a_command_on_a_running_task_is_left_as_a_request(
    command: Command, event: type[ev.Event], flags: tuple[bool, bool]
) -> None:
    transition = OPERATE[command](held(), ASK)
    after = transition.after
    assert (after.status, transition.next) == (S.RUNNING, Next.STAY)
    assert (after.pause_requested, after.cancel_requested) == flags
    assert after.reason == BY.reason
    assert after.status_since == NOW
    assert [type(fact) for fact in transition.events] == [event]


@pytest.mark.parametrize("command", [C.RELEASE, C.RETRY, C.ROLLBACK, C.DISCARD, C.RESUME])
def test_a_running_task_takes_no_other_command(command: Command) -> None:
    with pytest.raises(IllegalTransition):
        OPERATE[command](held(), ASK)


def test_a_pause_can_be_withdrawn_before_it_is_applied() -> None:
    transition = operate.resume(held(pause_requested=True, reason="why"), ASK)
    assert transition.next is Next.STAY
    assert (transition.after.pause_requested, transition.after.reason) == (False, None)
    assert [type(event) for event in transition.events] == [ev.PauseWithdrawn]


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("command", list(OPERATE))
def test_a_command_carries_its_request_its_audit_and_no_lease(
    status: Status, command: Command
) -> None:
    before = msgspec.structs.replace(at_rest(status), pause_requested=status is S.RUNNING)
    if command not in TABLE[status]:
        return
    transition = OPERATE[command](before, ASK)
    assert transition.lease is None
    assert transition.request == ASK.request
    assert transition.expects == before.version
    assert transition.after.updated_at == ASK.now
    assert {event.version for event in transition.events} == {before.version + 1}
    assert transition.audit == Audit(
        task_id=before.id,
        command=command,
        by=BY,
        at=ASK.now,
        before=status,
        after=transition.after.status,
    )


def test_a_refusal_is_written_down_with_its_code() -> None:
    assert operate.refusal(task(S.PENDING), C.DISCARD, ASK, "illegal-transition") == Audit(
        task_id="task-1",
        command=C.DISCARD,
        by=BY,
        at=ASK.now,
        before=S.PENDING,
        after=S.PENDING,
        refused="illegal-transition",
    )


@pytest.mark.parametrize("command", [C.PAUSE, C.CANCEL])
def test_what_acts_at_once_leaves_no_request_behind(command: Command) -> None:
    lost = task(S.PENDING, pause_requested=True, cancel_requested=command is C.CANCEL)
    after = OPERATE[command](lost, ASK).after
    assert not after.pause_requested
    assert not after.cancel_requested


def test_a_retry_begins_a_new_run_and_keeps_the_progress() -> None:
    before = task(S.FAILED, last_completed=0, failures=3, failure=failure(), reason="x")
    transition = operate.retry(before, ASK)
    after = transition.after
    assert (after.run, after.epoch, after.last_completed) == (2, 1, 0)
    assert (after.failures, after.reason) == (0, None)
    assert after.failure == failure()
    assert after.begun, "the failed stage may have had effects"
    assert not transition.drop_checkpoint
    assert not transition.drop_stages


def test_a_retry_from_scratch_clears_everything() -> None:
    before = task(S.FAILED, last_completed=1, failures=3, epoch=2)
    transition = operate.retry(before, ASK, from_checkpoint=False)
    after = transition.after
    assert (after.run, after.epoch, after.last_completed) == (2, 3, -1)
    assert not after.begun
    assert transition.drop_checkpoint
    assert transition.drop_stages
    (event,) = transition.events
    assert isinstance(event, ev.TaskRetried)
    assert not event.from_checkpoint


def test_a_retry_after_a_rollback_is_from_scratch() -> None:
    transition = operate.retry(task(S.ROLLED_BACK), ASK, from_checkpoint=True)
    assert transition.after.epoch == 2
    assert transition.drop_stages


@pytest.mark.parametrize(
    ("status", "fields", "first"),
    [
        (S.FAILED, {"last_completed": 0, "failures": 3}, "two"),
        (S.FAILED, {"last_completed": 0, "crashes": 3, "interrupted": True}, "two"),
        (S.FAILED, {"last_completed": 0}, "one"),
        (S.FAILED, {"last_completed": -1, "failures": 1}, "one"),
        (S.FAILED, {"last_completed": -1}, None),
        (S.PAUSED, {"last_completed": 1}, "two"),
        (S.PAUSED, {"last_completed": 0, "failures": 1}, "two"),
        (S.PAUSED, {"last_completed": -1}, None),
        (S.CANCELLED, {"last_completed": 1, "interrupted": True}, "three"),
        (S.CANCELLED, {"last_completed": 1}, "two"),
        (S.CANCELLED, {"last_completed": -1}, None),
        (S.COMPLETED, {"last_completed": 2}, "three"),
        (S.ROLLBACK_FAILED, {"last_completed": 2, "next_undo": 1, "failures": 3}, "two"),
        (S.ROLLBACK_FAILED, {"last_completed": 1, "next_undo": 0, "failures": 3}, "one"),
        (S.CANCELLED, {"last_completed": 1, "next_undo": 0, "failures": 3}, "one"),
    ],
)
def test_a_rollback_starts_at_the_stage_that_was_begun_last(
    status: Status, fields: dict[str, int], first: str | None
) -> None:
    before = msgspec.structs.replace(task(status), **fields)
    transition = operate.rollback(before, ASK)
    after = transition.after
    assert (after.stages[after.next_undo] if after.next_undo >= 0 else None) == first
    assert (after.run, after.epoch, after.settled_at) == (2, 1, None)
    assert not after.begun
    (event,) = transition.events
    assert isinstance(event, ev.TaskRollingBack)
    assert event.from_stage == first
    assert not transition.drop_checkpoint


@pytest.mark.parametrize("command", [operate.retry, operate.rollback])
def test_only_a_workflow_of_a_tenant_is_guarded(command: Callable[..., Transition]) -> None:
    assert command(task(S.FAILED), ASK).not_if_moved_on
    assert not command(task(S.FAILED), ASK, force=True).not_if_moved_on
    assert not command(task(S.FAILED, workflow=False), ASK).not_if_moved_on
    assert not command(task(S.FAILED, tenant=None), ASK).not_if_moved_on


def test_a_resume_is_guarded_and_an_end_is_not() -> None:
    assert operate.resume(task(S.PAUSED), ASK).not_if_moved_on
    assert not operate.cancel(task(S.PAUSED), ASK).not_if_moved_on
    assert not operate.discard(task(S.FAILED), ASK).not_if_moved_on


@pytest.mark.parametrize("command", [C.CANCEL, C.DISCARD])
def test_an_end_is_dated_and_has_its_reason(command: Command) -> None:
    before = task(S.PAUSED if command is C.CANCEL else S.FAILED, last_completed=0)
    after = OPERATE[command](before, ASK).after
    assert (after.status, after.settled_at, after.reason) == (S.CANCELLED, ASK.now, BY.reason)
    assert after.last_completed == 0


@pytest.mark.parametrize(
    ("status", "after"), [(S.FAILED, S.PENDING), (S.ROLLBACK_FAILED, S.ROLLING_BACK)]
)
def test_a_suspended_task_is_set_going_as_it_was_going(status: Status, after: Status) -> None:
    transition = operate.resume_suspended(task(status, last_completed=0, next_undo=0), ASK)
    assert (transition.after.status, transition.after.run) == (after, 2)


@pytest.mark.parametrize("status", [s for s in Status if s not in SUSPENDED])
def test_a_task_that_is_not_suspended_is_not_set_going(status: Status) -> None:
    with pytest.raises(NotSuspended, match=status):
        operate.resume_suspended(task(status), ASK)


def test_a_rollback_of_a_settled_task_unsettles_it() -> None:
    assert operate.rollback(task(S.COMPLETED), ASK).after.settled_at is None


def test_a_pause_is_refused_while_a_cancel_waits() -> None:
    before = msgspec.structs.replace(held(S.RUNNING), cancel_requested=True, reason="gone")
    assert not before.can(C.PAUSE)
    assert C.PAUSE not in before.legal
    with pytest.raises(IllegalTransition):
        operate.pause(before, ASK)


def test_a_withdrawn_pause_leaves_the_reason_of_a_cancel() -> None:
    before = msgspec.structs.replace(
        held(S.RUNNING), pause_requested=True, cancel_requested=True, reason="gone"
    )
    assert operate.resume(before, ASK).after.reason == "gone"


def test_what_was_undone_whole_is_not_undone_again_after_a_discard() -> None:
    before = msgspec.structs.replace(task(S.ROLLBACK_FAILED), next_undo=-1, last_completed=1)
    discarded = operate.discard(before, ASK)
    assert discarded.drop_checkpoint
    assert operate.rollback(discarded.after, ASK).after.next_undo == -1


def test_a_cancel_that_outlived_its_worker_is_not_dropped_by_a_pause() -> None:
    before = msgspec.structs.replace(task(S.PENDING), cancel_requested=True)
    with pytest.raises(IllegalTransition):
        operate.pause(before, ASK)
    assert operate.cancel(before, ASK).after.status is S.CANCELLED
