"""Every metric by name: its kind, its labels, what it says. `docs/metrics.md` is this table."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(msgspec.Struct, frozen=True):
    kind: str
    labels: tuple[str, ...]
    help: str


def _family(kind: str, labels: str, help: str) -> Family:
    return Family(kind, tuple(labels.split()), help)


# From the store: the same whichever service is asked, and kept across restarts.
STORED: Mapping[str, Family] = {
    "holdfast_tasks_total": _family(COUNTER, "queue type status", "Times a task entered a status."),
    "holdfast_transitions_total": _family(
        COUNTER, "from to", "Times a task went from one status to another."
    ),
    "holdfast_dwell_seconds_total": _family(
        COUNTER, "status", "How long tasks stayed in a status before they left it."
    ),
    "holdfast_dwells_total": _family(COUNTER, "status", "Times a task left a status."),
    "holdfast_refused_total": _family(
        COUNTER, "status command", "Commands that were refused, by the status they met."
    ),
    "holdfast_stage_duration_seconds": _family(
        HISTOGRAM, "type stage outcome", "How long calls of stages and of their undos took."
    ),
    "holdfast_tasks": _family(GAUGE, "status", "Tasks in a status now."),
    "holdfast_queue_depth": _family(
        GAUGE, "queue place", "Unsettled tasks of a queue, by where they are."
    ),
    "holdfast_queue_oldest_age_seconds": _family(
        GAUGE, "queue", "How long the task that is next in a queue has waited."
    ),
    "holdfast_suspended": _family(GAUGE, "", "Tasks that wait for a person."),
    "holdfast_leases": _family(GAUGE, "", "Tasks that a worker holds."),
    "holdfast_checkpoints": _family(GAUGE, "", "Checkpoints of unsettled tasks."),
    "holdfast_tenant_locks": _family(GAUGE, "", "Tenants for which a task runs."),
    "holdfast_workers": _family(GAUGE, "state", "Workers: live, draining, or lost."),
    "holdfast_slots": _family(GAUGE, "", "Tasks that the live workers can run at once."),
    "holdfast_slots_used": _family(GAUGE, "", "Tasks that the live workers run."),
    "holdfast_durable": _family(GAUGE, "", "1 if answered writes survive a crash."),
    "holdfast_degraded": _family(
        GAUGE, "", "1 if memory replaces a store that was out of reach at the start."
    ),
    "holdfast_intake_paused": _family(GAUGE, "queue", "1 while the intake is paused."),
    "holdfast_claiming_paused": _family(GAUGE, "queue", "1 while claiming is paused."),
    "holdfast_tenants_held": _family(GAUGE, "", "Held tenants."),
    "holdfast_alerts": _family(GAUGE, "alert queue", "1 while the alert is active."),
    "holdfast_stage_outages_total": _family(
        COUNTER, "type stage", "Calls of stages and undos that ended with an outage."
    ),
    "holdfast_outage_seconds": _family(
        GAUGE, "stage error", "How long tasks have waited for the end of an outage."
    ),
    "holdfast_doctor_findings": _family(
        GAUGE, "invariant", "Findings of the last check, by invariant."
    ),
}

# Of this process, also while the store is away.
OWN: Mapping[str, Family] = {
    "holdfast_up": _family(GAUGE, "", "1 if the store answers."),
    "holdfast_build_info": _family(GAUGE, "version", "Always 1; the version is in the label."),
    "holdfast_event_lag_seconds": _family(
        GAUGE, "", "How late events reached their readers: the worst of the last minute."
    ),
    "holdfast_sse_streams": _family(GAUGE, "", "Streams of events that are open."),
    "holdfast_auth_failures_total": _family(COUNTER, "kind", "Requests refused for their token."),
    "holdfast_http_connections": _family(GAUGE, "", "Connections that are open."),
    "holdfast_http_connections_refused_total": _family(
        COUNTER, "reason", "Refused connections, and connections closed to admit a new one."
    ),
    "holdfast_http_requests_total": _family(COUNTER, "method route status", "Requests answered."),
    "holdfast_http_request_duration_seconds": _family(
        HISTOGRAM, "method route", "How long answers took."
    ),
}

FAMILIES: Mapping[str, Family] = {**STORED, **OWN}
