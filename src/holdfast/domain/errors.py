"""Every error that Holdfast raises.

HoldfastError
├── DeclarationError
├── InvalidInput
│   ├── InvalidName
│   ├── KeyRequired
│   ├── InvalidPayload
│   │   ├── PayloadTooLarge
│   │   ├── PayloadTooDeep
│   │   └── NotJson
│   ├── InvalidSetting
│   ├── InvalidSchedule
│   ├── InvalidPlan
│   ├── UnknownQueue
│   └── UrlRefused
├── Refused
│   ├── IllegalTransition
│   ├── NotSuspended
│   ├── CheckpointGone
│   ├── CheckpointConflict
│   ├── TenantMovedOn
│   ├── KeyConflict
│   ├── QueueFull
│   ├── IntakePaused
│   ├── Contended
│   ├── TriggerConflict
│   ├── TriggerNotFound
│   ├── TaskNotFound
│   ├── BulkNotFound
│   ├── PlanConflict
│   ├── PlanNotFound
│   ├── TenantsBusy
│   ├── WorkerNotFound
│   ├── StoreFileInUse
│   └── BackupRefused
├── StoreError
│   ├── StoreUnavailable
│   │   ├── PartlyUnavailable
│   │   └── StoreFull
│   ├── StoreUnusable
│   │   ├── StoreForeign
│   │   ├── StoreTooNew
│   │   └── StoreNotWritable
│   └── SerialisationError
├── SinkError
│   ├── SinkUnavailable
│   └── StaleFence
├── NotDelivered
├── SubmittedInPart
├── TaskEnded
│   ├── TaskFailed
│   ├── TaskCancelled
│   └── TaskRolledBack
├── ResultTimeout
├── NoResult
├── StageTimeout
├── CheckpointTooLarge
├── Permanent
├── RetryAfter
├── Unavailable
└── Snooze

Each class has a stable ``code`` for API, CLI and runbook, and a ``stored_name`` for failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.domain.error_text import StoredName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import StrEnum

    from holdfast.domain.task.state import Status
    from holdfast.domain.task.task import Failure


class HoldfastError(Exception, StoredName, stored_name="HoldfastError", code="error"):
    """The base of every error that Holdfast raises."""


class DeclarationError(HoldfastError, stored_name="DeclarationError", code="declaration"):
    """The code that declares a task, a stage or a trigger is wrong."""


class InvalidInput(HoldfastError, stored_name="InvalidInput", code="invalid-input"):
    """An argument, a payload or a setting is wrong; nothing was written."""


class InvalidName(InvalidInput, stored_name="InvalidName", code="invalid-name"):
    """A name, a key or an id breaks the rule for names."""

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"{kind} {value!r} is not a valid name: {rule}")
        self.kind, self.value, self.rule = kind, value, rule


class KeyRequired(InvalidInput, stored_name="KeyRequired", code="key-required"):
    """The type has ``effects="key"``, and the submission has no key."""


class InvalidPayload(InvalidInput, stored_name="InvalidPayload", code="invalid-payload"):
    """A payload, a result or ``ctx.data`` does not fit its type or a limit."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class PayloadTooLarge(InvalidPayload, stored_name="PayloadTooLarge", code="payload-too-large"):
    """A value has more bytes of JSON than its limit allows."""

    def __init__(self, field: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(field, f"{size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PayloadTooDeep(InvalidPayload, stored_name="PayloadTooDeep", code="payload-too-deep"):
    """A value is nested more deeply than the limit allows."""

    def __init__(self, field: str, limit: int) -> None:
        super().__init__(field, f"nested more than {limit} levels deep")
        self.limit = limit


class NotJson(InvalidPayload, stored_name="NotJson", code="not-json"):
    """A value cannot be written as JSON, or a text is not JSON."""


class InvalidSetting(InvalidInput, stored_name="InvalidSetting", code="invalid-setting"):
    """A setting or an option has a value that it cannot have."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name}={value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class InvalidSchedule(InvalidInput, stored_name="InvalidSchedule", code="invalid-schedule"):
    """The schedule of a trigger cannot be read or never fires."""

    def __init__(self, given: object, reason: str) -> None:
        super().__init__(f"{given!r}: {reason}")
        self.given, self.reason = given, reason


class InvalidPlan(InvalidInput, stored_name="InvalidPlan", code="invalid-plan"):
    """The tasks or the terms of a plan are wrong."""


class UnknownQueue(InvalidInput, stored_name="UnknownQueue", code="unknown-queue"):
    """No task type or live worker uses the queue."""

    def __init__(self, queue: str, *, paused: bool = False) -> None:
        users = "task, task type" if paused else "task type"
        how = " (--force or force=True pauses it anyway)" if paused else ""
        super().__init__(f"queue {queue!r} is not known: no {users} or live worker uses it{how}")
        self.queue = queue


class UrlRefused(InvalidInput, stored_name="UrlRefused", code="url-refused"):
    """Holdfast sends nothing to this address."""


class Refused(HoldfastError, stored_name="Refused", code="refused"):
    """The input is valid, but the present state forbids the call."""


class IllegalTransition(Refused, stored_name="IllegalTransition", code="illegal-transition"):
    """The command is not legal in the present status."""

    def __init__(self, status: StrEnum, command: StrEnum, legal: Iterable[StrEnum] = ()) -> None:
        names = ", ".join(legal)
        others = f"legal now: {names}" if names else "no command is legal now"
        super().__init__(f"{command} is not legal in {status}; {others}")
        self.status, self.command = status, command


class NotSuspended(Refused, stored_name="NotSuspended", code="not-suspended"):
    """The command is for suspended tasks, and the task is not suspended."""

    def __init__(self, task_id: str, status: Status) -> None:
        super().__init__(f"task {task_id} is {status}, not suspended")
        self.task_id, self.status = task_id, status


class CheckpointGone(Refused, stored_name="CheckpointGone", code="checkpoint-gone"):
    """The task has no checkpoint to continue from."""

    def __init__(self, task_id: str, completed: int) -> None:
        lost = "its checkpoint is gone: roll it back, or start it over (from_checkpoint=False)"
        super().__init__(f"task {task_id} has completed {completed} stages and {lost}")


class CheckpointConflict(Refused, stored_name="CheckpointConflict", code="checkpoint-conflict"):
    """The stored checkpoint has another version than the one that was read."""

    def __init__(self, task_id: str, stored: int | str, given: int) -> None:
        has = f"a checkpoint of version {stored}" if isinstance(stored, int) else stored
        super().__init__(f"task {task_id} has {has}, not {given}")


class TenantMovedOn(Refused, stored_name="TenantMovedOn", code="tenant-moved-on"):
    """Newer work of the tenant has run since the task stopped."""

    def __init__(self, task_id: str, tenant: str | None) -> None:
        why = "stopped; running it now would overwrite that work (use force to run it anyway)"
        super().__init__(f"newer work has run for tenant {tenant} since task {task_id} {why}")
        self.task_id, self.tenant = task_id, tenant


class KeyConflict(Refused, stored_name="KeyConflict", code="key-conflict"):
    """The key belongs to a task with another payload or callback."""

    def __init__(self, tenant: str | None, key: str, task_id: str) -> None:
        super().__init__(f"key {key!r} of task {task_id} has another payload or callback")
        self.tenant, self.key, self.task_id = tenant, key, task_id


class QueueFull(Refused, stored_name="QueueFull", code="queue-full"):
    """The queue has as many waiting tasks as its limit allows."""

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} has reached its limit of {limit} waiting tasks")
        self.queue, self.limit = queue, limit


class IntakePaused(Refused, stored_name="IntakePaused", code="intake-paused"):
    """A person has paused the intake of the queue."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the intake of queue {queue!r} is paused; nothing was accepted")
        self.queue = queue


class Contended(Refused, stored_name="Contended", code="contended"):
    """Others changed the record during each attempt to change it."""

    def __init__(self, subject: str, tries: int) -> None:
        super().__init__(f"{subject} was changed by others in each of {tries} attempts; try again")
        self.subject, self.tries = subject, tries


class TriggerConflict(Refused, stored_name="TriggerConflict", code="trigger-conflict"):
    """A trigger of this name exists with another definition."""

    def __init__(self, trigger_id: str) -> None:
        how = "(replace=True replaces it, unless it is another tenant's or declared in code)"
        super().__init__(f"trigger {trigger_id} exists with another definition {how}")
        self.trigger_id = trigger_id


class TriggerNotFound(Refused, stored_name="TriggerNotFound", code="trigger-not-found"):
    """The store has no trigger of this id."""

    def __init__(self, trigger_id: str) -> None:
        super().__init__(f"there is no trigger {trigger_id}")
        self.trigger_id = trigger_id


class TaskNotFound(Refused, stored_name="TaskNotFound", code="task-not-found"):
    """The store has no task of this id."""

    def __init__(self, task_id: str, why: str = "") -> None:
        super().__init__(f"there is no task {task_id}{why}")
        self.task_id = task_id


class BulkNotFound(Refused, stored_name="BulkNotFound", code="bulk-not-found"):
    """The store has no bulk action of this id."""

    def __init__(self, bulk_id: str) -> None:
        super().__init__(f"there is no bulk action {bulk_id}")
        self.bulk_id = bulk_id


class PlanConflict(Refused, stored_name="PlanConflict", code="plan-conflict"):
    """A plan of this id exists with other tasks or other terms."""

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"plan {plan_id} exists with other tasks or other terms")
        self.plan_id = plan_id


