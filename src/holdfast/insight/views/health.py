"""The JSON views of health: of the service itself, and the doctor's report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired

from pydantic import Field

from holdfast.domain.plan.plan import PlanStatus
from holdfast.insight.views import fields
from holdfast.insight.views.view import TypedDict, View, about, example
from holdfast.insight.views.workers import WorkerHealth, WorkerView, worker_health_view, worker_view

if TYPE_CHECKING:
    from holdfast.insight.health import Health


class Live(TypedDict):
    status: NotRequired[Annotated[Literal["live"], Field(json_schema_extra={"default": "live"})]]


class Ready(TypedDict):
    status: Annotated[Literal["ready", "not-ready"], example("ready")]
    store: Annotated[str, example("sqlite", "The kind of the store; the doctor says more")]
    reachable: Annotated[bool, example(True)]
    durable: Annotated[fields.Durable, about("False if accepted tasks end with this process")]
    degraded: Annotated[bool, about("True if memory replaces a store that was out of reach")]
    consuming: Annotated[bool, example(True, "True if a live worker claims tasks")]
    stopping: Annotated[bool, about("True if this process takes no more requests")]


class CheckView(View):
    """A setting of the store that decides what a crash may cost."""

    name: Annotated[str, example("persistence")]
    good: Annotated[bool, example(True)]
    says: Annotated[str, example("every commit is synced to the disk before it is answered")]


class FindingView(View):
    invariant: Annotated[str, example("I11")]
    taskId: fields.TaskId | None
    says: str
    mended: bool


class OldestView(View):
    taskId: fields.TaskId
    ageSeconds: Annotated[float, example(12.5)]


class _HealthReport(View):
    clean: Annotated[bool, example(True)]
    store: Annotated[str, example("sqlite:///holdfast.db")]
    durable: fields.Durable
    checks: list[CheckView]
    oldestReady: OldestView | None
    findings: Annotated[list[FindingView], example([])]
    stuck: Annotated[tuple[str, ...], example([])]
    waiting: Annotated[
        tuple[str, ...],
        example(
            [f"plan upgrade-7 is {PlanStatus.HALTED}: 2 of 20 have failed"],
            "What waits for a person",
        ),
    ]


class HealthView(_HealthReport):
    workers: list[WorkerView]


class DoctorView(_HealthReport):
    workers: list[WorkerHealth]


def health_view(health: Health, now: float) -> HealthView:
    oldest = health.oldest
    return {
        "clean": health.clean,
        "store": health.store,
        "durable": health.durable,
        "checks": [
            {"name": check.name, "good": check.good, "says": check.message}
            for check in health.checks
        ],
        "workers": [worker_view(worker) for worker in health.workers],
        "oldestReady": {"taskId": oldest.id, "ageSeconds": now - oldest.status_since}
        if oldest
        else None,
        "findings": [
            {
                "invariant": finding.invariant,
                "taskId": finding.task_id,
                "says": finding.message,
                "mended": finding.mended,
            }
            for finding in health.findings
        ],
        "stuck": health.stuck,
        "waiting": health.waiting,
    }


def doctor_view(health: Health, now: float) -> DoctorView:
    workers = [worker_health_view(worker) for worker in health.workers]
    return {**health_view(health, now), "workers": workers}
