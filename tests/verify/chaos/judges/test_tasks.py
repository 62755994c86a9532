"""The judge of chaos: the proof that it can say no. Chaos itself is in test_chaos_running."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast import Status
from holdfast.domain.task import events as ev
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from verify.chaos.judges.tasks import History, judge
from verify.chaos.ledger import Ledger, LedgerEntry, LineKind, has_begun, is_inside, read

STAGES = ("pack", "ship")
LEASE_SECONDS = 1.0


# -- a small history that is as it should be: one kill, one take-over


def line(kind: LineKind, at: float, stage: str, fence: int, *, task: str = "t1") -> LedgerEntry:
    return LedgerEntry(kind, at, f"w{fence}", task, f"{task}/1/{stage}", fence)


def effect(
    stage: str, fence: int, begin: float, end: float, *, task: str = "t1"
) -> list[LedgerEntry]:
    return [
        line(LineKind.BEGIN, begin, stage, fence, task=task),
        line(LineKind.END, end, stage, fence),
    ]


def started(version: int, at: float, fence: int, *, task: str = "t1") -> Event:
    return ev.TaskStarted(task_id=task, version=version, at=at, worker=f"w{fence}", fence=fence)


def completed(version: int, at: float, stage: str, *, task: str = "t1") -> Event:
    return ev.StageCompleted(
        task_id=task, version=version, at=at, stage=stage, run=1, epoch=1, duration_seconds=0.1
    )


EVENTS: tuple[Event, ...] = (
    ev.TaskCreated(task_id="t1", version=1, at=0.0, type="parcel", tenant="acme"),
    started(2, 1.0, 7),
    completed(3, 1.2, "pack"),
    ev.LeaseLost(task_id="t1", version=4, at=2.5, worker="w7", fence=7),
    started(5, 2.6, 8),
    completed(6, 2.8, "ship"),
    ev.TaskCompleted(task_id="t1", version=6, at=2.8),
)
TASK = Task(
    id="t1",
    type="parcel",
    tenant="acme",
    stages=STAGES,
    created_at=0.0,
    status=Status.COMPLETED,
    status_since=2.8,
    updated_at=2.8,
    version=6,
    last_completed=1,
)
GOOD = History(
    expected={"order-1": Status.COMPLETED},
    records={"t1": (TASK, EVENTS)},
    lines=[
        LedgerEntry(LineKind.ACK, 0.0, "submitter", "t1", "order-1"),
        *effect("pack", 7, 1.0, 1.2),
        LedgerEntry(LineKind.BEAT, 1.35, "w7", asked=1.3),
        *effect("ship", 8, 2.6, 2.8),
    ],
    findings=[],
    lease_seconds=LEASE_SECONDS,
)


def with_events(*events: Event) -> History:
    last = replace_version(TASK, max(event.version for event in events))
    return replace(GOOD, records={"t1": (last, events)})


def replace_version(task: Task, version: int) -> Task:
    return msgspec.structs.replace(task, version=version)


def test_the_judge_finds_nothing_wrong_where_nothing_is() -> None:
    verdict = judge(GOOD)
    assert verdict.complaints == []
    assert (verdict.tasks, verdict.stages) == (1, 2)


def test_a_take_over_is_timed_from_the_end_of_the_lease_that_was_renewed_last() -> None:
    verdict = judge(GOOD)
    assert verdict.swept == pytest.approx([0.2])
    assert verdict.taken_over == pytest.approx([0.3])


def test_a_beat_without_an_answer_may_have_renewed_the_lease() -> None:
    unanswered = LedgerEntry(LineKind.UNANSWERED, 1.45, "w7", asked=1.4)
    assert judge(replace(GOOD, lines=[*GOOD.lines, unanswered])).swept == pytest.approx([0.05])


def test_a_late_sweep_is_counted_unless_the_store_stood_still() -> None:
    late = [*EVENTS[:3], msgspec.structs.replace(EVENTS[3], at=5.5), started(5, 5.6, 8)]
    beats = [LedgerEntry(LineKind.BEAT, 2.0 + n / 2, "w9", asked=2.0 + n / 2) for n in range(8)]
    history = with_events(*late)
    assert judge(history).late == 0
    assert judge(replace(history, lines=[*history.lines, *beats])).late == 1


def test_a_task_that_was_accepted_and_is_gone_is_lost() -> None:
    assert "not in the store" in str(judge(replace(GOOD, records={})).lost)


def test_a_task_that_did_not_end_as_it_should_is_lost() -> None:
    assert "should be CANCELLED" in str(
        judge(replace(GOOD, expected={"order-1": Status.CANCELLED})).lost
    )


def test_a_submit_that_was_never_answered_is_lost() -> None:
    lines = [one for one in GOOD.lines if one.kind is not LineKind.ACK]
    assert "0 tasks were answered" in str(judge(replace(GOOD, lines=lines)).lost)


def test_one_key_that_made_two_tasks_is_a_complaint() -> None:
    again = LedgerEntry(LineKind.ACK, 3.0, "submitter", "t2", "order-1")
    assert "2 tasks were answered" in str(judge(replace(GOOD, lines=[*GOOD.lines, again])).lost)


def test_a_stage_committed_twice_is_a_double_commit() -> None:
    twice = [*EVENTS[:5], completed(6, 2.7, "pack"), completed(7, 2.8, "ship")]
    assert "t1/1/pack was committed 2 times" in judge(with_events(*twice)).double


def test_a_second_claim_under_a_lease_that_was_not_lost_makes_two_owners() -> None:
    assert judge(with_events(*EVENTS[:3], started(4, 1.5, 8), *EVENTS[5:])).two_owners


def test_a_commit_that_nobody_held_makes_two_owners() -> None:
    late = completed(7, 3.0, "ship")
    assert "nobody held it" in str(judge(with_events(*EVENTS, late)).two_owners)


def test_a_commit_whose_effect_was_another_fences_makes_two_owners() -> None:
    zombie = [*GOOD.lines[:4], *effect("ship", 7, 1.3, 2.7)]
    assert "which never did it" in str(judge(replace(GOOD, lines=zombie)).two_owners)


def test_two_tasks_of_one_tenant_at_once_make_two_owners() -> None:
    other = replace_version(TASK, 3)
    told: Sequence[Event] = (
        ev.TaskCreated(task_id="t1", version=1, at=0.0, type="parcel", tenant="acme"),
        started(2, 2.7, 9),
        ev.TaskCompleted(task_id="t1", version=3, at=2.9),
    )
    records = {**GOOD.records, "t2": (other, told)}
    assert "fence 9" in str(judge(replace(GOOD, records=records)).two_owners)


def test_committed_effects_that_overlap_by_the_ledger_make_two_owners() -> None:
    slow = [*GOOD.lines[:1], *effect("pack", 7, 1.0, 2.7), *GOOD.lines[4:]]
    assert "before t1/1/pack ended" in str(judge(replace(GOOD, lines=slow)).two_owners)


def test_a_gap_in_the_versions_is_disorder() -> None:
    assert judge(with_events(*EVENTS[:2], *EVENTS[3:])).disorder


def test_stages_out_of_order_are_disorder() -> None:
    swapped = [*EVENTS[:2], completed(3, 1.2, "ship"), *EVENTS[3:5], completed(6, 2.8, "pack")]
    assert judge(with_events(*swapped)).disorder


def test_what_the_doctor_finds_is_a_complaint() -> None:
    finding = Finding(invariant="I1", task_id="t1", message="is nowhere", mended=False)
    assert judge(replace(GOOD, findings=[finding])).doctor


# -- the ledger


def test_a_ledger_is_read_back_without_the_line_that_a_kill_cut_off(tmp_path: Path) -> None:
    assert not has_begun(tmp_path, "w1")
    Ledger(tmp_path, "w1").write(LineKind.BEGIN, task="t1", key="t1/1/pack", fence=7)
    with (tmp_path / "w1.ledger").open("ab") as file:
        file.write(b'["beat",1.0,')
    assert [one.kind for one in read(tmp_path)] == [LineKind.BEGIN]
    assert has_begun(tmp_path, "w1")


def test_a_worker_is_inside_while_it_has_begun_more_than_it_has_left(tmp_path: Path) -> None:
    book = Ledger(tmp_path, "w1")
    told = []
    for kind in (LineKind.BEGIN, LineKind.BEGIN, LineKind.END, LineKind.BEAT, LineKind.STOPPED):
        book.write(kind)
        told.append(is_inside(tmp_path, "w1"))
    assert told == [True, True, True, True, False]