class PlanNotFound(Refused, stored_name="PlanNotFound", code="plan-not-found"):
    """The store has no plan of this id."""

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"there is no plan {plan_id}")
        self.plan_id = plan_id


class TenantsBusy(Refused, stored_name="TenantsBusy", code="tenants-busy"):
    """A plan with ``conflict="reject"`` names tenants that have other work."""

    def __init__(self, plan_id: str, tenants: Sequence[str]) -> None:
        shown = ", ".join(tenants[:10]) + (", …" if len(tenants) > 10 else "")
        super().__init__(f"plan {plan_id}: {len(tenants)} tenants have other work: {shown}")
        self.plan_id, self.tenants = plan_id, tuple(tenants)  # all of them


class WorkerNotFound(Refused, stored_name="WorkerNotFound", code="worker-not-found"):
    """No worker of this name has been seen lately."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"no worker {worker} has been seen lately")
        self.worker = worker


class StoreFileInUse(Refused, OSError, stored_name="StoreFileInUse", code="store-file-in-use"):
    """An attempt of this process to open its store's file by `sqlite3` or `open`."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(
            f"{name} belongs to the store {path} that is open in this process: opening it outside "
            "the store would drop SQLite's locks and can destroy it; to copy it, use app.backup() "
            "or `holdfast backup`; to read it, use another process"
        )
        self.name, self.path = name, path


