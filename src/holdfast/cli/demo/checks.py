"""The demo counts, from the store's own records and events, whether its promises were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from holdfast.domain.task import events as ev
from holdfast.domain.task.events import Event
from holdfast.domain.task.state import Status
from holdfast.ports import Detail, Finding

E = TypeVar("E", bound=Event)


@dataclass(slots=True, kw_only=True)
class StoryRecord:
    """The demo's own record of what it did and saw, to be compared with the store."""

    submitted: list[str] = field(default_factory=list)  # task ids, as they were answered
    killed: list[str] = field(default_factory=list)  # owners of leases whose process was killed
    in_hand: list[str] = field(default_factory=list)  # task ids that the killed processes held
    resumed: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """One promise, what was counted for it in the store, and whether it was kept."""

    what: str
    counted: object
    good: bool


def judge(
    record: StoryRecord, details: Sequence[Detail], findings: Sequence[Finding]
) -> list[DemoCheck]:
    by_id = {detail.task.id: detail for detail in details}
    ends = Counter(detail.task.status for detail in details)
    lost = [task_id for task_id in record.submitted if task_id not in by_id]
    failed = _events_of(details, ev.StageFailed)
    retries = len(_events_of(details, ev.TaskRetryScheduled))
    take_overs = {
        event.task_id
        for event in _events_of(details, ev.LeaseLost)
        if event.worker in record.killed and event.task_id in record.in_hand
    }
    twice = [key for key, times in Counter(_commits(details)).items() if times > 1]
    at_checkpoint, resumed_later = _count_continued(
        [d for d in details if d.task.id in record.in_hand]
    )
    resumed = [by_id[i] for i in record.resumed if i in by_id]
    undone = [_undone_stages(by_id[i]) for i in record.rolled_back if i in by_id]
    settled = ends[Status.COMPLETED] + ends[Status.ROLLED_BACK]
    return [
        DemoCheck(
            "tasks submitted", len(record.submitted), len(record.submitted) == len(details) > 0
        ),
        DemoCheck(
            "tasks settled",
            f"{settled} ({ends[Status.COMPLETED]} completed, "
            f"{ends[Status.ROLLED_BACK]} rolled back)",
            settled == len(record.submitted)
            and ends[Status.ROLLED_BACK] == len(record.rolled_back),
        ),
        DemoCheck("tasks lost", len(lost), not lost),
        DemoCheck("stages committed", len(_commits(details)), _all_stages_are_there(details)),
        DemoCheck("stages committed twice", len(twice), not twice),
        DemoCheck("retries while billing was down", retries, 0 < retries <= len(failed)),
        DemoCheck(
            "take-overs after kill -9",
            len(take_overs),
            len(take_overs) > 0 and take_overs == set(record.in_hand),
        ),
        DemoCheck(
            "  continued from their checkpoint",
            f"{at_checkpoint} of {resumed_later}",
            at_checkpoint == resumed_later > 0,
        ),
        DemoCheck(
            "suspended, resumed, completed",
            len(resumed),
            len(resumed) > 0 and all(d.task.status is Status.COMPLETED for d in resumed),
        ),
        DemoCheck(
            "rolled back, last stage first",
            "; ".join(" ← ".join(reversed(stages)) for stages, _ in undone),
            len(undone) > 0 and all(in_order for _, in_order in undone),
        ),
        DemoCheck(
            "tasks whose events have no gap", _gapless(details), _gapless(details) == len(details)
        ),
        DemoCheck("findings of the doctor", len(findings), not findings),
    ]


def exit_code(checks: Sequence[DemoCheck]) -> int:
    return 0 if all(check.good for check in checks) else 1


def _events_of(details: Sequence[Detail], kind: type[E]) -> list[E]:
    return [event for detail in details for event in detail.events if isinstance(event, kind)]


def _commits(details: Sequence[Detail]) -> list[tuple[str, int, str]]:
    return [(e.task_id, e.epoch, e.stage) for e in _events_of(details, ev.StageCompleted)]


def _all_stages_are_there(details: Sequence[Detail]) -> bool:
    return all(
        tuple(e.stage for e in _events_of([detail], ev.StageCompleted)) == detail.task.stages
        for detail in details
        if detail.task.status is Status.COMPLETED
    )


def _count_continued(details: Sequence[Detail]) -> tuple[int, int]:
    """Count the tasks that lost their worker after a commit, and those of them that continued with
    the next stage.
    """
    good = total = 0
    for detail in details:
        forward = list(takewhile(lambda e: not isinstance(e, ev.TaskRollingBack), detail.events))
        lost_at = next((n for n, e in enumerate(forward) if isinstance(e, ev.LeaseLost)), None)
        if lost_at is None:
            continue
        before = _stages(forward[:lost_at], ev.StageCompleted)
        after = _stages(forward[lost_at:], ev.StageStarted)
        if before:
            total += 1
            good += after[:1] == [detail.task.stages[len(before)]]
    return good, total


def _stages(events: Sequence[Event], kind: type[ev.StageCompleted | ev.StageStarted]) -> list[str]:
    return [event.stage for event in events if isinstance(event, kind)]


def _undone_stages(detail: Detail) -> tuple[list[str], bool]:
    """Return the undone stages, and whether they are all completed stages in reverse order."""
    done = _stages(detail.events, ev.StageCompleted)
    undone = [e.stage for e in _events_of([detail], ev.StageUndone) if e.had_undo]
    expected = list(reversed(detail.task.stages[: len(done)]))
    return undone, undone == expected and detail.task.status is Status.ROLLED_BACK


def _gapless(details: Sequence[Detail]) -> int:
    return sum(
        sorted({event.version for event in detail.events})
        == list(range(1, detail.task.version + 1))
        for detail in details
    )
