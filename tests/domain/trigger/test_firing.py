"""What a scheduler decides of a trigger that it holds."""

import random
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError
from holdfast.domain.trigger import definition, firing
from holdfast.domain.trigger.definition import definition_of, has_definition, new_trigger, redefine
from holdfast.domain.trigger.firing import RETRY_LIMIT, TASKS_A_CHANGE, DueFireTimes, due, fire
from holdfast.domain.trigger.schedule import Cron, Every, Once, latest, next_after
from holdfast.domain.trigger.trigger import (
    UNFINISHED,
    Misfire,
    Overlap,
    Trigger,
    TriggerChange,
    TriggerStatus,
)
from tests.support.task_records import NOW, submission, trigger

S = TriggerStatus
HOUR = 3_600.0
HOURLY = Every(seconds=HOUR, start=NOW)


def held(**fields: Any) -> Trigger:
    defaults: dict[str, Any] = {"schedule": HOURLY, "fire_time": NOW, "trigger_at": NOW}
    return trigger(S.PROCESSING, **(defaults | fields))


def fired(one: Trigger, *, now: float, chance: float = 0.0) -> TriggerChange:
    found = due(one, now=now)
    made = [submission(f"task-{at - NOW:g}") for at in found.times]
    return fire(one, found, made, now=now, chance=chance)


def hours(found: DueFireTimes) -> list[float]:
    return [(at - NOW) / HOUR for at in found.times]


# -- which fire times


def test_on_time_every_policy_makes_the_one_task() -> None:
    for misfire in Misfire:
        found = due(held(misfire=misfire), now=NOW + 0.5)
        assert (hours(found), found.missed, found.answered) == ([0], 0, NOW)


def test_once_makes_one_task_for_all_that_are_due() -> None:
    found = due(held(misfire=Misfire.ONCE), now=NOW + 5.5 * HOUR)
    assert (hours(found), found.missed) == ([5], 5)
    assert found.answered == NOW + 5 * HOUR


def test_skip_makes_those_within_grace_and_counts_the_others() -> None:
    one = held(misfire=Misfire.SKIP, grace_seconds=60.0)
    late = due(one, now=NOW + 5 * HOUR + 61)
    assert (hours(late), late.missed, late.answered) == ([], 6, NOW + 5 * HOUR)
    in_time = due(one, now=NOW + 5 * HOUR + 60)
    assert (hours(in_time), in_time.missed) == ([5], 5)


def test_skip_makes_each_of_several_within_grace() -> None:
    one = held(misfire=Misfire.SKIP, grace_seconds=2.5 * HOUR)
    found = due(one, now=NOW + 5 * HOUR)
    assert (hours(found), found.missed) == ([3, 4, 5], 3)


def test_lateness_is_counted_from_the_end_of_the_jitter() -> None:
    one = held(misfire=Misfire.SKIP, grace_seconds=60.0, jitter_seconds=300.0)
    assert hours(due(one, now=NOW + 360)) == [0]
    assert hours(due(one, now=NOW + 361)) == []


def test_catch_up_makes_the_newest_oldest_first() -> None:
    found = due(held(misfire=Misfire.CATCH_UP, catch_up_max=3), now=NOW + 5.5 * HOUR)
    assert (hours(found), found.missed) == ([3, 4, 5], 3)


def test_a_look_over_a_thousand_years_is_bounded() -> None:
    for misfire in Misfire:
        found = due(held(misfire=misfire), now=NOW + 1_000 * 366 * 24 * HOUR)
        assert len(found.times) <= TASKS_A_CHANGE
        assert found.missed <= firing.FIRE_TIMES_MAX


def test_what_one_change_cannot_hold_stays_due() -> None:
    one = held(misfire=Misfire.CATCH_UP, catch_up_max=250)
    made: list[float] = []
    now = NOW + 249.5 * HOUR
    while one.fire_time is not None and one.fire_time <= now:
        made += due(one, now=now).times
        after = fired(one, now=now).after
        assert after.fire_time is not None
        assert after.trigger_at == after.fire_time
        one = replace(after, status=S.PROCESSING)
    assert made == [NOW + n * HOUR for n in range(250)]
    assert (one.fired, one.missed) == (250, 0)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE])
def test_the_tasks_of_one_look_do_not_overlap_each_other(overlap: Overlap) -> None:
    one = held(misfire=Misfire.CATCH_UP, catch_up_max=3, overlap=overlap, last_task="task-x")
    found = due(one, now=NOW + 5.5 * HOUR)
    assert (hours(found), found.missed, found.answered) == ([3], 3, NOW + 3 * HOUR)
    change = fired(one, now=NOW + 5.5 * HOUR)
    assert change.unless_unfinished == "task-x"
    assert change.after.fire_time == NOW + 4 * HOUR