class BackupRefused(Refused, stored_name="BackupRefused", code="backup-refused"):
    """The store cannot be copied, or not to this target."""


class StoreError(HoldfastError, stored_name="StoreError", code="store"):
    """The store did not do what was asked."""


class StoreUnavailable(StoreError, stored_name="StoreUnavailable", code="store-unavailable"):
    """The store gave no answer. ``unwritten``: nothing was written; else nobody can tell."""

    unwritten = False


class PartlyUnavailable(
    StoreUnavailable, stored_name="PartlyUnavailable", code="store-partly-unavailable"
):
    """A part of the store answered. For a batch, ``answers`` has one answer for each element, or
    the error for an element that got none. A caller may also repeat the whole call."""

    def __init__(self, error: StoreError, answers: Sequence[Any]) -> None:
        super().__init__(str(error))
        self.answers = answers


class StoreFull(StoreUnavailable, stored_name="StoreFull", code="store-full"):
    """The store has no room left; nothing was written."""

    unwritten = True


class StoreUnusable(StoreError, stored_name="StoreUnusable", code="store-unusable"):
    """The store cannot be used until a person acts."""


class StoreForeign(StoreUnusable, stored_name="StoreForeign", code="store-foreign"):
    """The database at this address is not a store of Holdfast."""


class StoreTooNew(StoreUnusable, stored_name="StoreTooNew", code="store-too-new"):
    """A newer version of Holdfast has written the store."""


class StoreNotWritable(StoreUnusable, stored_name="StoreNotWritable", code="store-not-writable"):
    """The store can be read, but not written."""


class SerialisationError(StoreError, stored_name="SerialisationError", code="serialisation"):
    """A stored record cannot be read, or a value cannot be stored."""


