"""The timeline of a task: its runs, and each call of a stage with times, outcome and result."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.notification import OUTCOMES
from holdfast.domain.task import events as ev
from holdfast.domain.task.task import Failure
from holdfast.ports import Detail


class StageCall(msgspec.Struct, kw_only=True):
    """One call of a stage's function, or of its undo."""

    stage: str
    attempt: int
    outcome: str  # one of OUTCOMES in `runtime/worker/meter.py`, or "lost" or "running"
    started_at: float | None
    ended_at: float | None
    worker: str | None
    fence: int | None
    duration_seconds: float | None = None
    result: bytes | None = None
    failure: Failure | None = None


class TimelineMark(msgspec.Struct, kw_only=True):
    """Another event in the life of a task: a request by a person, or a wait."""

    at: float
    version: int
    event: ev.Event


class TaskRun(msgspec.Struct, kw_only=True):
    """One run: from a start, retry or rollback until the task stops."""

    run: int
    started_at: float
    ended_at: float | None = None
    ended_as: str | None = None  # the event that ended it
    calls: list[StageCall] = []
    marks: list[TimelineMark] = []


_STARTS_RUN = (ev.TaskRetried, ev.TaskRollingBack, ev.CheckpointDiscarded)
_ENDS_RUN = (*OUTCOMES, ev.TaskPaused)


def timeline(detail: Detail) -> list[TaskRun]:
    """Return the runs of a task."""
    return _TimelineBuilder(detail).build()


class _TimelineBuilder:
    def __init__(self, detail: Detail) -> None:
        self._detail = detail
        self._results = {(stage.name, stage.run): stage.result for stage in detail.stages}
        self._runs: list[TaskRun] = []
        self._worker: str | None = None
        self._fence: int | None = None
        self._begun: ev.StageStarted | None = None
        self._since: float | None = None  # when the holder began the present stage
        self._completed = 0  # number of completed stages
        self._goes_back = False
        self._failed = 0  # failures of the present stage in a row

    def build(self) -> list[TaskRun]:
        for event in self._detail.events:
            self._add(event)
        task = self._detail.task
        if task.lease is not None:
            self._call(
                stage=task.at_stage or self._stage(),
                attempt=task.attempt,
                outcome="running",
                started_at=self._since,
                ended_at=None,
            )
        return self._runs

    def _add(self, event: ev.Event) -> None:
        if isinstance(event, _STARTS_RUN) or not self._runs:
            self._runs.append(TaskRun(run=len(self._runs) + 1, started_at=event.at))
        match event:
            case ev.TaskStarted():
                self._worker, self._fence, self._since = event.worker, event.fence, event.at
            case ev.StageStarted():
                self._begun = event
            case ev.StageCompleted():
                self._close_call(event, event.stage, "done", event.duration_seconds, run=event.run)
            case ev.StageFailed():
                self._close_call(event, event.failure.stage, "failed", failure=event.failure)
            case ev.StageUndone():
                self._close_call(event, event.stage, "undone", event.duration_seconds)
            case ev.StageUndoFailed():
                self._close_call(event, event.failure.stage, "undo-failed", failure=event.failure)
            case ev.TaskSnoozed():
                self._close_call(event, event.stage, "snoozed")
            case ev.TaskRetryScheduled() if event.outages:
                self._note_outage(event)
            case ev.LeaseLost():
                self._close_lost_call(event)
            case _:
                self._mark(event)
        self._follow(event)

    def _note_outage(self, event: ev.TaskRetryScheduled) -> None:
        """Correct the outcome of the last call: it met an outage, which is no failure."""
        calls = self._runs[-1].calls
        if calls:
            calls[-1].outcome = "undo-outage" if self._goes_back else "outage"
        self._mark(event)

    def _follow(self, event: ev.Event) -> None:
        """Keep track of the next stage, and of how often it has failed."""
        match event:
            case ev.StageCompleted() | ev.StageUndone():
                self._completed += -1 if self._goes_back else 1
                self._failed, self._since = 0, event.at
            case ev.StageFailed() | ev.StageUndoFailed():
                self._failed += 1
            case ev.TaskRetryScheduled():
                self._failed = event.failures
            case ev.LeaseLost():
                self._failed += event.counted
            case ev.TaskRollingBack():
                self._goes_back, self._failed = True, 0
                names = self._detail.task.stages  # a stage that failed half-way is undone, too
                if event.from_stage in names:
                    self._completed = names.index(event.from_stage) + 1
            case ev.TaskRetried():
                self._goes_back, self._failed = False, 0
                self._completed = self._completed if event.from_checkpoint else 0
            case ev.CheckpointDiscarded():
                self._completed = self._failed = 0

    def _stage(self) -> str:
        names, at = self._detail.task.stages, self._completed - self._goes_back
        return names[at] if 0 <= at < len(names) else ""

    def _close_lost_call(self, event: ev.LeaseLost) -> None:
        """Add the call of a lost lease: no event says what its holder did at this stage."""
        self._call(
            stage=self._stage(),
            attempt=self._failed + 1,
            outcome="lost",
            started_at=self._since,
            ended_at=event.at,
        )

    def _mark(self, event: ev.Event) -> None:
        run = self._runs[-1]
        run.marks.append(TimelineMark(at=event.at, version=event.version, event=event))
        if isinstance(event, _ENDS_RUN):
            run.ended_at, run.ended_as = event.at, ev.name_of(event)
        else:
            run.ended_at = run.ended_as = None  # a pause that was lifted

    def _close_call(
        self,
        event: ev.Event,
        stage: str,
        outcome: str,
        seconds: float | None = None,
        *,
        failure: Failure | None = None,
        run: int | None = None,
    ) -> None:
        begun, self._begun = self._begun, None
        started = begun.at if begun is not None else None
        if started is None and seconds is not None:
            started = event.at - seconds
        if seconds is None and started is not None:
            seconds = max(0.0, event.at - started)
        self._call(
            stage=stage,
            attempt=begun.attempt if begun else (failure.attempt if failure else 1),
            outcome=outcome,
            started_at=started,
            ended_at=event.at,
            duration_seconds=seconds,
            failure=failure,
            result=self._results.get((stage, run)) if run is not None else None,
        )

    def _call(self, **facts: Any) -> None:
        self._runs[-1].calls.append(StageCall(worker=self._worker, fence=self._fence, **facts))
