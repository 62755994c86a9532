"""Bulk actions: which statuses a command is for, and the steps of a canary."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain import bulk
from holdfast.domain.bulk import BulkCommand, BulkCounts, BulkState, Canary, PickedTask
from holdfast.domain.errors import InvalidInput, Refused
from holdfast.domain.plan.plan import FailureCount
from holdfast.domain.task.state import SETTLED, Command, Status
from tests.support.task_records import ASK, NOW, held, task

CANARY = Canary(steps=(1, 10))
ON_THE_WAY = BulkState(matching=50)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("command", BulkCommand)
def test_a_command_is_for_the_statuses_in_which_it_is_legal(
    command: BulkCommand, status: Status
) -> None:
    record = held(status) if status is Status.RUNNING else task(status)
    try:
        bulk.decision(command, record, ASK, force=False, from_checkpoint=True)
        acts = True
    except Refused:
        acts = False
    assert acts is (status in bulk.legal_in(command))


@pytest.mark.parametrize("status", [Status.PAUSED, Status.FAILED])
@pytest.mark.parametrize("from_checkpoint", [True, False])
def test_what_a_bulk_action_resumes_must_have_its_checkpoint_unless_it_starts_over(
    status: Status, from_checkpoint: bool
) -> None:
    half_done = task(status, last_completed=0)
    resumed = bulk.decision(
        BulkCommand.RESUME, half_done, ASK, force=False, from_checkpoint=from_checkpoint
    )
    assert resumed.not_without_checkpoint is from_checkpoint
    fresh = bulk.decision(
        BulkCommand.RESUME, task(status), ASK, force=False, from_checkpoint=from_checkpoint
    )
    assert not fresh.not_without_checkpoint


@pytest.mark.parametrize("command", BulkCommand)
def test_without_statuses_nothing_that_has_ended_is_meant(command: BulkCommand) -> None:
    meant = bulk.check_statuses(command, ())
    assert meant
    assert not SETTLED.intersection(meant)


def test_a_status_for_which_the_command_does_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="discard is not for PAUSED tasks, but for FAILED"):
        bulk.check_statuses(BulkCommand.DISCARD, (Status.PAUSED,))


def test_every_bulk_command_is_one_of_a_task() -> None:
    assert {Command(command) for command in BulkCommand} < set(Command)


@pytest.mark.parametrize(
    ("rate", "limit", "taken", "room"),
    [
        (1.0, None, 0, 5),
        (50.0, None, 0, 250),
        (1000.0, None, 0, bulk.CHUNK_LIMIT),
        (50.0, 30, 0, 30),
        (50.0, 30, 28, 2),
        (50.0, 30, 30, 0),
    ],
)
def test_a_round_takes_what_fits_into_its_time(
    rate: float, limit: int | None, taken: int, room: int
) -> None:
    state = replace(ON_THE_WAY, counts=BulkCounts(done=taken))
    assert bulk.room(state, rate=rate, limit=limit, canary=None) == room


def test_a_step_waits_for_all_of_its_tasks() -> None:
    state = bulk.finish_round(ON_THE_WAY, BulkCounts(done=1), ["a"], [])
    assert bulk.room(state, rate=50, limit=None, canary=CANARY) == 0
    waiting = bulk.judge_canary(bulk.note_ends(state, {}, now=NOW), CANARY, now=NOW)
    assert (waiting.step, waiting.waits_since) == (0, NOW)
    after = bulk.judge_canary(
        bulk.note_ends(waiting, {"a": Status.COMPLETED}, now=NOW + 5), CANARY, now=NOW + 5
    )
    assert (after.step, after.counts.ended, after.waits_since) == (1, 1, None)
    assert bulk.room(after, rate=50, limit=None, canary=CANARY) == 10


def test_one_that_was_refused_or_changed_is_no_canary() -> None:
    state = bulk.finish_round(ON_THE_WAY, BulkCounts(refused={"moved-on": 1}, changed=1), [], [])
    state = bulk.judge_canary(bulk.note_ends(state, {}, now=NOW), CANARY, now=NOW)
    assert (state.step, bulk.room(state, rate=50, limit=None, canary=CANARY)) == (0, 1)


def test_each_end_gives_the_rest_more_time() -> None:
    state = bulk.note_ends(replace(ON_THE_WAY, watched=("a", "b")), {}, now=NOW)
    state = bulk.note_ends(state, {}, now=NOW + 100)
    assert state.waits_since == NOW
    state = bulk.note_ends(state, {"a": Status.CANCELLED}, now=NOW + 200)
    assert (state.waits_since, state.watched) == (NOW + 200, ("b",))


@pytest.mark.parametrize("status", [Status.FAILED, Status.ROLLBACK_FAILED])
def test_one_that_is_suspended_again_has_failed(status: Status) -> None:
    state = replace(ON_THE_WAY, watched=("a",), counts=BulkCounts(done=1))
    state = bulk.judge_canary(bulk.note_ends(state, {"a": status}, now=NOW), CANARY, now=NOW)
    assert (state.counts.failed, state.counts.ended) == (1, 0)
    assert state.halted == "1 of 1 have failed again"
    assert bulk.is_over(state, CANARY, now=NOW)


def test_one_whose_record_is_gone_has_not_failed() -> None:
    state = replace(ON_THE_WAY, watched=("a",), counts=BulkCounts(done=1))
    state = bulk.note_ends(state, {"a": None}, now=NOW)
    assert (state.counts.failed, state.counts.ended, state.watched) == (0, 1, ())


def test_it_is_not_over_while_something_is_pending() -> None:
    state = replace(ON_THE_WAY, looked_through=True, pending=(PickedTask("a", 1),))
    assert not bulk.is_over(state, None, now=NOW)
    assert bulk.is_over(replace(state, pending=()), None, now=NOW)


def test_counts_add_up_by_the_code_of_a_refusal() -> None:
    first = BulkCounts(done=1, refused={"a": 1}, changed=1, gone=1)
    both = bulk.add_counts(first, BulkCounts(done=2, refused={"a": 1, "b": 3}))
    assert both == BulkCounts(done=3, refused={"a": 2, "b": 3}, changed=1, gone=1)
    assert both.taken == 3 + 5 + 1 + 1


def test_none_may_fail_where_the_threshold_is_zero() -> None:
    canary = Canary(stop_at=FailureCount(0))
    assert bulk.check_canary(BulkCommand.RETRY, canary) is canary
    state = replace(ON_THE_WAY, step=2, counts=BulkCounts(done=500, failed=1))
    assert bulk.judge_canary(state, canary, now=NOW).halted


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, 4),
        ({"more": True}, 0),  # nobody has counted them all
        ({"looked_through": False}, 0),
        ({"halted": "too many"}, 0),
        ({"matching": 5}, 0),  # more have come to match
    ],
)
def test_at_the_end_what_was_not_found_any_more_is_counted_as_changed(
    changes: dict[str, Any], changed: int
) -> None:
    state = BulkState(matching=10, looked_through=True, counts=BulkCounts(done=5, gone=1))
    assert bulk.count_missing(replace(state, **changes), None).counts.changed == changed


def test_what_a_limit_leaves_out_has_not_changed() -> None:
    state = BulkState(matching=10, looked_through=True, counts=BulkCounts(done=6))
    assert bulk.count_missing(state, 6).counts.changed == 0
    assert bulk.count_missing(state, 7).counts.changed == 4
