"""The store and the clock that the engine asks for; a store is a bundle of five parts."""

from holdfast.ports.admin import AdminStore, Check, Finding, Kept
from holdfast.ports.clock import Clock, Timer
from holdfast.ports.measures import BUCKETS, Awaited, ErrorGroup, Moves, Stats, Timings, late
from holdfast.ports.plans import DuePlans, PlanPage, PlanStore
from holdfast.ports.store import Store, Topic
from holdfast.ports.switches import OF_QUEUES, Switch, SwitchSetting
from holdfast.ports.tasks import LIVE_LEASES, Beat, Claimed, Due, OutageGroup, Renewal, TaskStore
from holdfast.ports.triggers import DueTriggers, TriggerPage, TriggerStore
from holdfast.ports.views import Detail, Filter, Page, Peek, TenantView, ViewStore, WorkerInfo

__all__ = [
    "BUCKETS",
    "LIVE_LEASES",
    "OF_QUEUES",
    "AdminStore",
    "Awaited",
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
    "OutageGroup",
    "Page",
    "Peek",
    "PlanPage",
    "PlanStore",
    "Renewal",
    "Stats",
    "Store",
    "Switch",
    "SwitchSetting",
    "TaskStore",
    "TenantView",
    "Timer",
    "Timings",
    "Topic",
    "TriggerPage",
    "TriggerStore",
    "ViewStore",
    "WorkerInfo",
    "late",
]