def test_a_slower_clock_than_the_one_that_handed_it_out_loses_nothing() -> None:
    found = due(held(), now=NOW - 0.01)
    assert (hours(found), found.answered) == ([0], NOW)


def test_a_time_that_new_rules_of_its_zone_have_removed_is_passed_over() -> None:
    one = held(schedule=Cron(expression="0 3 * * *"), fire_time=NOW, trigger_at=NOW)
    change = fired(one, now=NOW + 1)
    assert (change.submissions, change.after.missed) == ((), 0)
    assert change.after.fire_time == 1_700_017_200.0, "03:00 UTC"


def test_a_trigger_without_a_time_is_not_fired() -> None:
    with pytest.raises(HoldfastError):
        due(held(fire_time=None), now=NOW)


@pytest.mark.parametrize("seed", range(50))
def test_each_fire_time_is_answered_for_once_whenever_anybody_looks(seed: int) -> None:
    chance = random.Random(seed)
    one = held(
        schedule=chance.choice((HOURLY, Cron(expression="17 */3 * * *", tz="Europe/Berlin"))),
        misfire=chance.choice(list(Misfire)),
        overlap=chance.choice(list(Overlap)),
        catch_up_max=chance.choice((1, 3, 100)),
        grace_seconds=chance.choice((0.0, 60.0, 3 * HOUR)),
        jitter_seconds=chance.choice((0.0, 600.0)),
    )
    first = next_after(one.schedule, NOW - 1)
    assert first is not None
    one, made, now = replace(one, fire_time=first, trigger_at=first), list[float](), first
    for _ in range(30):
        assert one.trigger_at is not None
        now = max(now, one.trigger_at) + chance.choice((0.0, 0.5, 90.0, 9 * HOUR))
        made += due(one, now=now).times
        one = replace(fired(one, now=now, chance=chance.random()).after, status=S.PROCESSING)
    assert one.fire_time is not None
    owed = latest(one.schedule, first, one.fire_time - 1, 100_000)
    assert set(made) <= set(owed)
    assert made == sorted(set(made)), "in order, none twice"
    assert (one.fired, one.fired + one.missed) == (len(made), len(owed))


# -- moving on


def test_a_fired_trigger_moves_on_in_the_same_change() -> None:
    one = held(retry_count=3, reason="it failed", unknown_since=1.0, fired=4, missed=1)
    change = fired(one, now=NOW + 2 * HOUR)
    after = change.after
    assert (after.status, after.version) == (S.PENDING, one.version + 1)
    assert after.fire_time == after.trigger_at == NOW + 3 * HOUR
    assert (after.retry_count, after.reason, after.unknown_since) == (0, None, None)
    assert (after.fired, after.missed) == (5, 3)
    assert (after.last_fire_time, after.last_task) == (NOW + 2 * HOUR, "task-7200")
    assert (after.owner, after.lease_until) == (None, None)
    assert after.request == f"{one.owner}:{one.version}"
    assert change.unless_unfinished is None


def test_what_has_no_next_time_ends() -> None:
    one = held(schedule=Once(at=NOW))
    after = fired(one, now=NOW + 9 * HOUR).after
    assert (after.status, after.ended_at) == (S.COMPLETED, NOW + 9 * HOUR)
    assert (after.fire_time, after.trigger_at, after.fired) == (None, None, 1)
    assert after.reason is None


def test_what_was_to_fire_once_and_is_too_late_ends_without_a_task() -> None:
    one = held(schedule=Once(at=NOW), misfire=Misfire.SKIP)
    change = fired(one, now=NOW + 9 * HOUR)
    after = change.after
    assert (after.status, change.submissions) == (S.COMPLETED, ())
    assert (after.fired, after.missed, after.last_task) == (0, 1, None)
    assert after.reason is not None
    assert "missed" in after.reason


@pytest.mark.parametrize(("jitter", "look"), [(600.0, 300.0), (3 * HOUR, HOUR / 4)])
def test_jitter_stays_clear_of_the_next_fire_time(jitter: float, look: float) -> None:
    after = fired(held(jitter_seconds=jitter), now=NOW, chance=0.5).after
    assert after.fire_time == NOW + HOUR
    assert after.trigger_at == NOW + HOUR + look


def test_each_fire_time_has_one_key() -> None:
    one = held()
    assert firing.key(one, NOW) == "nightly@2023-11-14T22:13:20Z"
    assert firing.key(one, NOW + 0.25) == "nightly@2023-11-14T22:13:20.250Z"
    assert firing.key(one, NOW + 0.9999) == "nightly@2023-11-14T22:13:21Z"


