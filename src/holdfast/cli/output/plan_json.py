"""The JSON of plans is made here, with secrets hidden."""

from __future__ import annotations

from typing import Any

from holdfast.cli.output import redaction
from holdfast.cli.output.plan_view import FailedTask, PlanReport
from holdfast.cli.output.task_json import failure_view
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views import plans as views
from holdfast.insight.views.view import keys

PLAN_KEYS = keys(views.PlanView, waves=views.WaveView)
TERMS_KEYS = keys(views.PlanTermsView)
ASKED_KEYS = keys(views.PlanAsked)
PREVIEW_KEYS = keys(views.PreviewView, waves=views.WavePreviewView)


asked_view = views.asked_plan_view
preview_view = views.preview_view


def plan_view(info: PlanInfo) -> views.PlanView:
    return views.plan_view(info, redaction.current())


def shown_view(shown: PlanReport) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **plan_view(shown.info),
        **views.terms_view(shown.plan),
        "failed": [_failed_view(one) for one in shown.failed],
        "failedTotal": shown.failed_total,
    }
    if shown.events is not None:
        hide = redaction.current()
        fields["events"] = [views.plan_event_view(event, hide) for event in shown.events]
    return fields


def _failed_view(one: FailedTask) -> dict[str, Any]:
    failure = one.task.failure if one.task else None
    return {
        "taskId": one.task_id,
        "tenantId": one.tenant,
        "state": one.state,
        "error": failure_view(failure) if failure else None,
    }
