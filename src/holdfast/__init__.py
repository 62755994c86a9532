"""Work that must not be lost: multi-stage, multi-tenant, through crashes, outages and restarts."""

from holdfast.domain.bulk import Canary
from holdfast.domain.errors import HoldfastError, Permanent, RetryAfter, Snooze
from holdfast.domain.plan.plan import FailureCount, FailureRate, PlanStatus
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.trigger.trigger import Misfire, Overlap, TriggerStatus
from holdfast.engine import Holdfast
from holdfast.engine.bulk.bulks import BulkHandle
from holdfast.engine.handle import Handle, Info
from holdfast.engine.plans.handle import PlanHandle, PlanInfo
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.ports import Filter
from holdfast.runtime.context import Context
from holdfast.version import __version__ as __version__

__all__ = [
    "BulkHandle",
    "Canary",
    "Command",
    "Context",
    "FailureCount",
    "FailureRate",
    "Filter",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Info",
    "Misfire",
    "Overlap",
    "Permanent",
    "PlanHandle",
    "PlanInfo",
    "PlanStatus",
    "Retry",
    "RetryAfter",
    "Snooze",
    "Status",
    "TriggerHandle",
    "TriggerStatus",
]
