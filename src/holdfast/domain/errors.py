"""Every error that Holdfast raises.

HoldfastError
├── DeclarationError            the code that declares tasks is wrong
├── InvalidInput                what was passed in is wrong; nothing was written
│   ├── InvalidName
│   ├── KeyRequired             the type has effects="key", and no key was given
│   ├── InvalidPayload
│   │   ├── PayloadTooLarge
│   │   ├── PayloadTooDeep
│   │   └── NotJson
│   ├── InvalidSetting
│   ├── InvalidSchedule
│   ├── InvalidPlan
│   ├── UnknownQueue            no task, type or live worker uses it
│   └── UrlRefused              Holdfast sends nothing to this address
├── Refused                     the input is valid, but the present state forbids it
│   ├── IllegalTransition
│   ├── NotSuspended
│   ├── CheckpointGone          the task has no checkpoint to continue from
│   ├── CheckpointConflict      the stored version is not the one that was read
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
│   ├── StoreFileInUse          this process opens its store's file around the store
│   └── BackupRefused
├── StoreError
│   ├── StoreUnavailable        temporary: try again
│   │   ├── PartlyUnavailable   a part of the store answers
│   │   └── StoreFull
│   ├── StoreUnusable           permanent: a person must act
│   │   ├── StoreForeign
│   │   ├── StoreTooNew
│   │   └── StoreNotWritable
│   └── SerialisationError
├── SinkError                   an error of the user's own database
│   ├── SinkUnavailable         temporary: Holdfast tries the stage again
│   └── StaleFence              a newer holder has written; this holder may not
├── NotDelivered                a webhook, a callback or an answer did not arrive
├── SubmittedInPart             ``submit_many`` accepted only some of the payloads
├── TaskEnded                   raised by ``handle.result()``
│   ├── TaskFailed
│   ├── TaskCancelled
│   └── TaskRolledBack
├── ResultTimeout               the caller stopped waiting; the task goes on
├── NoResult                    ``ctx.result_of`` named a stage without a result
├── StageTimeout                a stage ran past its deadline
├── CheckpointTooLarge          ``ctx.data`` is over its limit
├── Permanent                   raised by user code: suspend the task now
├── RetryAfter                  raised by user code: try again after a delay
├── Unavailable                 raised by user code: a dependency does not answer
└── Snooze                      raised by user code: call the stage again later

Each class has a stable ``code`` for API, CLI and runbook, and a ``stored_name`` for failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.domain.error_text import StoredName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import StrEnum

    from holdfast.domain.task.state import Status
    from holdfast.domain.task.task import Failure


class HoldfastError(Exception, StoredName, stored_name="HoldfastError"):
    code: ClassVar[str] = "error"


class DeclarationError(HoldfastError, stored_name="DeclarationError"):
    code = "declaration"


class InvalidInput(HoldfastError, stored_name="InvalidInput"):
    code = "invalid-input"


class InvalidName(InvalidInput, stored_name="InvalidName"):
    code = "invalid-name"

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"{kind} {value!r} is not a valid name: {rule}")
        self.kind, self.value, self.rule = kind, value, rule


class KeyRequired(InvalidInput, stored_name="KeyRequired"):
    code = "key-required"


class InvalidPayload(InvalidInput, stored_name="InvalidPayload"):
    code = "invalid-payload"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class PayloadTooLarge(InvalidPayload, stored_name="PayloadTooLarge"):
    code = "payload-too-large"

    def __init__(self, field: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(field, f"{size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PayloadTooDeep(InvalidPayload, stored_name="PayloadTooDeep"):
    code = "payload-too-deep"

    def __init__(self, field: str, limit: int) -> None:
        super().__init__(field, f"nested more than {limit} levels deep")
        self.limit = limit


class NotJson(InvalidPayload, stored_name="NotJson"):
    code = "not-json"


class InvalidSetting(InvalidInput, stored_name="InvalidSetting"):
    code = "invalid-setting"

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name}={value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class InvalidSchedule(InvalidInput, stored_name="InvalidSchedule"):
    code = "invalid-schedule"

    def __init__(self, given: object, reason: str) -> None:
        super().__init__(f"{given!r}: {reason}")
        self.given, self.reason = given, reason


class InvalidPlan(InvalidInput, stored_name="InvalidPlan"):
    code = "invalid-plan"


class UnknownQueue(InvalidInput, stored_name="UnknownQueue"):
    code = "unknown-queue"

    def __init__(self, queue: str, *, paused: bool = False) -> None:
        nobody = f"queue: no task type and no live worker has a queue {queue}"
        super().__init__(f"{nobody}, and no task is in it; force pauses it" if paused else nobody)
        self.queue = queue


class UrlRefused(InvalidInput, stored_name="UrlRefused"):
    code = "url-refused"


class Refused(HoldfastError, stored_name="Refused"):
    code = "refused"


class IllegalTransition(Refused, stored_name="IllegalTransition"):
    code = "illegal-transition"

    def __init__(self, status: StrEnum, command: StrEnum, legal: Iterable[StrEnum] = ()) -> None:
        names = ", ".join(legal) or "nothing"
        super().__init__(f"{command} is not legal in {status}; legal here: {names}")
        self.status, self.command = status, command


class NotSuspended(Refused, stored_name="NotSuspended"):
    code = "not-suspended"

    def __init__(self, task_id: str, status: Status) -> None:
        super().__init__(f"task {task_id} is {status}, not suspended")
        self.task_id, self.status = task_id, status


class CheckpointGone(Refused, stored_name="CheckpointGone"):
    code = "checkpoint-gone"

    def __init__(self, task_id: str, completed: int) -> None:
        lost = "its checkpoint is gone: roll it back, or start it over (from_checkpoint=False)"
        super().__init__(f"task {task_id} has completed {completed} stages and {lost}")


class CheckpointConflict(Refused, stored_name="CheckpointConflict"):
    code = "checkpoint-conflict"

    def __init__(self, task_id: str, stored: int | str, given: int) -> None:
        has = f"a checkpoint of version {stored}" if isinstance(stored, int) else stored
        super().__init__(f"task {task_id} has {has}, not {given}")


class TenantMovedOn(Refused, stored_name="TenantMovedOn"):
    code = "tenant-moved-on"

    def __init__(self, task_id: str, tenant: str | None) -> None:
        why = "stopped; running it now would overwrite that work (use force to run it anyway)"
        super().__init__(f"newer work has run for tenant {tenant} since task {task_id} {why}")
        self.task_id, self.tenant = task_id, tenant


class KeyConflict(Refused, stored_name="KeyConflict"):
    code = "key-conflict"

    def __init__(self, tenant: str | None, key: str, task_id: str) -> None:
        super().__init__(f"key {key!r} of task {task_id} has another payload or callback")
        self.tenant, self.key, self.task_id = tenant, key, task_id


class QueueFull(Refused, stored_name="QueueFull"):
    code = "queue-full"

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} has reached its limit of {limit} waiting tasks")
        self.queue, self.limit = queue, limit


class IntakePaused(Refused, stored_name="IntakePaused"):
    code = "intake-paused"

    def __init__(self, queue: str) -> None:
        super().__init__(f"the intake of queue {queue!r} is paused; nothing was accepted")
        self.queue = queue


class Contended(Refused, stored_name="Contended"):
    code = "contended"

    def __init__(self, subject: str, tries: int) -> None:
        super().__init__(f"{subject} was changed by others in each of {tries} attempts; try again")
        self.subject, self.tries = subject, tries


class TriggerConflict(Refused, stored_name="TriggerConflict"):
    code = "trigger-conflict"

    def __init__(self, trigger_id: str) -> None:
        how = "(replace=True replaces it, unless it is another tenant's or declared in code)"
        super().__init__(f"trigger {trigger_id} exists with another definition {how}")
        self.trigger_id = trigger_id


class TriggerNotFound(Refused, stored_name="TriggerNotFound"):
    code = "trigger-not-found"

    def __init__(self, trigger_id: str) -> None:
        super().__init__(f"no trigger {trigger_id}")
        self.trigger_id = trigger_id


class TaskNotFound(Refused, stored_name="TaskNotFound"):
    code = "task-not-found"

    def __init__(self, task_id: str, why: str = "") -> None:
        super().__init__(f"no task {task_id}{why}")
        self.task_id = task_id


class BulkNotFound(Refused, stored_name="BulkNotFound"):
    code = "bulk-not-found"

    def __init__(self, bulk_id: str) -> None:
        super().__init__(f"no bulk action {bulk_id}")
        self.bulk_id = bulk_id


class PlanConflict(Refused, stored_name="PlanConflict"):
    code = "plan-conflict"

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"plan {plan_id} exists with other tasks or other terms")
        self.plan_id = plan_id


class PlanNotFound(Refused, stored_name="PlanNotFound"):
    code = "plan-not-found"

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"no plan {plan_id}")
        self.plan_id = plan_id


class TenantsBusy(Refused, stored_name="TenantsBusy"):
    code = "tenants-busy"

    def __init__(self, plan_id: str, tenants: Sequence[str]) -> None:
        shown = ", ".join(tenants[:10]) + (", …" if len(tenants) > 10 else "")
        super().__init__(f"plan {plan_id}: {len(tenants)} tenants have other work: {shown}")
        self.plan_id, self.tenants = plan_id, tuple(tenants)  # all of them


class WorkerNotFound(Refused, stored_name="WorkerNotFound"):
    code = "worker-not-found"

    def __init__(self, worker: str) -> None:
        super().__init__(f"no worker {worker} was seen lately")
        self.worker = worker


class StoreFileInUse(Refused, OSError, stored_name="StoreFileInUse"):
    """An attempt of this process to open its store's file by `sqlite3` or `open`."""

    code = "store-file-in-use"

    def __init__(self, name: str, path: str) -> None:
        super().__init__(
            f"{name} belongs to the store {path} that is open in this process: opening it outside "
            "the store would drop SQLite's locks and can destroy it; to copy it, use app.backup() "
            "or `holdfast backup`; to read it, use another process"
        )
        self.name, self.path = name, path


