"""Chaos over plans: in short, with real processes; and its judge."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast import Status
from holdfast.domain.plan import events as pe
from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanStatus, PlanTasks
from holdfast.domain.task import events as ev
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import By, Task
from tests.support.verify.chaos_runs import STORES, run_chaos
from verify.chaos.judges.plans import PlanHistory, PlanRecords, PlanVerdict, judge_plans
from verify.chaos.judges.tasks import History
from verify.chaos.ledger import LedgerEntry, LineKind


@pytest.mark.parametrize("store", STORES)
def test_plans_keep_their_promises_while_workers_and_drivers_are_killed_and_frozen(
    store: str,
) -> None:
    harm = f"--only plans --kills 14 --zombies 3 --seconds 600 --seed 7 {STORES[store]}"
    run_chaos(harm)


# -- a small history that is as it should be: two waves of one task each, and two drivers

M = MemberState


def task(number: int) -> Task:
    return Task(
        id=f"t{number}",
        type="upgrade",
        tenant=f"tenant-{number}",
        plan="p",
        stages=("migrate",),
        created_at=0.0,
        status=Status.COMPLETED,
        status_since=9.0,
        updated_at=9.0,
        version=3,
        last_completed=0,
    )


def told(number: int, began: float, ended: float, fence: int) -> tuple[Event, ...]:
    of: dict[str, Any] = {"task_id": f"t{number}"}
    return (
        ev.TaskCreated(**of, version=1, at=0.0, type="upgrade", tenant=f"tenant-{number}"),
        ev.TaskStarted(**of, version=2, at=began, worker="w1", fence=fence),
        ev.StageCompleted(
            **of, version=3, at=ended, stage="migrate", run=1, epoch=1, duration_seconds=0.1
        ),
        ev.TaskCompleted(**of, version=3, at=ended),
    )


def fact(kind: type[Any], version: int, at: float, **facts: Any) -> pe.PlanEvent:
    event: pe.PlanEvent = kind(plan_id="p", version=version, at=at, **facts)
    return event


def moved(version: int, at: float, *moves: tuple[int, str]) -> pe.PlanEvent:
    return fact(pe.PlanAdvanced, version, at, moved=moves)


EVENTS = [
    fact(pe.PlanCreated, 1, 0.0, total=2),
    fact(pe.PlanReady, 2, 0.1),
    fact(pe.PlanStarted, 3, 1.0),
    fact(pe.WaveStarted, 3, 1.0, wave=1, tasks=1),
    moved(4, 1.1, (0, M.ADMITTED)),
    moved(5, 2.0, (0, M.COMPLETED)),
    fact(pe.WaveEnded, 5, 2.0, wave=1, completed=1, failed=0),
    fact(pe.WaveStarted, 6, 3.0, wave=2, tasks=1),
    moved(7, 3.1, (1, M.ADMITTED)),
    moved(8, 4.0, (1, M.COMPLETED)),
    fact(pe.PlanCompleted, 8, 4.0),
]
PLAN = Plan(
    id="p",
    total=2,
    digest="",
    max_concurrency=1,
    waves=(1, 2),
    soak_seconds=1.0,
    created_at=0.0,
    status=PlanStatus.COMPLETED,
    status_since=4.0,
    updated_at=4.0,
    version=8,
    counts=({M.COMPLETED: 1}, {M.COMPLETED: 1}),
)
RECORDS = PlanRecords(
    plan=PLAN,
    tasks=PlanTasks(ids=("t0", "t1"), tenants=("tenant-0", "tenant-1")),
    members={0: Member(M.COMPLETED), 1: Member(M.COMPLETED)},
    events=EVENTS,
)
LINES = [
    LedgerEntry(LineKind.ACK, 0.1, "submitter", "p", "p"),
    LedgerEntry(LineKind.DRIVES, 0.9, "w1", "p", fence=1),
    LedgerEntry(LineKind.WROTE, 1.0, "w1", "p", "3", fence=1),
    *(
        LedgerEntry(kind, 1.2, "w1", "t0", "t0/1/migrate", 11)
        for kind in (LineKind.BEGIN, LineKind.END)
    ),
    LedgerEntry(LineKind.DRIVES, 2.9, "w2", "p", fence=2),
    LedgerEntry(LineKind.WROTE, 3.0, "w2", "p", "6", fence=2),
    *(
        LedgerEntry(kind, 3.2, "w1", "t1", "t1/1/migrate", 12)
        for kind in (LineKind.BEGIN, LineKind.END)
    ),
]
BESIDE = History(
    expected={},
    records={"t0": (task(0), told(0, 1.2, 1.9, 11)), "t1": (task(1), told(1, 3.2, 3.9, 12))},
    lines=LINES,
    findings=[],
    lease_seconds=1.0,
)
GOOD = PlanHistory(expected={"p": PlanStatus.COMPLETED}, plans={"p": RECORDS}, beside=BESIDE)


def judged(**changes: Any) -> PlanVerdict:
    return judge_plans(replace(GOOD, plans={"p": replace(RECORDS, **changes)}))


def judged_with(events: Sequence[pe.PlanEvent]) -> PlanVerdict:
    return judged(events=events)


def judged_beside(**changes: Any) -> PlanVerdict:
    return judge_plans(replace(GOOD, beside=replace(BESIDE, **changes)))


def without(number: int) -> list[pe.PlanEvent]:
    return [event for n, event in enumerate(EVENTS) if n != number]


def instead(number: int, event: pe.PlanEvent) -> list[pe.PlanEvent]:
    return [event if n == number else other for n, other in enumerate(EVENTS)]


def test_the_judge_of_plans_finds_nothing_wrong_where_nothing_is() -> None:
    verdict = judge_plans(GOOD)
    assert verdict.complaints == []
    assert (verdict.plans, verdict.waves, verdict.drivers, verdict.tasks.tasks) == (1, 2, 2, 2)


# -- lost


def test_a_plan_that_did_not_end_as_it_should_is_lost() -> None:
    wrong = replace(GOOD, expected={"p": PlanStatus.ROLLED_BACK})
    assert "should be ROLLED_BACK" in str(judge_plans(wrong).lost)


def test_a_plan_that_is_gone_or_was_never_answered_is_lost() -> None:
    assert "not in the store" in str(judge_plans(replace(GOOD, plans={})).lost)
    assert "never answered" in str(judged_beside(lines=LINES[1:]).lost)


def test_a_task_of_a_plan_that_is_gone_is_lost() -> None:
    gone = {"t0": BESIDE.records["t0"]}
    assert "task 1 is not in the store" in str(judged_beside(records=gone).lost)


def test_a_plan_that_says_other_than_its_task_is_a_complaint() -> None:
    waits = msgspec.structs.replace(task(1), status=Status.PENDING)
    records = {**BESIDE.records, "t1": (waits, BESIDE.records["t1"][1])}
    assert "task 1 is PENDING, and its plan has it as completed" in str(
        judged_beside(records=records).lost
    )


# -- at once


def test_more_slots_than_max_concurrency_are_a_complaint() -> None:
    events = instead(4, moved(4, 1.1, (0, M.ADMITTED), (1, M.ADMITTED)))
    assert "2 slots, at most 1" in str(judged_with(events).crowded)


def test_more_tasks_at_once_than_max_concurrency_are_a_complaint() -> None:
    records = {**BESIDE.records, "t1": (task(1), told(1, 1.5, 3.9, 12))}
    assert "2 tasks at once" in str(judged_beside(records=records).crowded)


def test_two_tasks_of_one_tenant_at_once_are_a_complaint() -> None:
    same = msgspec.structs.replace(task(1), tenant="tenant-0")
    records = {**BESIDE.records, "t1": (same, told(1, 1.5, 3.9, 12))}
    assert judged_beside(records=records).tasks.two_owners


# -- waves


def test_a_task_let_go_before_its_wave_is_disorder() -> None:
    events = instead(4, moved(4, 1.1, (1, M.ADMITTED)))
    assert "task 1 was let go in wave 1" in str(judged_with(events).disorder)


def test_a_task_that_ran_before_its_wave_is_disorder() -> None:
    records = {**BESIDE.records, "t1": (task(1), told(1, 2.5, 3.9, 12))}
    assert "task 1 ran at 2.500, before wave 2" in str(judged_beside(records=records).disorder)


def test_a_wave_that_starts_before_the_last_has_ended_is_disorder() -> None:
    assert "before the last had ended" in str(judged_with(without(6)).disorder)


def test_a_wave_that_ends_while_a_task_of_it_goes_on_is_disorder() -> None:
    assert "tasks [0] not ended" in str(judged_with(without(5)).disorder)


def test_a_wave_that_is_left_out_or_comes_twice_is_disorder() -> None:
    third = instead(7, fact(pe.WaveStarted, 6, 3.0, wave=3, tasks=1))
    assert "wave 3 started after wave 1" in str(judged_with(third).disorder)
    again = instead(6, fact(pe.WaveEnded, 5, 2.0, wave=2, completed=1, failed=0))
    assert "wave 2 ended in wave 1" in str(judged_with(again).disorder)


def test_a_soak_that_was_cut_short_is_disorder() -> None:
    events = instead(7, fact(pe.WaveStarted, 6, 2.5, wave=2, tasks=1))
    assert "after a soak of 0.500 s" in str(judged_with(events).disorder)


def test_a_retry_goes_back_to_the_first_wave_of_those_that_failed() -> None:
    by = By(actor="operator")
    events = [
        *EVENTS[:5],
        moved(5, 1.9, (0, M.FAILED)),
        fact(pe.PlanRetried, 6, 1.95, by=by, tasks=1),
        moved(7, 1.96, (0, M.ADMITTED)),
        moved(8, 2.0, (0, M.COMPLETED)),
        fact(pe.WaveEnded, 8, 2.0, wave=1, completed=1, failed=0),
        fact(pe.WaveStarted, 9, 3.0, wave=2, tasks=1),
        moved(10, 3.1, (1, M.ADMITTED)),
        moved(11, 4.0, (1, M.COMPLETED)),
    ]
    plan = msgspec.structs.replace(PLAN, version=11)
    assert judged(events=events, plan=plan).complaints == []


def test_a_gap_in_a_plan_s_versions_is_disorder() -> None:
    assert "are not 1 to 8" in str(judged_with(without(4)).disorder)


def test_members_that_are_not_what_the_events_say_are_disorder() -> None:
    assert "not what its events say" in str(judged(members={0: Member(M.COMPLETED)}).disorder)


# -- drivers


def test_one_fence_for_two_drivers_is_a_complaint() -> None:
    twin = LedgerEntry(LineKind.DRIVES, 3.0, "w3", "p", fence=2)
    assert "fence 2 was handed to" in str(judged_beside(lines=[*LINES, twin]).two_drivers)


def test_a_write_of_a_driver_that_was_taken_over_is_a_complaint() -> None:
    zombie = LedgerEntry(LineKind.WROTE, 3.5, "w1", "p", "7", fence=1)
    assert "written under fence 1, after 2" in str(
        judged_beside(lines=[*LINES, zombie]).two_drivers
    )
    twin = LedgerEntry(LineKind.WROTE, 3.5, "w1", "p", "6", fence=1)
    assert "under the fences 1 and 2" in str(judged_beside(lines=[*LINES, twin]).two_drivers)
