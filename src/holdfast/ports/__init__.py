"""What the engine asks of a store and of a clock: tasks, triggers, plans."""

from holdfast.ports.measures import BUCKETS, ErrorGroup, Moves, Stats, Timings
from holdfast.ports.plans import DuePlans, PlanPage, PlanStore
from holdfast.ports.switches import Switch, Thrown
from holdfast.ports.tasks import (
    Beat,
    Check,
    Claimed,
    Clock,
    Detail,
    Due,
    Filter,
    Finding,
    Kept,
    Page,
    Peek,
    Renewal,
    Store,
    TenantView,
    Timer,
    Topic,
    WorkerInfo,
)
from holdfast.ports.triggers import DueTriggers, TriggerPage, TriggerStore

__all__ = [
    "BUCKETS",
    "Beat",
    "Check",
    "Claimed",
    "Clock",
    "Detail",
    "Due",
    "DuePlans",
    "DueTriggers",
    "ErrorGroup",
    "Filter",
    "Finding",
    "Kept",
    "Moves",
    "Page",
    "Peek",
    "PlanPage",
    "PlanStore",
    "Renewal",
    "Stats",
    "Store",
    "Switch",
    "TenantView",
    "Thrown",
    "Timer",
    "Timings",
    "Topic",
    "TriggerPage",
    "TriggerStore",
    "WorkerInfo",
]