class BackupRefused(Refused, stored_name="BackupRefused"):
    code = "backup-refused"


class StoreError(HoldfastError, stored_name="StoreError"):
    code = "store"


class StoreUnavailable(StoreError, stored_name="StoreUnavailable"):
    """The store gave no answer. ``unwritten``: nothing was written; else nobody can tell."""

    code = "store-unavailable"
    unwritten = False


class PartlyUnavailable(StoreUnavailable, stored_name="PartlyUnavailable"):
    """A part of the store answered. For a batch, ``answers`` has one answer for each element, or
    the error for an element that got none. A caller may also repeat the whole call."""

    code = "store-partly-unavailable"

    def __init__(self, error: StoreError, answers: Sequence[Any]) -> None:
        super().__init__(str(error))
        self.answers = answers


class StoreFull(StoreUnavailable, stored_name="StoreFull"):
    code = "store-full"
    unwritten = True


class StoreUnusable(StoreError, stored_name="StoreUnusable"):
    code = "store-unusable"


class StoreForeign(StoreUnusable, stored_name="StoreForeign"):
    code = "store-foreign"


class StoreTooNew(StoreUnusable, stored_name="StoreTooNew"):
    code = "store-too-new"


class StoreNotWritable(StoreUnusable, stored_name="StoreNotWritable"):
    code = "store-not-writable"


