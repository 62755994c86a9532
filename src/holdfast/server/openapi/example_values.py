"""Example values for the OpenAPI document: fields that mean the same in every view, and the fields
of the answers that only the server gives. A view declares its own examples beside its keys.

The story: the upgrade of a tenant has failed three times and waits for a person.
"""

from __future__ import annotations

from typing import Any

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import FailureKind
from holdfast.insight.views.tasks import EXAMPLE_ID

ANYWHERE: dict[str, Any] = {
    "actor": "api:ann",
    "attempt": 3,
    "bulkId": EXAMPLE_ID,
    "changed": True,
    "cursor": None,
    "driver": "host-1-4711",
    "durable": True,
    "fence": 4,
    "fingerprint": "4f0c9a7d12ab",
    "kind": FailureKind.STAGE,
    "message": "no route to host",
    "origin": "10.0.0.7",
    "outageSince": None,
    "outages": 0,
    "payload": {"version": 7},
    "pid": 4711,
    "planId": "upgrade-7",
    "queue": "default",
    "queues": ["default"],
    "reason": None,
    "run": 1,
    "stage": "migrate",
    "stages": ["snapshot", "migrate"],
    "status": Status.FAILED,
    "store": "sqlite:///holdfast.db",
    "taskId": EXAMPLE_ID,
    "taskStatus": Status.FAILED,
    "tenantId": "t-001",
    "tenants": ["t-001", "t-002"],
    "traceback": 'Traceback (most recent call last):\n  File "app.py", line 7, in migrate\n…',
    "triggerId": "nightly",
    "type": "tenant.upgrade",
    "types": ["tenant.upgrade"],
    "worker": "host-1-4711",
}

IN: dict[str, dict[str, Any]] = {
    "Applied": {
        "status": "completed",
        "taskStatus": Status.COMPLETED,
        "result": {"at": 7},
        "error": None,
    },
    "Envelope": {"status": "suspended", "result": None},
    "EnvelopeContext": {
        "idempotencyKey": "upgrade-7",
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "user": {"id": "u-17"},
    },
    "EnvelopeRetry": {"count": 3, "max": 3, "nextAttemptAt": 0},
    "Batched": {"tasks": [{"taskId": EXAMPLE_ID}], "accepted": 1, "refused": 0},
    "Ready": {"reachable": True, "consuming": True},
}

OF_STATUS: dict[tuple[str, str], dict[str, Any]] = {
    ("Applied", "202"): {
        "status": "processing",
        "taskStatus": Status.RUNNING,
        "result": None,
        "error": None,
    },
    ("Batched", "207"): {
        "tasks": [
            {"taskId": EXAMPLE_ID},
            {"code": "queue-full", "detail": "queue mail is full: 1000000 tasks wait"},
        ],
        "accepted": 1,
        "refused": 1,
    },
}
