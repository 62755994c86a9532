"""The JSON views of alerts, which the command line and the API share."""

from __future__ import annotations

from typing import Annotated

from holdfast.domain.task.envelope import iso
from holdfast.insight.views import fields
from holdfast.insight.views.view import Time, View, about, example
from holdfast.observe.snapshot import Alert, Severity


class ActiveAlert(View):
    code: Annotated[str, example("backlog")]
    severity: Annotated[Severity, example(Severity.TICKET)]
    queue: Annotated[fields.QueueName | None, about("null if it concerns the whole store")]
    group: Annotated[str | None, example(None, "The fingerprint of an outage's error group")]
    says: Annotated[str, example("12000 tasks wait in queue default")]
    value: Annotated[float, example(12_000.0)]
    threshold: Annotated[float, example(10_000.0)]


class ActiveAlerts(View):
    alerts: list[ActiveAlert]
    backlog: Annotated[dict[str, int], about("The threshold of each queue")]


class AlertView(ActiveAlert):
    since: Time


class AlertList(View):
    alerts: list[AlertView]


def active_alert_view(alert: Alert) -> ActiveAlert:
    return {
        "code": alert.code,
        "severity": alert.severity,
        "queue": alert.queue or None,
        "group": alert.group or None,
        "says": alert.message,
        "value": alert.value,
        "threshold": alert.threshold,
    }


def alert_view(alert: Alert) -> AlertView:
    return {**active_alert_view(alert), "since": iso(alert.since)}
