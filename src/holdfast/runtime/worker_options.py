"""The options of a worker, and the rules by which it runs tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.task import outage


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    checkpoint_ttl_seconds: float = 7 * 86_400
    crash_limit: int = 3
    stage_grace_seconds: float = 10.0  # past a stage's timeout its lease is no longer renewed
    unknown_type_seconds: float = 600.0
    outage_seconds: float = outage.LIMIT_SECONDS
    hand_back_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    slots: int = 128
    queues: tuple[str, ...] = ("default",)
    lease_seconds: float = 30.0
    drain_seconds: float = 30.0
    audit_seconds: float = 365 * 86_400
    reconcile_seconds: float = 3600
    queue_limit: int = 1_000_000
    schedules: bool = True  # False: others fire the triggers, who know the types of their tasks
    rules: Rules = field(default_factory=Rules)
    heartbeat_thread: bool = True  # False: on the worker's own loop, for simulations
