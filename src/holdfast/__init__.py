"""Work that must not be lost: multi-stage, multi-tenant, through crashes, outages and restarts."""

from holdfast.app import Holdfast
from holdfast.app.handle import Handle, Info
from holdfast.domain.errors import (
    DeclarationError,
    HoldfastError,
    IllegalTransition,
    InvalidInput,
    InvalidName,
    InvalidPayload,
    InvalidSetting,
    KeyConflict,
    NoResult,
    NotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    Permanent,
    QueueFull,
    Refused,
    ResultTimeout,
    RetryAfter,
    StageTimeout,
    StoreError,
    StoreUnavailable,
    TaskCancelled,
    TaskEnded,
    TaskFailed,
    TaskNotFound,
    TaskRolledBack,
    TenantMovedOn,
)
from holdfast.domain.retry import Retry
from holdfast.domain.state import Command, Status
from holdfast.runtime.context import Context

__version__ = "0.1.0"

__all__ = [
    "Command",
    "Context",
    "DeclarationError",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "IllegalTransition",
    "Info",
    "InvalidInput",
    "InvalidName",
    "InvalidPayload",
    "InvalidSetting",
    "KeyConflict",
    "NoResult",
    "NotJson",
    "PayloadTooDeep",
    "PayloadTooLarge",
    "Permanent",
    "QueueFull",
    "Refused",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "StageTimeout",
    "Status",
    "StoreError",
    "StoreUnavailable",
    "TaskCancelled",
    "TaskEnded",
    "TaskFailed",
    "TaskNotFound",
    "TaskRolledBack",
    "TenantMovedOn",
]
