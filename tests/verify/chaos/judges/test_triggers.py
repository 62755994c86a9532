"""Chaos over triggers: in short, with real processes and clocks that jump; and its judge."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast import Status
from holdfast.domain.task.task import Task
from holdfast.domain.trigger.schedule import Every, Once
from holdfast.domain.trigger.trigger import Misfire, Overlap, Trigger, TriggerStatus
from holdfast.ports import Finding
from tests.support.verify.chaos_runs import STORES, run_chaos
from verify.chaos.clocks import JUMP_SECONDS, PACE, JumpingClock
from verify.chaos.judges.triggers import TriggerHistory, judge_triggers
from verify.chaos.ledger import Ledger, LedgerEntry, LineKind, is_inside


@pytest.mark.parametrize("store", STORES)
def test_triggers_fire_once_for_each_time_under_kills_freezes_and_jumping_clocks(
    store: str,
) -> None:
    harm = f"--only triggers --kills 12 --zombies 3 --seconds 600 --seed 7 {STORES[store]}"
    run_chaos(harm)


# -- a small history that is as it should be: three fire times, one of them missed

START = 1000.0


def tick(at: int, *, status: Status = Status.COMPLETED, task_id: str = "") -> Task:
    key = f"tick@1970-01-01T00:16:{at:02d}Z"
    return Task(
        id=task_id or f"t{at}",
        type="tick",
        key=key,
        stages=("tick",),
        created_at=START,
        status=status,
        status_since=START,
        updated_at=START,
    )


TRIGGER = Trigger(
    id="tick",
    schedule=Every(seconds=1.0, start=START),
    target="tick",
    created_at=START - 5,
    updated_at=START + 3,
    fire_time=START + 3,  # …:43
    trigger_at=None,
    status=TriggerStatus.PAUSED,
    fired=2,
    missed=1,
    last_task="t42",
)
TASKS = [tick(40), tick(42)]
GOOD = TriggerHistory(
    names=["tick"],
    triggers=[TRIGGER],
    tasks=TASKS,
    lines=[LedgerEntry(LineKind.ACK, 0.0, "submitter", "tick", "tick")],
    findings=[],
)


def with_trigger(**changes: object) -> TriggerHistory:
    return replace(GOOD, triggers=[msgspec.structs.replace(TRIGGER, **changes)])


def with_tasks(*tasks: Task, **changes: object) -> TriggerHistory:
    return replace(with_trigger(**changes), tasks=tasks)


def said(found: Sequence[str]) -> str:
    return " | ".join(found)


def test_the_judge_of_triggers_finds_nothing_wrong_where_nothing_is() -> None:
    verdict = judge_triggers(GOOD)
    assert verdict.complaints == []
    assert (verdict.fire_times, verdict.tasks, verdict.missed) == (3, 2, 1)


def test_two_tasks_for_one_fire_time_are_a_complaint() -> None:
    again = with_tasks(*TASKS, tick(42, task_id="twin"), fired=3, missed=0)
    assert "2 tasks for the fire time" in said(judge_triggers(again).doubled)


def test_a_task_that_its_trigger_has_not_counted_is_a_complaint() -> None:
    more = with_tasks(*TASKS, tick(41), missed=0)
    assert "says 2 tasks, and there are 3" in said(judge_triggers(more).miscounted)


def test_a_task_that_was_counted_and_is_not_there_is_a_complaint() -> None:
    verdict = judge_triggers(with_tasks(tick(42)))
    assert "says 2 tasks, and there are 1" in said(verdict.miscounted)
    assert "1 tasks, 1 missed" in said(verdict.unanswered)


def test_a_task_for_no_fire_time_is_a_complaint() -> None:
    early = with_tasks(*TASKS, tick(43), fired=3, missed=0)
    assert "has not answered for" in said(judge_triggers(early).miscounted)


def test_a_fire_time_that_made_no_task_and_was_not_missed_is_a_complaint() -> None:
    assert "2 tasks, 0 missed" in said(judge_triggers(with_trigger(missed=0)).unanswered)


def test_one_that_catches_up_misses_nothing() -> None:
    missed = with_trigger(misfire=Misfire.CATCH_UP)
    assert "catches up" in said(judge_triggers(missed).unanswered)
    waits = with_trigger(misfire=Misfire.CATCH_UP, overlap=Overlap.SKIP)
    assert judge_triggers(waits).complaints == []


def test_one_that_fires_once_and_has_fired_is_over() -> None:
    once = {"schedule": Once(at=START + 2), "missed": 0, "fired": 1}
    over = with_tasks(tick(42), **once, fire_time=None, status=TriggerStatus.COMPLETED)
    assert judge_triggers(over).complaints == []
    goes_on = with_tasks(tick(42), **once, fire_time=None)
    assert "waits for None" in said(judge_triggers(goes_on).miscounted)


def test_a_trigger_that_was_answered_and_is_gone_is_lost() -> None:
    gone = judge_triggers(replace(GOOD, triggers=[]))
    assert "is there 0 times" in said(gone.lost)
    assert "was answered and is not in the store" in said(gone.lost)
    assert "is there 2 times" in said(judge_triggers(replace(GOOD, triggers=[TRIGGER] * 2)).lost)


def test_a_task_that_ended_as_none_should_or_is_gone_is_lost() -> None:
    failed = with_tasks(TASKS[0], tick(42, status=Status.FAILED))
    assert "is FAILED" in said(judge_triggers(failed).lost)
    assert "its last task" in said(judge_triggers(with_trigger(last_task="t99")).lost)


def test_a_round_in_which_nothing_fires_proves_nothing() -> None:
    idle = with_tasks(fired=0, missed=3, last_task=None)
    assert "proves nothing" in said(judge_triggers(idle).lost)


def test_what_the_doctor_finds_of_triggers_is_a_complaint() -> None:
    finding = Finding(invariant="T1", task_id=None, message="is in no list", mended=False)
    assert judge_triggers(replace(GOOD, findings=[finding])).doctor


# -- the clock, and when a scheduler is struck


def test_a_jumping_clock_is_off_by_minutes_and_follows_from_its_seed() -> None:
    real = 1_000_000.0
    first, again = (JumpingClock("w1", seed=7, real=lambda: real, began=real) for _ in range(2))
    other = JumpingClock("w2", seed=7, real=lambda: real, began=real)
    assert first.now() == again.now() != other.now()
    assert abs(first.now() - real) <= JUMP_SECONDS


def test_a_jumping_clock_goes_forward_and_back_and_tells_of_it() -> None:
    told: list[float] = []
    at = [0.0]
    clock = JumpingClock("w1", seed=7, real=lambda: at[0], began=0.0)
    clock.on_jump = told.append
    for second in range(60):
        at[0] = float(second)
        assert abs(clock.now() - (1 + PACE) * second) <= JUMP_SECONDS
    assert min(told) < -60 < 60 < max(told)


def test_a_scheduler_is_inside_while_it_holds_triggers(tmp_path: Path) -> None:
    book = Ledger(tmp_path, "w1")
    told = []
    for kind in (LineKind.BEAT, LineKind.TAKEN, LineKind.TAKEN_OVER, LineKind.LET_GO):
        book.write(kind)
        told.append(is_inside(tmp_path, "w1"))
    assert told == [False, True, True, False]
