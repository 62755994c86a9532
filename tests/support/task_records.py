"""Records and facts for the tests of the domain."""

from typing import Any

import msgspec

from holdfast.domain.task import decide
from holdfast.domain.task.decide import Done, Failed
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import SETTLED, Status
from holdfast.domain.task.task import By, Failure, FailureKind, Lease, Task
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger.schedule import Every
from holdfast.domain.trigger.trigger import LEASE as TRIGGER_LEASE
from holdfast.domain.trigger.trigger import PENDING, UNFINISHED, Trigger, TriggerStatus

NOW = 1_700_000_000.0
BY = By(actor="ada", origin="cli", reason="because")
ASK = OperatorRequest(by=BY, now=NOW + 60, request="request-1")
LEASE = Lease(owner="w-1", fence=3, id="lease-1", until=NOW + 30)


def task(status: Status = Status.PENDING, **fields: Any) -> Task:
    defaults: dict[str, Any] = {
        "id": "task-1",
        "type": "tenant.upgrade",
        "tenant": "t-1",
        "stages": ("one", "two", "three"),
        "workflow": True,
        "created_at": NOW,
        "status": status,
        "status_since": NOW,
        "updated_at": NOW,
        "settled_at": NOW if status in SETTLED else None,
        "version": 4,
    }
    return Task(**(defaults | fields))


def held(status: Status = Status.RUNNING, **fields: Any) -> Task:
    return task(status, **({"lease": LEASE, "fence": 3, "place": Place.LEASED} | fields))


def done(result: object = "ok", **data: object) -> Done:
    return Done(
        result=msgspec.json.encode(result), data=data, started_at=NOW + 5, duration_seconds=2.5
    )


def failure(**fields: Any) -> Failure:
    defaults: dict[str, Any] = {
        "kind": FailureKind.STAGE,
        "error": "ValueError",
        "message": "no luck",
        "stage": "one",
        "attempt": 1,
        "at": NOW + 7,
        "traceback": "Traceback …",
    }
    return Failure(**(defaults | fields))


def failed(retry_seconds: float | None = 60.0, **fields: Any) -> Failed:
    return Failed(failure=failure(**fields), started_at=NOW + 5, retry_seconds=retry_seconds)


def trigger(status: TriggerStatus = TriggerStatus.PENDING, **fields: Any) -> Trigger:
    is_held = status in TRIGGER_LEASE.values()
    fire_time = NOW + 3_600 if status in UNFINISHED else None
    defaults: dict[str, Any] = {
        "id": "nightly",
        "schedule": Every(seconds=3_600.0, start=NOW),
        "target": "mail.send",
        "created_at": NOW,
        "status": status,
        "version": 4,
        "fire_time": fire_time,
        "trigger_at": fire_time if status in PENDING else None,
        "updated_at": NOW,
        "ended_at": None if status in UNFINISHED else NOW,
        "owner": "w-1" if is_held else None,
        "lease_until": NOW + 30 if is_held else None,
    }
    return Trigger(**(defaults | fields))


def submission(task_id: str) -> Submission:
    return decide.submit(task(id=task_id), b"null", "")