class SinkError(HoldfastError, stored_name="SinkError", code="sink"):
    """A write into the user's own database failed."""


class SinkUnavailable(SinkError, stored_name="SinkUnavailable", code="sink-unavailable"):
    """The database of a sink does not answer; Holdfast tries the stage again."""


class StaleFence(SinkError, stored_name="StaleFence", code="stale-fence"):
    """A newer holder has written through the sink; this holder may not."""

    def __init__(self, scope: str, fence: int, seen: int) -> None:
        super().__init__(f"fence {fence} of {scope!r} is behind {seen}: a newer holder has written")
        self.scope, self.fence, self.seen = scope, fence, seen


class NotDelivered(HoldfastError, stored_name="NotDelivered", code="not-delivered"):
    """A webhook, a callback or an answer did not arrive."""


class SubmittedInPart(HoldfastError, stored_name="SubmittedInPart", code="submitted-in-part"):
    """Some payloads were accepted: ``accepted`` has the ids of their tasks, ``errors`` the errors
    of others, each by the payload's number, from 0. The rest was not sent. A payload that failed
    with StoreUnavailable may have been accepted: with keys, submit all payloads again."""

    def __init__(
        self, total: int, accepted: Mapping[int, str], errors: Mapping[int, Exception]
    ) -> None:
        number, error = next(iter(errors.items()))
        super().__init__(f"{len(accepted)} of {total} were accepted; number {number}: {error}")
        self.total, self.accepted, self.errors = total, accepted, errors


class TaskEnded(HoldfastError, stored_name="TaskEnded", code="task-ended"):
    """``handle.result()`` raises it when the task has no result to return."""

    def __init__(self, task_id: str, reason: str | None, failure: Failure | None = None) -> None:
        why = failure.summary if failure else reason or "no reason given"
        super().__init__(f"task {task_id}: {why}")
        self.task_id, self.reason, self.failure = task_id, reason, failure


class TaskFailed(TaskEnded, stored_name="TaskFailed", code="task-failed"):
    """The task is suspended and waits for a decision by a person."""


class TaskCancelled(TaskEnded, stored_name="TaskCancelled", code="task-cancelled"):
    """The task was cancelled."""


class TaskRolledBack(TaskEnded, stored_name="TaskRolledBack", code="task-rolled-back"):
    """The task was rolled back."""


class ResultTimeout(
    HoldfastError, TimeoutError, stored_name="ResultTimeout", code="result-timeout"
):
    """The caller stopped waiting for a result; the task goes on."""

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__(f"task {task_id} has not ended after {seconds:g} s; it goes on")
        self.task_id, self.seconds = task_id, seconds


class NoResult(HoldfastError, LookupError, stored_name="NoResult", code="no-result"):
    """``ctx.result_of`` named a stage that has no result."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage {stage!r} has no result in this run")
        self.stage = stage


class StageTimeout(HoldfastError, TimeoutError, stored_name="StageTimeout", code="stage-timeout"):
    """A stage ran past its timeout."""

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"stage {stage!r} ran past its timeout of {seconds:g} s")
        self.stage, self.seconds = stage, seconds


class CheckpointTooLarge(
    HoldfastError, stored_name="CheckpointTooLarge", code="checkpoint-too-large"
):
    """``ctx.data`` is over its limit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"ctx.data is {size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class Permanent(HoldfastError, stored_name="Permanent", code="permanent"):
    """Raise it in a stage where another attempt cannot help: Holdfast suspends the task now."""


class RetryAfter(HoldfastError, stored_name="RetryAfter", code="retry-after"):
    """Raise it in a stage to be tried again after ``delay`` (seconds, or ``"5m"``)."""

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"the stage asked for another attempt in {delay}")


class Unavailable(HoldfastError, stored_name="Unavailable", code="unavailable"):
    """Raise it in a stage or an undo when something that it needs does not answer. Holdfast tries
    again until it answers, and counts no failure:
    ``raise Unavailable("billing does not answer") from error``."""


class Snooze(HoldfastError, stored_name="Snooze", code="snooze"):
    """Raise it in a stage to be called again after ``delay``. Holdfast keeps what the stage has
    put into ``ctx.data``, counts no failure, and frees the slot meanwhile."""

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"the stage asked to be called again in {delay}")
