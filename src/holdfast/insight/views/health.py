"""The JSON views of the doctor's report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from holdfast.domain.plan.plan import PlanStatus
from holdfast.insight.views.view import View
from holdfast.insight.views.workers import WorkerView, worker_view
from holdfast.ports import Finding

if TYPE_CHECKING:
    from holdfast.insight.health import Health

WORKER_KEYS = frozenset("worker live seenSecondsAgo queues types slots running".split())


class CheckView(View):
    """A setting of the store that decides what a crash may cost."""

    name: Annotated[str, Field(examples=["persistence"])]
    good: Annotated[bool, Field(examples=[True])]
    says: Annotated[
        str, Field(examples=["every commit is synced to the disk before it is answered"])
    ]


class FindingView(View):
    invariant: Annotated[str, Field(examples=["I11"])]
    taskId: str | None
    says: str
    mended: bool


class OldestView(View):
    taskId: str
    ageSeconds: Annotated[float, Field(examples=[12.5])]


class HealthView(View):
    clean: Annotated[bool, Field(examples=[True])]
    store: str
    durable: bool
    checks: list[CheckView]
    workers: list[WorkerView]
    oldestReady: OldestView | None
    findings: Annotated[list[FindingView], Field(examples=[[]])]
    stuck: Annotated[tuple[str, ...], Field(examples=[[]])]
    waiting: Annotated[
        tuple[str, ...],
        Field(
            examples=[[f"plan upgrade-7 is {PlanStatus.HALTED}: 2 of 20 have failed"]],
            description="For a person",
        ),
    ]


def health_view(health: Health, now: float) -> HealthView:
    oldest = health.oldest
    return {
        "clean": health.clean,
        "store": health.store,
        "durable": health.durable,
        "checks": [
            {"name": check.name, "good": check.good, "says": check.says} for check in health.checks
        ],
        "workers": [worker_view(worker) for worker in health.workers],
        "oldestReady": {"taskId": oldest.id, "ageSeconds": now - oldest.status_since}
        if oldest
        else None,
        "findings": [_finding_view(finding) for finding in health.findings],
        "stuck": health.stuck,
        "waiting": health.waiting,
    }


def _finding_view(finding: Finding) -> FindingView:
    return {
        "invariant": finding.invariant,
        "taskId": finding.task_id,
        "says": finding.says,
        "mended": finding.mended,
    }


def doctor_view(health: Health, now: float) -> dict[str, Any]:
    """Return what `holdfast doctor --json` prints: of each worker the keys that concern health."""
    shown = health_view(health, now)
    workers = [
        {key: value for key, value in worker.items() if key in WORKER_KEYS}
        for worker in shown["workers"]
    ]
    return {**shown, "workers": workers}
