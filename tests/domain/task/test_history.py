"""The transitions of a task are told from its events, with who made each."""

from typing import Any

import pytest

from holdfast.domain.task import events as ev
from holdfast.domain.task.history import ACCOMPANYING, COMMANDS, REQUESTS, Maker, steps
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By
from tests.support.task_records import failure, task

ANN = By(actor="api:ann", origin="10.0.0.7", reason="lunch")
PLAN = By(actor="plan:upgrade-7")


Made = tuple[type[ev.Event], dict[str, Any]]


def events(*made: Made) -> list[ev.Event]:
    numbered = enumerate(made, 1)
    return [kind(task_id="t", at=float(n), version=n, **facts) for n, (kind, facts) in numbered]


def told(*made: Made, **facts: Any) -> list[tuple[str, ...]]:
    found = steps(task(Status.PENDING, **facts), events(*made))
    return [(s.command, s.before or "-", s.after, s.maker, s.name) for s in found]


CREATED: Made = (ev.TaskCreated, {"type": "x"})
STARTED: Made = (ev.TaskStarted, {"worker": "w-1", "fence": 1})


@pytest.mark.parametrize("kind", ev.KINDS.values(), ids=ev.KINDS)
def test_every_event_has_a_command_is_a_request_or_stands_beside_another(
    kind: type[ev.Event],
) -> None:
    assert sum(kind in known for known in (COMMANDS, REQUESTS, ACCOMPANYING)) == 1


def test_a_life_is_told_with_who_made_each_step() -> None:
    assert told(
        CREATED,
        STARTED,
        (ev.StageCompleted, {"stage": "a", "run": 1, "epoch": 1, "duration_seconds": 1.0}),
        (ev.PauseRequested, {"by": ANN}),
        (ev.TaskPaused, {"reason": "lunch"}),
        (ev.TaskResumed, {"by": ANN}),
        (ev.TaskStarted, {"worker": "w-2", "fence": 2}),
        (ev.LeaseLost, {"worker": "w-2", "fence": 2}),
        (ev.TaskStarted, {"worker": "w-3", "fence": 3}),
        (ev.TaskCompleted, {}),
        (ev.TaskRollingBack, {"by": ANN}),
    ) == [
        ("submit", "-", Status.PENDING, Maker.CLIENT, ""),
        (Command.START, Status.PENDING, Status.RUNNING, Maker.WORKER, "w-1"),
        (Command.CHECKPOINT, Status.RUNNING, Status.RUNNING, Maker.WORKER, "w-1"),
        (Command.PAUSE, Status.RUNNING, Status.RUNNING, Maker.OPERATOR, "api:ann"),
        (Command.PAUSE, Status.RUNNING, Status.PAUSED, Maker.WORKER, "w-1"),
        (Command.RESUME, Status.PAUSED, Status.PENDING, Maker.OPERATOR, "api:ann"),
        (Command.START, Status.PENDING, Status.RUNNING, Maker.WORKER, "w-2"),
        (Command.LOSE, Status.RUNNING, Status.PENDING, Maker.STORE, "w-2"),
        (Command.START, Status.PENDING, Status.RUNNING, Maker.WORKER, "w-3"),
        (Command.COMPLETE, Status.RUNNING, Status.COMPLETED, Maker.WORKER, "w-3"),
        (Command.ROLLBACK, Status.COMPLETED, Status.ROLLING_BACK, Maker.OPERATOR, "api:ann"),
    ]


def test_a_plan_makes_its_tasks_and_releases_them() -> None:
    made = told(CREATED, (ev.TaskReleased, {"by": PLAN}), STARTED, plan="upgrade-7")
    assert made[:2] == [
        ("submit", "-", Status.CREATED, Maker.PLAN, "upgrade-7"),
        (Command.RELEASE, Status.CREATED, Status.PENDING, Maker.PLAN, "upgrade-7"),
    ]


def test_a_trigger_is_known_by_the_key_of_its_task() -> None:
    assert told(CREATED, key="nightly@2026-01-31T03:00:00Z")[0][3:] == (Maker.TRIGGER, "nightly")
    assert told(CREATED, key="nightly@home")[0][3] == Maker.CLIENT


def test_the_events_of_one_version_are_one_step_with_its_reason() -> None:
    facts: dict[str, Any] = {"task_id": "t", "version": 3, "at": 3.0}
    made: list[ev.Event] = [
        *events(CREATED, STARTED),
        ev.StageStarted(stage="a", attempt=1, run=1, **facts),
        ev.StageFailed(failure=failure(), run=1, **facts),
        ev.TaskFailedEvent(failure=failure(), **facts),
    ]
    last = steps(task(Status.FAILED), made)[-1]
    assert (last.command, last.after) == (Command.FAIL, Status.FAILED)
    assert last.reason == failure().summary
