"""The table of a trigger's states: every status against every command, and each person's wish."""

from collections.abc import Callable
from itertools import product

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import IllegalTransition
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.trigger import firing
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import (
    ASKED,
    LEASE,
    MACHINE,
    PENDING,
    TABLE,
    UNFINISHED,
    Overlap,
    Trigger,
    TriggerChange,
    TriggerCommand,
    TriggerStatus,
)
from tests.support.task_records import ASK, submission, trigger

S, C = TriggerStatus, TriggerCommand

WISHES: dict[TriggerCommand, Callable[[Trigger, OperatorRequest], TriggerChange]] = {
    C.FIRE: lambda one, ask: firing.fire_now(one, ask, submission("task-9")),
    C.PAUSE: firing.pause,
    C.RESUME: firing.resume,
    C.CANCEL: firing.cancel,
}


@pytest.mark.parametrize(("status", "command"), list(product(S, C)))
def test_a_command_steps_as_the_table_says_or_is_refused(
    status: TriggerStatus, command: TriggerCommand
) -> None:
    if command in TABLE[status]:
        assert MACHINE.can(status, command)
        assert MACHINE.step(status, command) is TABLE[status][command]
        return
    with pytest.raises(IllegalTransition) as refused:
        MACHINE.step(status, command)
    assert (refused.value.status, refused.value.command) == (status, command)
    named = ", ".join(MACHINE.legal(status))
    others = f"legal now: {named}" if named else "no command is legal now"
    assert str(refused.value).partition("; ")[2] == others


def test_every_status_has_its_row_and_every_wish_its_decision() -> None:
    assert set(TABLE) == set(S)
    assert set(WISHES) == ASKED


def test_what_has_ended_stays_so() -> None:
    assert {status for status, row in TABLE.items() if not row} == set(S) - UNFINISHED


def test_only_what_waits_for_its_time_is_handed_out() -> None:
    assert set(LEASE) == PENDING
    assert set(LEASE.values()) == {S.PROCESSING}


@pytest.mark.parametrize(("status", "command"), list(product(S, WISHES)))
def test_a_wish_is_granted_as_the_table_says_or_changes_nothing(
    status: TriggerStatus, command: TriggerCommand
) -> None:
    before = trigger(status)
    if command not in TABLE[status]:
        with pytest.raises(IllegalTransition):
            WISHES[command](before, ASK)
        return
    change = WISHES[command](before, ASK)
    after = change.after
    assert change.before is before
    assert after.status is TABLE[status][command]
    assert (after.version, after.updated_at) == (before.version + 1, ASK.now)
    assert after.request == ASK.request
    assert (after.owner, after.lease_until) == (None, None), "whoever held it holds nothing now"
    assert (after.trigger_at is not None) == (after.status in PENDING)
    audit = change.audit
    assert audit is not None
    assert (audit.task_id, audit.command, audit.by) == (f"trigger:{before.id}", command, ASK.by)
    assert (audit.before, audit.after, audit.refused) == (status, after.status, None)


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_what_fires_once_has_fired_when_a_person_fires_it(status: TriggerStatus) -> None:
    before = trigger(status, schedule=Once(at=ASK.now + 60))
    change = firing.fire_now(before, ASK, submission("task-9"))
    after = change.after
    assert after.status is S.COMPLETED
    assert (after.fire_time, after.trigger_at, after.ended_at) == (None, None, ASK.now)
    assert change.audit is not None
    assert change.audit.command == C.FIRE


def test_a_persons_fire_leaves_the_times_as_they_are() -> None:
    before = trigger(S.PENDING, fired=2, last_task="task-1")
    change = firing.fire_now(before, ASK, submission("task-9"))
    after = change.after
    assert (after.fire_time, after.trigger_at) == (before.fire_time, before.trigger_at)
    assert (after.fired, after.last_task, after.last_fire_time) == (3, "task-9", ASK.now)
    assert [one.task.id for one in change.submissions] == ["task-9"]


def test_two_fires_of_one_moment_have_two_keys() -> None:
    asks = [replace(ASK, now=1_700_000_000.25, request=f"request-0000000{n}") for n in range(2)]
    keys = [firing.key_now(trigger(S.PENDING), ask) for ask in asks]
    assert keys == [f"nightly@2023-11-14T22:13:20.250Z+0000000{n}" for n in range(2)]


def test_a_fire_that_is_decided_anew_has_the_same_key() -> None:
    first = trigger(S.PENDING)
    again = firing.fire_now(first, ASK, submission("task-9")).after
    assert firing.key_now(first, ASK) == firing.key_now(again, ASK)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE])
def test_a_persons_fire_does_not_hide_an_older_task_that_still_runs(overlap: Overlap) -> None:
    before = trigger(S.PENDING, overlap=overlap, last_task="task-1")
    for ended_task, last in ((None, "task-1"), ("task-0", "task-1"), ("task-1", "task-9")):
        after = firing.fire_now(before, ASK, submission("task-9"), ended_task=ended_task).after
        assert after.last_task == last
    first = replace(before, last_task=None)
    assert firing.fire_now(first, ASK, submission("task-9")).after.last_task == "task-9"


@pytest.mark.parametrize("command", sorted(ASKED))
def test_a_persons_request_is_known_again_after_later_changes(command: TriggerCommand) -> None:
    status = S.PAUSED if command is C.RESUME else S.PROCESSING
    after = WISHES[command](trigger(status), ASK).after
    assert after.asked == ASK.request
    if after.status is S.PENDING:
        held = replace(after, status=S.PROCESSING, owner="w-2")
        assert firing.put_off(held, 1.0, "", now=ASK.now).after.asked == ASK.request


def test_a_resumed_trigger_answers_for_the_time_at_which_it_stopped() -> None:
    before = trigger(S.SUSPENDED, retry_count=5, unknown_since=1.0, reason="broken")
    after = firing.resume(before, ASK).after
    assert after.trigger_at == before.fire_time
    assert (after.retry_count, after.unknown_since, after.reason) == (0, None, None)


def test_a_cancelled_trigger_has_no_times_and_an_end() -> None:
    after = firing.cancel(trigger(S.PENDING), ASK).after
    assert (after.fire_time, after.trigger_at, after.ended_at) == (None, None, ASK.now)
    assert after.reason == "because"


def test_a_declared_trigger_that_a_person_cancelled_does_not_expire() -> None:
    """Else it would be declared anew as soon as its record is gone."""
    after = firing.cancel(trigger(S.PENDING, declared=True), ASK).after
    assert (after.status, after.ended_at) == (S.CANCELLED, None)
    dropped = firing.drop(after, now=ASK.now + 5, request="r").after
    assert (dropped.status, dropped.ended_at) == (S.CANCELLED, ASK.now + 5)
    assert (dropped.reason, dropped.version) == (firing.NOT_DECLARED, after.version + 1)


def test_a_refusal_is_written_down_with_its_code() -> None:
    audit = firing.refusal(trigger(S.COMPLETED), C.PAUSE, ASK, "illegal-transition")
    assert (audit.before, audit.after) == (S.COMPLETED, S.COMPLETED)
    assert (audit.task_id, audit.refused) == ("trigger:nightly", "illegal-transition")