# -- not now


def test_an_overlap_that_is_skipped_counts_all_that_were_due() -> None:
    one = held(overlap=Overlap.SKIP, misfire=Misfire.CATCH_UP, last_task="task-x")
    now = NOW + 2.5 * HOUR
    change = firing.skip_overlap(one, due(one, now=now), now=now, chance=0.0)
    after = change.after
    assert (change.submissions, after.missed, after.fired) == ((), 3, 0)
    assert (after.fire_time, after.last_task) == (NOW + 3 * HOUR, "task-x")


@pytest.mark.parametrize(("waited", "delay"), [(0, 1), (4, 1), (100, 10), (500, 30)])
def test_an_overlap_that_is_queued_keeps_its_fire_time(waited: float, delay: float) -> None:
    after = firing.queue_overlap(held(), now=NOW + waited).after
    assert (after.status, after.fire_time) == (S.PENDING, NOW)
    assert after.trigger_at == NOW + waited + delay
    assert (after.retry_count, after.missed) == (0, 0)


def test_failures_back_off_and_the_last_suspends() -> None:
    one, delays = held(), []
    for _ in range(RETRY_LIMIT - 1):
        after = firing.retry_or_suspend(one, "ValueError: no", now=NOW).after
        assert (after.status, after.reason) == (S.PENDING, "ValueError: no")
        assert after.trigger_at is not None
        delays.append(after.trigger_at - NOW)
        one = replace(after, status=S.PROCESSING)
    assert delays == [1, 2, 4, 8]
    last = firing.retry_or_suspend(one, "ValueError: no", now=NOW).after
    assert (last.status, last.fire_time, last.trigger_at) == (S.SUSPENDED, NOW, None)
    assert last.reason is not None
    assert "5 times in a row: ValueError: no" in last.reason


def test_a_trigger_whose_leases_lapsed_too_often_is_suspended() -> None:
    assert firing.suspend_after_lapses(held(retry_count=RETRY_LIMIT - 1), now=NOW) is None
    change = firing.suspend_after_lapses(
        held(retry_count=RETRY_LIMIT, reason="last words"), now=NOW
    )
    assert change is not None
    assert change.after.status is S.SUSPENDED
    assert change.after.reason is not None
    assert "last words" in change.after.reason


def test_an_unknown_type_waits_and_is_then_suspended() -> None:
    one = held()
    first = firing.put_off_unknown(one, served=False, limit_seconds=600, now=NOW).after
    assert (first.status, first.unknown_since, first.retry_count) == (S.PENDING, NOW, 0)
    again = replace(first, status=S.PROCESSING)
    later = firing.put_off_unknown(again, served=False, limit_seconds=600, now=NOW + 599).after
    assert (later.status, later.unknown_since) == (S.PENDING, NOW)
    again = replace(later, status=S.PROCESSING)
    last = firing.put_off_unknown(again, served=False, limit_seconds=600, now=NOW + 600).after
    assert (last.status, last.fire_time) == (S.SUSPENDED, NOW)
    assert last.reason == "no worker knows the task type 'mail.send', for 10m now"


def test_a_type_that_another_worker_knows_is_left_to_it() -> None:
    one = held(unknown_since=NOW - 10_000)
    after = firing.put_off_unknown(one, served=True, limit_seconds=600, now=NOW).after
    assert (after.status, after.trigger_at) == (S.PENDING, NOW + 1)
    assert after.unknown_since is None


def test_one_that_code_declared_goes_with_its_type() -> None:
    one = held(declared=True, unknown_since=NOW)
    waits = firing.put_off_unknown(one, served=False, limit_seconds=600, now=NOW + 599).after
    assert waits.status is S.PENDING
    gone = firing.put_off_unknown(one, served=False, limit_seconds=600, now=NOW + 600).after
    assert (gone.status, gone.reason) == (S.CANCELLED, firing.NOT_DECLARED)
    assert (gone.ended_at, gone.fire_time, gone.trigger_at) == (NOW + 600, None, None)
    assert gone.request == f"{one.owner}:{one.version}"


def test_what_is_put_off_has_come_to_an_end() -> None:
    after = firing.put_off(held(retry_count=4), 5.0, "later", now=NOW).after
    assert (after.status, after.retry_count) == (S.PENDING, 0), "its lapses are not in a row"
    assert (after.trigger_at, after.reason) == (NOW + 5, "later")


# -- definitions


