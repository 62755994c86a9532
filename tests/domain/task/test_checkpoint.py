"""The save game: what it holds, how it is read, when it is still good (C1 to C6)."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import (
    CheckpointTooLarge,
    HoldfastError,
    IllegalTransition,
    SerialisationError,
)
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import decide, operate
from holdfast.domain.task.checkpoint import DATA_LIMIT_BYTES, Checkpoint, CheckpointVerdict
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Status
from tests.support.task_records import ASK, NOW, done, failed, failure, held, task

STAGES = ("one", "two", "three")
A_WEEK = 7 * 86_400.0


def saved(index: int = 0, **fields: object) -> Checkpoint:
    made = ckpt.save(None, stages=STAGES, index=index, data={"n": 1}, now=NOW, owner="w-1")
    return msgspec.structs.replace(made, **fields)


# C1: the fields and their names


def test_the_written_names_are_the_documents() -> None:
    assert list(msgspec.json.decode(ckpt.encode(saved()))) == [
        "lastCompletedStageIndex",
        "completedStageNames",
        "customData",
        "timestamp",
        "version",
        "executorInstance",
        "stageDurations",
        "failureHistory",
    ]


def test_the_timestamp_is_written_in_utc_with_its_zone() -> None:
    written = msgspec.json.decode(ckpt.encode(saved()))["timestamp"]
    assert re.fullmatch(r"2023-11-14T22:13:20(\.0+)?(Z|\+00:00)", written)


def test_failures_have_times_in_utc_with_their_zone() -> None:
    body = ckpt.encode(saved(failure_history=(failure(), failure())))
    for written in msgspec.json.decode(body)["failureHistory"]:
        assert re.fullmatch(r"2023-11-14T22:13:27\.\d{6}Z", written["at"])
    assert [one.at for one in ckpt.decode(body).failure_history] == [failure().at] * 2


@pytest.mark.parametrize("at", ["1700000000.5", '"2023-11-14T22:13:20.500000"'])
def test_times_of_failures_that_were_written_otherwise_are_read(at: str) -> None:
    body = ckpt.encode(saved(failure_history=(failure(),)))
    written = msgspec.json.decode(body)["failureHistory"][0]["at"]
    [found] = ckpt.decode(body.replace(f'"{written}"'.encode(), at.encode())).failure_history
    assert found.at == 1_700_000_000.5
    for wrong in ('"yesterday"', "null", "[]"):
        with pytest.raises(SerialisationError):
            ckpt.decode(body.replace(f'"{written}"'.encode(), wrong.encode()))


def test_each_completed_stage_has_its_duration() -> None:
    first = decide.stage_done(held(stages=STAGES), done(), checkpoint=None, now=NOW).checkpoint
    assert first is not None
    second = decide.stage_done(
        held(stages=STAGES, last_completed=0), done(), checkpoint=first, now=NOW
    ).checkpoint
    assert second is not None
    took = round(done().duration_seconds * 1000)
    assert second.stage_durations == {"one": took, "two": took}


def test_earlier_names_are_read_too() -> None:
    body = (
        b'{"lastCompletedStageIndex":0,"completedStages":["one"],'
        b'"contextData":{"n":1},"savedAt":"2025-11-23T10:00:00Z"}'
    )
    found = ckpt.decode(body)
    assert found.completed_stage_names == ("one",)
    assert found.custom_data == {"n": 1}
    assert found.timestamp == datetime(2025, 11, 23, 10, tzinfo=UTC)
    assert (found.version, found.failure_history) == (1, ())


def test_the_present_name_wins_over_the_earlier_one() -> None:
    body = ckpt.encode(saved())[:-1] + b',"contextData":{"old":true}}'
    assert ckpt.decode(body).custom_data == {"n": 1}


def test_a_time_without_a_zone_is_read_as_utc() -> None:
    body = (
        b'{"lastCompletedStageIndex":0,"completedStageNames":["one"],'
        b'"timestamp":"2025-11-23T10:00:00"}'
    )
    assert ckpt.decode(body).timestamp == datetime(2025, 11, 23, 10, tzinfo=UTC)


def test_another_zone_is_the_same_moment() -> None:
    east = timezone(timedelta(hours=8))
    moved = saved(timestamp=datetime.fromtimestamp(NOW, east))
    assert ckpt.decode(ckpt.encode(moved)).timestamp.timestamp() == NOW


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    data=st.dictionaries(st.text(), json_values, max_size=4),
    at=st.integers(0, 4_000_000_000),
    failures=st.integers(0, 3),
)
def test_what_is_written_is_read_again(data: dict[str, object], at: int, failures: int) -> None:
    history = tuple(failure(attempt=n, traceback="") for n in range(failures))
    made = saved(
        custom_data=data, timestamp=datetime.fromtimestamp(at, UTC), failure_history=history
    )
    assert ckpt.decode(ckpt.encode(made)) == made


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"lastCompletedStageIndex":0}',
        b'{"lastCompletedStageIndex":"0","completedStageNames":[],"timestamp":"x"}',
    ],
)
def test_what_cannot_be_read_is_a_serialisation_error(body: bytes) -> None:
    with pytest.raises(SerialisationError, match="cannot be read"):
        ckpt.decode(body)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_in_another_way(body: bytes) -> None:
    with suppress(SerialisationError):
        ckpt.decode(body)


def test_custom_data_has_a_limit() -> None:
    assert DATA_LIMIT_BYTES == 64 * 1024
    fits = {"x": "y" * (DATA_LIMIT_BYTES - len(b'{"x":""}'))}
    ckpt.encode(saved(custom_data=fits))
    with pytest.raises(CheckpointTooLarge) as refused:
        ckpt.encode(saved(custom_data={"x": fits["x"] + "y"}))
    assert refused.value.size_bytes == DATA_LIMIT_BYTES + 1


# C2: when it is saved


def test_it_is_saved_after_each_stage_but_the_last() -> None:
    first = decide.stage_done(held(), done(n=1), checkpoint=None, now=NOW)
    assert first.checkpoint is not None
    assert first.checkpoint.completed_stage_names == ("one",)
    second = decide.stage_done(first.after, done(n=2), checkpoint=first.checkpoint, now=NOW)
    assert second.checkpoint is not None
    assert second.checkpoint.completed_stage_names == ("one", "two")
    assert second.checkpoint.last_completed_stage_index == 1
    with pytest.raises(HoldfastError):
        decide.stage_done(second.after, done(), checkpoint=second.checkpoint, now=NOW)
    last = decide.complete(second.after, done(), now=NOW)
    assert (last.checkpoint, last.drop_checkpoint) == (None, True)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.RUNNING])
def test_it_is_saved_only_while_the_task_runs(status: Status) -> None:
    with pytest.raises(IllegalTransition):
        decide.stage_done(held(status), done(), checkpoint=None, now=NOW)


def test_a_failure_is_added_and_moves_nothing() -> None:
    before = saved(custom_data={"kept": 1})
    transition = decide.stage_failed(
        held(last_completed=0), failed(), Retry(), checkpoint=before, now=NOW + 99
    )
    after = transition.checkpoint
    assert after is not None
    assert after.last_completed_stage_index == 0
    assert after.custom_data == {"kept": 1}
    assert after.timestamp == before.timestamp
    assert [f.error for f in after.failure_history] == ["ValueError"]


def test_the_last_failures_are_kept_without_their_tracebacks() -> None:
    found = saved().failure_history
    for attempt in range(13):
        found = ckpt.remember(found, failure(attempt=attempt))
    assert [f.attempt for f in found] == list(range(3, 13))
    assert not any(f.traceback for f in found)


def test_the_history_outlives_the_next_stage() -> None:
    before = saved(failure_history=(failure(),))
    after = ckpt.save(before, stages=STAGES, index=1, data={}, now=NOW, owner="w-2")
    assert after.failure_history == before.failure_history
    assert after.custom_data == {}


def test_pause_and_cancel_find_the_checkpoint_of_the_stage_just_done() -> None:
    for flag in ("pause_requested", "cancel_requested"):
        asked = msgspec.structs.replace(held(last_completed=0), **{flag: True})
        transition = decide.boundary(asked, now=NOW)
        assert (transition.checkpoint, transition.drop_checkpoint) == (None, False)


# C3: where it goes on


@pytest.mark.parametrize(("last", "stage"), [(-1, "one"), (0, "two"), (1, "three"), (2, None)])
def test_a_task_goes_on_at_the_stage_after_the_last_completed(last: int, stage: str | None) -> None:
    assert task(last_completed=last).at_stage == stage


# C4: when it is no good


def verdict(
    checkpoint: Checkpoint, stages: tuple[str, ...] = STAGES, age: float = 0.0
) -> CheckpointVerdict:
    found, why = ckpt.judge(checkpoint, stages, now=NOW + age, max_age_seconds=A_WEEK)
    assert bool(why) == (found is not CheckpointVerdict.GOOD)
    return found


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_checkpoint_of_these_stages_is_good(index: int) -> None:
    assert verdict(saved(index)) is CheckpointVerdict.GOOD


@pytest.mark.parametrize("index", [-1, 3, 99])
def test_an_index_out_of_range_is_invalid(index: int) -> None:
    assert verdict(saved(last_completed_stage_index=index)) is CheckpointVerdict.INVALID


@pytest.mark.parametrize("names", [(), ("one", "two")])
def test_names_that_do_not_fit_the_index_are_invalid(names: tuple[str, ...]) -> None:
    assert verdict(saved(0, completed_stage_names=names)) is CheckpointVerdict.INVALID


def test_a_checkpoint_older_than_its_type_allows_is_invalid() -> None:
    assert verdict(saved(), age=A_WEEK) is CheckpointVerdict.GOOD
    assert verdict(saved(), age=A_WEEK + 1) is CheckpointVerdict.INVALID


def test_without_an_age_limit_no_checkpoint_is_too_old() -> None:
    found, _ = ckpt.judge(saved(), STAGES, now=NOW + 1e9, max_age_seconds=None)
    assert found is CheckpointVerdict.GOOD


def test_a_checkpoint_says_what_its_type_does_when_it_is_no_good() -> None:
    first = ckpt.save(None, stages=STAGES, index=0, data={}, now=NOW, owner="w")
    assert b"onInvalid" not in ckpt.encode(first)
    assert not first.restarts
    policy = ckpt.Policy(on_invalid="restart", max_age_seconds=60.0)
    told = ckpt.save(first, stages=STAGES, index=1, data={}, now=NOW, owner="w", policy=policy)
    assert ckpt.decode(ckpt.encode(told)) == told
    later = ckpt.save(told, stages=STAGES, index=1, data={"a": 1}, now=NOW, owner="w")
    assert (later.restarts, later.max_age_seconds) == (True, 60.0)


def test_a_name_that_the_code_does_not_know_is_invalid() -> None:
    assert verdict(saved(1), ("one", "deux", "three")) is CheckpointVerdict.INVALID


@pytest.mark.parametrize(
    "stages", [("zero", "one", "two", "three"), ("two", "one", "three"), ("one", "new", "two")]
)
def test_stages_that_were_inserted_or_moved_mean_another_definition(
    stages: tuple[str, ...],
) -> None:
    assert verdict(saved(1), stages) is CheckpointVerdict.CHANGED


def test_stages_added_behind_do_no_harm() -> None:
    assert verdict(saved(1), (*STAGES, "four")) is CheckpointVerdict.GOOD


def test_stages_taken_away_behind_do_no_harm() -> None:
    assert verdict(saved(0), ("one", "two")) is CheckpointVerdict.GOOD


# C5: the version


@given(st.integers(1, 1000))
def test_the_version_strictly_rises(version: int) -> None:
    before = saved(version=version)
    saved_again = ckpt.save(before, stages=STAGES, index=1, data={}, now=NOW, owner="w-1")
    assert saved_again.version == version + 1
    transition = decide.stage_failed(
        held(last_completed=0), failed(), Retry(), checkpoint=before, now=NOW
    )
    assert transition.checkpoint is not None
    assert transition.checkpoint.version == version + 1


# C6: from the start


def test_without_the_checkpoint_a_retry_starts_at_the_first_stage() -> None:
    transition = operate.retry(task(Status.FAILED, last_completed=1), ASK, from_checkpoint=False)
    assert (transition.drop_checkpoint, transition.drop_stages) == (True, True)
    assert transition.after.at_stage == "one"


def test_with_the_checkpoint_a_retry_goes_on_behind_it() -> None:
    transition = operate.retry(task(Status.FAILED, last_completed=1), ASK)
    assert (transition.drop_checkpoint, transition.drop_stages) == (False, False)
    assert transition.after.at_stage == "three"
