"""The decisions that the holder of a task may make, as a model's test draws them."""

from collections.abc import Callable

import msgspec

from holdfast.domain.task import decide
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, FailureKind, Task
from holdfast.domain.task.transition import Transition

Decision = Callable[[Task, Checkpoint | None, float], Transition]


def done(task: Task) -> decide.Done:
    result = msgspec.json.encode([task.id, task.version])
    return decide.Done(
        result=result, data={"at": task.version}, started_at=0.0, duration_seconds=0.25
    )


def failed(task: Task, retry_seconds: float | None, now: float) -> decide.Failed:
    failure = Failure(
        kind=FailureKind.STAGE, error="E", message="m", stage="s", attempt=task.attempt, at=now
    )
    return decide.Failed(failure=failure, started_at=0.0, retry_seconds=retry_seconds)


def finish(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    if task.last_completed + 1 == len(task.stages) - 1:
        return decide.complete(task, done(task), now=now)
    return decide.stage_done(task, done(task), checkpoint=checkpoint, now=now)


def fail(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    if task.status is Status.ROLLING_BACK:
        return decide.undo_failed(task, failed(task, 10.0, now), Retry(), now=now)
    gone_wrong = failed(task, 10.0, now)
    return decide.stage_failed(task, gone_wrong, Retry(), checkpoint=checkpoint, now=now)


def fail_for_good(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    if task.status is Status.ROLLING_BACK:
        return decide.undo_failed(task, failed(task, None, now), Retry(), now=now)
    gone_wrong = failed(task, None, now)
    return decide.stage_failed(task, gone_wrong, Retry(), checkpoint=checkpoint, now=now)


def meet_request(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    return decide.boundary(task, now=now)


def start_over(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    return decide.start_over(task, "invalid", now=now)


def give_back(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    return decide.give_back(task, "stopping", now=now, interrupted=False)


def give_back_for_a_while(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    return decide.give_back(task, "unknown", now=now, interrupted=True, delay_seconds=5.0)


def undo(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
    if task.next_undo < 0:
        return decide.rolled_back(task, now=now)
    return decide.stage_undone(task, had_undo=False, data={"u": 1}, duration_seconds=0.0, now=now)


HOLDER: list[Decision] = [
    finish,
    fail,
    fail_for_good,
    meet_request,
    start_over,
    give_back,
    give_back_for_a_while,
    undo,
]