def test_a_new_trigger_waits_for_its_first_time() -> None:
    hourly = definition_of(held())
    made = new_trigger(hourly, "x", now=NOW, chance=0.5, request="r")
    assert (made.id, made.version, made.status) == ("x", 0, S.PENDING)
    assert made.fire_time == made.trigger_at == NOW, "its start is now"
    assert new_trigger(hourly, "x", now=NOW + 1, chance=0.5, request="r").fire_time == NOW + HOUR
    assert has_definition(made, hourly)


def test_a_time_in_the_past_counts_where_it_is_the_only_one() -> None:
    assert definition.first_time(Once(at=NOW - 60), NOW) == NOW - 60
    assert definition.first_time(Every(seconds=60, start=NOW - 90), NOW) == NOW + 30


def test_an_interval_in_code_fires_first_at_its_next_time() -> None:
    """There a start only says when the times are: a deploy must not fire it."""
    hourly = definition_of(held(declared=True, schedule=Every(seconds=HOUR, start=0.0)))
    made = definition.create(hourly, "x", now=NOW, chance=0.5, request="r").after
    assert made.fire_time is not None
    assert made.fire_time > NOW
    owed = definition.create(hourly, "x", now=NOW, chance=0.5, request="r", owes_start=True).after
    assert owed.fire_time is not None
    assert NOW - HOUR < owed.fire_time <= NOW


def test_one_definition_may_write_its_payload_in_any_order() -> None:
    one = held(payload=Raw(b'{"a": 1, "b": [{"c": 2, "d": 3}]}'))
    wanted = definition_of(one)
    assert has_definition(one, replace(wanted, payload=Raw(b'{"b":[{"d":3,"c":2}],"a":1}')))
    assert not has_definition(one, replace(wanted, payload=Raw(b'{"b":[{"d":2,"c":3}],"a":1}')))


def test_what_is_created_must_not_be_there() -> None:
    change = definition.create(definition_of(held()), "x", now=NOW, chance=0.0, request="r")
    assert (change.before.version, change.after.version, change.after.request) == (0, 1, "r")


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_a_new_payload_leaves_the_fire_time_alone(status: TriggerStatus) -> None:
    before = trigger(status, fire_time=NOW - 60, asked="r-0")
    before = replace(before, trigger_at=before.trigger_at and NOW - 30)
    wanted = replace(definition_of(before), payload=Raw(b'"new"'))
    after = redefine(before, wanted, now=NOW, chance=0.0, request="r").after
    assert (after.fire_time, after.asked, after.payload) == (NOW - 60, "r-0", Raw(b'"new"'))
    look = {S.PAUSED: None, S.SUSPENDED: NOW - 60}.get(status, NOW - 30)
    assert after.trigger_at == look


def test_one_that_went_with_its_type_comes_back_with_the_time_that_it_owes() -> None:
    one = held(declared=True, created_at=NOW - HOUR, unknown_since=NOW + 5)
    gone = firing.put_off_unknown(one, served=False, limit_seconds=600, now=NOW + 2 * HOUR).after
    back = redefine(gone, definition_of(gone), now=NOW + 3 * HOUR, chance=0.0, request="r").after
    assert (back.status, back.fire_time, back.unknown_since) == (S.PENDING, NOW, None)
    dropped = firing.drop(one, now=NOW + HOUR, request="r").after
    new = redefine(dropped, definition_of(one), now=NOW + 3 * HOUR, chance=0.0, request="r").after
    assert new.fire_time == NOW + 4 * HOUR


def test_a_new_definition_keeps_the_counters_and_counts_its_times_from_now() -> None:
    before = held(fired=7, missed=2, last_task="task-7", created_at=NOW - 9, retry_count=3)
    wanted = replace(definition_of(before), schedule=Every(seconds=60, start=NOW - 90))
    assert not has_definition(before, wanted)
    after = redefine(before, wanted, now=NOW, chance=0.0, request="r").after
    assert has_definition(after, wanted)
    assert (after.status, after.version) == (S.PENDING, before.version + 1)
    assert (after.fired, after.missed, after.last_task) == (7, 2, "task-7")
    assert (after.created_at, after.retry_count, after.owner) == (NOW - 9, 0, None)
    assert after.fire_time == NOW + 30


@pytest.mark.parametrize("status", list(S))
def test_a_new_definition_revives_all_but_what_a_person_paused(status: TriggerStatus) -> None:
    before = trigger(status, reason="lunch")
    wanted = replace(definition_of(before), target="other")
    after = redefine(before, wanted, now=NOW, chance=0.0, request="r").after
    if status is S.PAUSED:
        assert (after.status, after.trigger_at, after.reason) == (S.PAUSED, None, "lunch")
    else:
        assert (after.status, after.reason, after.ended_at) == (S.PENDING, None, None)
        assert after.trigger_at is not None
