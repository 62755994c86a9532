"""The JSON views of plans, which the command line and the API share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.domain.plan.plan import (
    MACHINE,
    FailureRate,
    MemberState,
    OnHalt,
    Plan,
    PlanCommand,
    PlanStatus,
    TenantConflict,
)
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.engine.operations.expired_checkpoints import Forecast
from holdfast.engine.plans.create import Preview
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import Error, at, text_or_none
from holdfast.insight.views.view import Time, View, example

_FIRST = {"wave": 1, "size": 1, "counts": {MemberState.COMPLETED: 1}}
_SECOND = {"wave": 2, "size": 3, "counts": {MemberState.ADMITTED: 2, MemberState.WAITING: 1}}
_PREVIEWED = [
    {"wave": 1, "size": 1, "tenants": ["t-001"]},
    {"wave": 2, "size": 3, "tenants": ["t-002", "t-003", "t-004"]},
]


class WaveView(View):
    wave: int
    size: int
    counts: dict[MemberState, int]


class PlanView(View):
    planId: fields.PlanId
    status: Annotated[PlanStatus, example(PlanStatus.RUNNING)]
    cancelRequested: bool
    progress: Annotated[float, example(0.25)]
    total: Annotated[int, example(4)]
    wave: Annotated[int, example(2)]
    waves: Annotated[list[WaveView], example([_FIRST, _SECOND])]
    maxConcurrency: Annotated[int | None, example(2)]
    soakSecondsLeft: Annotated[float, example(0.0)]
    endsInSeconds: Annotated[float | None, example(90.0)]
    reason: fields.Reason
    legalCommands: Annotated[
        tuple[PlanCommand, ...], example(list(MACHINE.legal(PlanStatus.RUNNING)))
    ]
    driver: fields.WorkerName | None
    createdAt: Time
    startedAt: Time | None
    updatedAt: Time


class PlanPageView(View):
    plans: list[PlanView]
    cursor: fields.Cursor


class PlanTermsView(View):
    """The terms on which a plan runs."""

    soakSeconds: Annotated[float, example(600.0)]
    haltOn: Annotated[dict[str, Any] | None, example(msgspec.to_builtins(FailureRate(0.05)))]
    onHalt: OnHalt
    conflict: TenantConflict


class PlanDetail(PlanView, PlanTermsView):
    startingOver: Annotated[
        tuple[str, ...], example([], "Failed tasks that a retry starts anew, with new keys")
    ]
    checkpointsJudged: Annotated[int, example(0, "The number of checkpoints that were examined")]
    checkpointsToJudge: Annotated[int, example(0, "The number of tasks that have failed")]


class WavePreviewView(View):
    wave: int
    size: int
    tenants: tuple[str | None, ...]


class PreviewView(View):
    planId: fields.PlanId
    total: Annotated[int, example(4)]
    waves: Annotated[list[WavePreviewView], example(_PREVIEWED)]
    busy: Annotated[tuple[str, ...], example(["t-003"], "The tenants that have other work now")]
    exists: Annotated[PlanStatus | None, example(None)]


class PlanAsked(View):
    planId: fields.PlanId
    status: Annotated[PlanStatus, example(PlanStatus.PAUSED)]
    cancelRequested: bool


class PlanRetryAsked(PlanAsked):
    codeUnknown: list[str]


class FailedMember(View):
    taskId: fields.TaskId
    tenantId: fields.TenantId | None
    state: MemberState
    error: Error | None


class PlanReportView(PlanView, PlanTermsView):
    failed: list[FailedMember]
    failedTotal: int


class PlanReportWithEvents(PlanReportView):
    events: list[dict[str, Any]]


class MemberView(View):
    number: Annotated[int, example(0)]
    taskId: fields.TaskId
    tenantId: fields.TenantId | None
    wave: Annotated[int, example(1)]
    state: Annotated[MemberState, example(MemberState.COMPLETED)]


class MemberPage(View):
    tasks: list[MemberView]
    cursor: fields.Cursor


def plan_view(info: PlanInfo, hide: Redactor) -> PlanView:
    return {
        "planId": info.id,
        "status": info.status,
        "cancelRequested": info.cancel_requested,
        "progress": info.progress,
        "total": info.total,
        "wave": info.wave,
        "waves": [
            {"wave": wave.number, "size": wave.size, "counts": dict(wave.counts)}
            for wave in info.waves
        ],
        "maxConcurrency": info.max_concurrency,
        "soakSecondsLeft": info.soak_seconds_left,
        "endsInSeconds": info.ends_in_seconds,
        "reason": text_or_none(info.reason, hide),
        "legalCommands": info.legal,
        "driver": info.driver,
        "createdAt": iso(info.created_at),
        "startedAt": at(info.started_at),
        "updatedAt": iso(info.updated_at),
    }


def terms_view(plan: Plan) -> PlanTermsView:
    return {
        "soakSeconds": plan.soak_seconds,
        "haltOn": msgspec.to_builtins(plan.halt_on),
        "onHalt": plan.on_halt,
        "conflict": plan.conflict,
    }


def plan_detail_view(plan: Plan, info: PlanInfo, ahead: Forecast, hide: Redactor) -> PlanDetail:
    return {
        **plan_view(info, hide),
        **terms_view(plan),
        "startingOver": ahead.ids,
        "checkpointsJudged": ahead.judged,
        "checkpointsToJudge": ahead.total,
    }


def asked_plan_view(plan: Plan) -> PlanAsked:
    """Return a plan as it is after a command."""
    return {"planId": plan.id, "status": plan.status, "cancelRequested": plan.cancel_requested}


def preview_view(preview: Preview) -> PreviewView:
    return {
        "planId": preview.id,
        "total": preview.total,
        "waves": [
            {"wave": wave.number, "size": len(wave.tenants), "tenants": wave.tenants}
            for wave in preview.waves
        ],
        "busy": preview.busy,
        "exists": preview.exists,
    }
