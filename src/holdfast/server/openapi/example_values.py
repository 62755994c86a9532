"""What the examples in the OpenAPI document are made of: fields that mean the same everywhere, and
those of one model. The story: the upgrade of a tenant has failed thrice and waits for a person."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.bulk import BulkCommand
from holdfast.domain.plan.plan import MACHINE as PLANS
from holdfast.domain.plan.plan import FailureRate, MemberState, PlanStatus
from holdfast.domain.redaction import USUAL
from holdfast.domain.task import events as ev
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status, legal
from holdfast.domain.task.task import Kind
from holdfast.domain.trigger.trigger import MACHINE as TRIGGERS
from holdfast.domain.trigger.trigger import TriggerStatus
from holdfast.insight.views.tasks import event_shape
from holdfast.observe.snapshot import Severity

_TASK_ID = "019c1a4e-9d00-7c31-8a52-6f0b7c9d1e24"
_LATER_ID = "019c1a50-2f10-7d02-9b63-0a1c2d3e4f50"
_HASH = "7c4e0c0b4f0c4f8b6a5b5d0e6f0d7d3a9d3f5a1b2c4d6e8f00112233445566aa"
_AT = 1_769_860_800.0
_TIME = iso(_AT)
_STARTED = event_shape(
    ev.TaskStarted(task_id=_TASK_ID, version=2, at=_AT, worker="host-1-4711", fence=4), USUAL
)

ANYWHERE: dict[str, Any] = {
    "actor": "api:ann",
    "attempt": 3,
    "bulkId": _TASK_ID,
    "changed": True,
    "cursor": None,
    "driver": "host-1-4711",
    "durable": True,
    "fence": 4,
    "fingerprint": "4f0c9a7d12ab",
    "kind": Kind.STAGE,
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
    "taskId": _TASK_ID,
    "taskStatus": Status.FAILED,
    "tenantId": "t-001",
    "tenants": ["t-001", "t-002"],
    "traceback": 'Traceback (most recent call last):\n  File "app.py", line 7, in migrate\n…',
    "triggerId": "nightly",
    "type": "tenant.upgrade",
    "types": ["tenant.upgrade"],
    "worker": "host-1-4711",
}

_DETAIL = {
    "key": "upgrade-7:t-001",
    "callbackUrl": None,
    "version": 8,
    "place": Place.PARKED,
    "dueAt": None,
    "settledAt": None,
    "legalCommands": list(legal(Status.FAILED)),
    "ranBy": "worker-1",
    "lease": None,
    "stageNames": ["snapshot", "migrate"],
    "completed": ["snapshot"],
    "stages": [
        {"name": "snapshot", "durationSeconds": 1.5, "run": 1, "undo": True, "result": "snap-1"}
    ],
    "progress": None,
    "result": None,
    "data": {"taken": True},
    "checkpoint": {"taken": True},
    "checkpointInvalid": None,
    "startsOver": False,
    "events": [_STARTED],
}
_CALL = {
    "outcome": "failed",
    "endedAt": _TIME,
    "durationSeconds": 1.5,
    "result": None,
}
_PLAN = {
    "status": PlanStatus.RUNNING,
    "progress": 0.25,
    "total": 4,
    "wave": 2,
    "waves": [
        {"wave": 1, "size": 1, "counts": {MemberState.COMPLETED: 1}},
        {"wave": 2, "size": 3, "counts": {MemberState.ADMITTED: 2, MemberState.WAITING: 1}},
    ],
    "maxConcurrency": 2,
    "soakSecondsLeft": 0.0,
    "endsInSeconds": 90.0,
    "legalCommands": list(PLANS.legal(PlanStatus.RUNNING)),
    "soakSeconds": 600.0,
    "haltOn": msgspec.to_builtins(FailureRate(0.05)),
}
_TRIGGER = {
    "kind": "cron",
    "tenantId": None,
    "lastTaskId": _TASK_ID,
    "fired": 12,
    "nextFireTime": "2026-02-01T03:00:00.000+08:00",
    "lastFireTime": "2026-01-31T03:00:00.000+08:00",
    "catchUpMax": 100,
    "jitterSeconds": 0.0,
    "graceSeconds": 60.0,
    "triggerAt": "2026-02-01T03:00:00.000+08:00",
    "owner": None,
    "endedAt": None,
    "legalCommands": list(TRIGGERS.legal(TriggerStatus.PENDING)),
    "next": ["2026-02-01T03:00:00+08:00", "2026-02-02T03:00:00+08:00"],
}
_PAUSED = {"actor": "api:ann", "origin": "10.0.0.7", "reason": "the database is down"}
_PLACES = dict.fromkeys(Place, 0) | {Place.READY: 3, Place.LEASED: 1, Place.SETTLED: 9}
_STATUSES = dict.fromkeys(Status, 0) | {Status.RUNNING: 1, Status.COMPLETED: 9}

IN: dict[str, dict[str, Any]] = {
    "TaskDetail": _DETAIL,
    "Asked": {"status": Status.PENDING},
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
    "Batched": {"tasks": [{"taskId": _TASK_ID}], "accepted": 1, "refused": 0},
    "Commands": {"legalCommands": list(legal(Status.FAILED))},
    "Timeline": {"checkpoint": {"taken": True}, "progress": None},
    "RunView": {"endedAt": None, "endedAs": None},
    "CallView": _CALL,
    "MarkView": {"version": 2, "event": _STARTED},
    "TypeView": {
        "workflow": True,
        "payload": {"type": "object", "properties": {"version": {"type": "integer"}}},
    },
    "PlanView": _PLAN,
    "PlanDetail": _PLAN | {"startingOver": [], "checkpointsJudged": 0, "checkpointsToJudge": 0},
    "PreviewView": {
        "total": 4,
        "waves": [
            {"wave": 1, "size": 1, "tenants": ["t-001"]},
            {"wave": 2, "size": 3, "tenants": ["t-002", "t-003", "t-004"]},
        ],
        "busy": ["t-003"],
        "exists": None,
    },
    "PlanAsked": {"status": PlanStatus.PAUSED},
    "MemberView": {"number": 0, "wave": 1, "state": MemberState.COMPLETED},
    "TriggerView": _TRIGGER,
    "TriggerDetail": _TRIGGER,
    "NextTimes": {"next": _TRIGGER["next"]},
    "TriggerAsked": {"status": TriggerStatus.PENDING},
    "StatsView": {
        "byStatus": _STATUSES,
        "byQueue": {"default": _PLACES},
        "refused": {f"{Status.COMPLETED} {Command.CANCEL}": 1},
        "checkpoints": 1,
        "tenantLocks": 1,
        "tenantsHeld": 1,
        "liveWorkers": 1,
    },
    "MoveView": {
        "from": Status.PENDING,
        "to": Status.RUNNING,
        "count": 10,
        "meanDwellSeconds": 0.02,
    },
    "Cause": {"count": 3},
    "BulkView": {
        "command": BulkCommand.RESUME,
        "phase": "rest",
        "status": Status.RUNNING,
        "matching": 250,
        "left": 120,
        "done": 129,
        "refused": {"tenant-moved-on": 1},
        "changed": 0,
        "rate": 50.0,
        "canary": {
            "steps": [1, 10],
            "stopAt": msgspec.to_builtins(FailureRate(0.2)),
            "waitSeconds": 600.0,
        },
        "limit": None,
        "filter": {"error": "4f0c9a7d12ab"},
        "startedBy": "api:ann",
        "why": "the database is back",
        "error": None,
    },
    "BulkPreviewView": {
        "matching": 250,
        "refusedNow": 1,
        "startsOver": 0,
        "startingOver": [],
        "checkpointsJudged": 250,
        "checkpointsToJudge": 250,
    },
    "WorkerView": {"host": "host-1", "live": True, "seenSecondsAgo": 1.5, "slots": 128},
    "PoolView": {"wanted": 1, "limit": 32},
    "QueueView": {
        "places": _PLACES,
        "oldestAgeSeconds": 12.5,
        "backlog": 3,
        "threshold": 10_000,
        "intakePaused": _PAUSED | {"at": _TIME},
        "claimingPaused": None,
    },
    "Turned": {"paused": True, "known": True},
    "TenantState": {
        "progress": 0.5,
        "hasCheckpoint": True,
        "waiting": 1,
        "line": [_LATER_ID],
        "lockedBy": None,
        "next": "find the cause, then resume or discard the task",
        "held": None,
    },
    "HoldView": {"reason": "this customer is being moved"},
    "HoldState": {"held": True, "waitingFor": _TASK_ID},
    "AlertView": {
        "severity": Severity.TICKET,
        "group": None,
        "says": "12000 tasks wait in queue default",
        "value": 12_000.0,
        "threshold": 10_000.0,
    },
    "AuditView": {
        "command": Command.CANCEL,
        "reason": "a duplicate",
        "before": Status.PENDING,
        "after": Status.CANCELLED,
        "refused": None,
    },
    "ChainView": {
        "holds": True,
        "links": 1204,
        "base": "0:" + "0" * 64,
        "head": f"1204:{_HASH}",
        "brokenAt": None,
        "says": None,
        "missing": None,
    },
    "MissingView": {
        "count": 204,
        "explained": True,
        "says": "numbers 1 to 204 are missing: the retention of 365d took them",
    },
    "HealthView": {
        "clean": True,
        "findings": [],
        "stuck": [],
        "waiting": [f"plan upgrade-7 is {PlanStatus.HALTED}: 2 of 20 have failed"],
    },
    "CheckView": {
        "name": "persistence",
        "good": True,
        "says": "every commit is synced to the disk before it is answered",
    },
    "OldestView": {"ageSeconds": 12.5},
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
            {"taskId": _TASK_ID},
            {"code": "queue-full", "detail": "queue mail is full: 1000000 tasks wait"},
        ],
        "accepted": 1,
        "refused": 1,
    },
}