class SerialisationError(StoreError, stored_name="SerialisationError"):
    code = "serialisation"


class SinkError(HoldfastError, stored_name="SinkError"):
    code = "sink"


class SinkUnavailable(SinkError, stored_name="SinkUnavailable"):
    code = "sink-unavailable"


class StaleFence(SinkError, stored_name="StaleFence"):
    code = "stale-fence"

    def __init__(self, scope: str, fence: int, seen: int) -> None:
        super().__init__(f"fence {fence} of {scope!r} is behind {seen}: a newer holder has written")
        self.scope, self.fence, self.seen = scope, fence, seen


class NotDelivered(HoldfastError, stored_name="NotDelivered"):
    code = "not-delivered"


class SubmittedInPart(HoldfastError, stored_name="SubmittedInPart"):
    """Some payloads were accepted: ``accepted`` has the ids of their tasks, ``errors`` the errors
    of others, each by the payload's number, from 0. The rest was not sent. A payload that failed
    with StoreUnavailable may have been accepted: with keys, submit all payloads again."""

    code = "submitted-in-part"

    def __init__(
        self, total: int, accepted: Mapping[int, str], errors: Mapping[int, Exception]
    ) -> None:
        number, error = next(iter(errors.items()))
        super().__init__(f"{len(accepted)} of {total} were accepted; number {number}: {error}")
        self.total, self.accepted, self.errors = total, accepted, errors


class TaskEnded(HoldfastError, stored_name="TaskEnded"):
    code = "task-ended"

    def __init__(self, task_id: str, reason: str | None, failure: Failure | None = None) -> None:
        why = failure.summary if failure else reason or "no reason given"
        super().__init__(f"task {task_id}: {why}")
        self.task_id, self.reason, self.failure = task_id, reason, failure


class TaskFailed(TaskEnded, stored_name="TaskFailed"):
    code = "task-failed"


class TaskCancelled(TaskEnded, stored_name="TaskCancelled"):
    code = "task-cancelled"


class TaskRolledBack(TaskEnded, stored_name="TaskRolledBack"):
    code = "task-rolled-back"


class ResultTimeout(HoldfastError, TimeoutError, stored_name="ResultTimeout"):
    code = "result-timeout"

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__(f"task {task_id} has not ended after {seconds:g} s; it goes on")
        self.task_id, self.seconds = task_id, seconds


class NoResult(HoldfastError, LookupError, stored_name="NoResult"):
    code = "no-result"

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage {stage!r} has no result in this run")
        self.stage = stage


class StageTimeout(HoldfastError, TimeoutError, stored_name="StageTimeout"):
    code = "stage-timeout"

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"stage {stage!r} ran past its timeout of {seconds:g} s")
        self.stage, self.seconds = stage, seconds


class CheckpointTooLarge(HoldfastError, stored_name="CheckpointTooLarge"):
    code = "checkpoint-too-large"

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"ctx.data is {size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class Permanent(HoldfastError, stored_name="Permanent"):
    """Raise it in a stage where another attempt cannot help: Holdfast suspends the task now."""

    code = "permanent"


class RetryAfter(HoldfastError, stored_name="RetryAfter"):
    """Raise it in a stage to be tried again after ``delay`` (seconds, or ``"5m"``)."""

    code = "retry-after"

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"the stage asked for another attempt in {delay}")


class Unavailable(HoldfastError, stored_name="Unavailable"):
    """Raise it in a stage or an undo when something that it needs does not answer. Holdfast tries
    again until it answers, and counts no failure:
    ``raise Unavailable("billing does not answer") from error``."""

    code = "unavailable"


class Snooze(HoldfastError, stored_name="Snooze"):
    """Raise it in a stage to be called again after ``delay``. Holdfast keeps what the stage has
    put into ``ctx.data``, counts no failure, and frees the slot meanwhile."""

    code = "snooze"

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"the stage asked to be called again in {delay}")
