"""Everything Holdfast raises.

HoldfastError
├── DeclarationError            the code that declares tasks is wrong
├── InvalidInput                what was passed in is wrong; nothing was written
│   ├── InvalidName
│   ├── KeyRequired             its type has effects="key"
│   ├── InvalidPayload
│   │   ├── PayloadTooLarge
│   │   ├── PayloadTooDeep
│   │   └── NotJson
│   ├── InvalidSetting
│   ├── InvalidSchedule
│   ├── InvalidPlan
│   ├── UnknownQueue            no task, type or live worker has it
│   └── UrlRefused              nothing is ever sent there
├── Refused                     the input is right, the present state forbids it
│   ├── IllegalTransition
│   ├── NotSuspended
│   ├── CheckpointGone          there is nothing to go on from
│   ├── CheckpointConflict      another version is stored than was read
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
│   ├── StoreFileInUse          the process would open its store's file past the store
│   └── BackupRefused
├── StoreError
│   ├── StoreUnavailable        passing: try again
│   │   ├── PartlyUnavailable   some of it answers
│   │   └── StoreFull
│   ├── StoreUnusable           lasting: a person must act
│   │   ├── StoreForeign
│   │   ├── StoreTooNew
│   │   └── StoreNotWritable
│   └── SerialisationError
├── SinkError                   of the user's own database
│   ├── SinkUnavailable         passing: the stage is tried again
│   └── StaleFence              a newer holder has written; this one writes no more
├── NotDelivered                a webhook, a callback or an answer did not arrive
├── SubmittedInPart             of ``submit_many``: some were accepted, some were not
├── TaskEnded                   raised by ``handle.result()``
│   ├── TaskFailed
│   ├── TaskCancelled
│   └── TaskRolledBack
├── ResultTimeout               the task goes on; the caller stopped waiting
├── NoResult                    ``ctx.result_of`` of a stage that has none
├── StageTimeout                a stage ran past its deadline
├── CheckpointTooLarge          ``ctx.data`` over its limit
├── Permanent                   raised by user code: suspend at once
├── RetryAfter                  raised by user code: try again then
├── Unavailable                 raised by user code: a dependency does not answer; no failure
└── Snooze                      raised by user code: no failure, call again then

Each class has a stable ``code``: what the API, the CLI and the runbook call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import StrEnum

    from holdfast.domain.state import Status
    from holdfast.domain.task import Failure


class HoldfastError(Exception):
    code: ClassVar[str] = "error"


class DeclarationError(HoldfastError):
    code = "declaration"


class InvalidInput(HoldfastError):
    code = "invalid-input"


class InvalidName(InvalidInput):
    code = "invalid-name"

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"{kind} {value!r} is not a valid name: {rule}")
        self.kind, self.value, self.rule = kind, value, rule


class KeyRequired(InvalidInput):
    code = "key-required"


class InvalidPayload(InvalidInput):
    code = "invalid-payload"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class PayloadTooLarge(InvalidPayload):
    code = "payload-too-large"

    def __init__(self, field: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(field, f"{size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PayloadTooDeep(InvalidPayload):
    code = "payload-too-deep"

    def __init__(self, field: str, limit: int) -> None:
        super().__init__(field, f"nested more than {limit} levels deep")
        self.limit = limit


class NotJson(InvalidPayload):
    code = "not-json"


class InvalidSetting(InvalidInput):
    code = "invalid-setting"

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name}={value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class InvalidSchedule(InvalidInput):
    code = "invalid-schedule"

    def __init__(self, given: object, reason: str) -> None:
        super().__init__(f"{given!r}: {reason}")
        self.given, self.reason = given, reason


class InvalidPlan(InvalidInput):
    code = "invalid-plan"


class UnknownQueue(InvalidInput):
    code = "unknown-queue"

    def __init__(self, queue: str, *, paused: bool = False) -> None:
        nobody = f"queue: no task type and no live worker has a queue {queue}"
        super().__init__(f"{nobody}, and no task is in it; force pauses it" if paused else nobody)
        self.queue = queue


class UrlRefused(InvalidInput):
    code = "url-refused"


class Refused(HoldfastError):
    code = "refused"


class IllegalTransition(Refused):
    code = "illegal-transition"

    def __init__(self, status: StrEnum, command: StrEnum, legal: Iterable[StrEnum] = ()) -> None:
        names = ", ".join(legal) or "nothing"
        super().__init__(f"{command} is not legal in {status}; legal here: {names}")
        self.status, self.command = status, command


class NotSuspended(Refused):
    code = "not-suspended"

    def __init__(self, task_id: str, status: Status) -> None:
        super().__init__(f"task {task_id} is {status}, not suspended")
        self.task_id, self.status = task_id, status


class CheckpointGone(Refused):
    code = "checkpoint-gone"

    def __init__(self, task_id: str, completed: int) -> None:
        said = "its checkpoint is gone: roll it back, or start it over (from_checkpoint=False)"
        super().__init__(f"task {task_id} has completed {completed} stages and {said}")


class CheckpointConflict(Refused):
    code = "checkpoint-conflict"

    def __init__(self, task_id: str, stored: int | str, given: int) -> None:
        has = f"a checkpoint of version {stored}" if isinstance(stored, int) else stored
        super().__init__(f"task {task_id} has {has}, not {given}")


class TenantMovedOn(Refused):
    code = "tenant-moved-on"

    def __init__(self, task_id: str, tenant: str | None) -> None:
        why = "rested; running it now would go over that work (force to do it all the same)"
        super().__init__(f"newer work has run for tenant {tenant} since task {task_id} {why}")
        self.task_id, self.tenant = task_id, tenant


class KeyConflict(Refused):
    code = "key-conflict"

    def __init__(self, tenant: str | None, key: str, task_id: str) -> None:
        said = f"key {key!r} was used with another payload or callback"
        super().__init__(f"{said}, for task {task_id}")
        self.tenant, self.key, self.task_id = tenant, key, task_id


class QueueFull(Refused):
    code = "queue-full"

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} holds its limit of {limit} waiting tasks")
        self.queue, self.limit = queue, limit


class IntakePaused(Refused):
    code = "intake-paused"

    def __init__(self, queue: str) -> None:
        super().__init__(f"the intake of queue {queue!r} is paused; nothing was accepted")
        self.queue = queue


class Contended(Refused):
    code = "contended"

    def __init__(self, subject: str, tries: int) -> None:
        super().__init__(f"{subject} changed under each of {tries} tries; ask again")
        self.subject, self.tries = subject, tries


class TriggerConflict(Refused):
    code = "trigger-conflict"

    def __init__(self, trigger_id: str) -> None:
        how = "(replace=True replaces it, unless it is another tenant's or declared in code)"
        super().__init__(f"there is a trigger {trigger_id} with another definition {how}")
        self.trigger_id = trigger_id


class TriggerNotFound(Refused):
    code = "trigger-not-found"

    def __init__(self, trigger_id: str) -> None:
        super().__init__(f"no trigger {trigger_id}")
        self.trigger_id = trigger_id


class TaskNotFound(Refused):
    code = "task-not-found"

    def __init__(self, task_id: str, why: str = "") -> None:
        super().__init__(f"no task {task_id}{why}")
        self.task_id = task_id


class BulkNotFound(Refused):
    code = "bulk-not-found"

    def __init__(self, bulk_id: str) -> None:
        super().__init__(f"no bulk action {bulk_id}")
        self.bulk_id = bulk_id


class PlanConflict(Refused):
    code = "plan-conflict"

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"plan {plan_id} was made with other tasks or other terms")
        self.plan_id = plan_id


class PlanNotFound(Refused):
    code = "plan-not-found"

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"no plan {plan_id}")
        self.plan_id = plan_id


class TenantsBusy(Refused):
    """``tenants`` has all of them."""

    code = "tenants-busy"

    def __init__(self, plan_id: str, tenants: Sequence[str]) -> None:
        shown = ", ".join(tenants[:10]) + (", …" if len(tenants) > 10 else "")
        super().__init__(f"plan {plan_id}: {len(tenants)} tenants have other work: {shown}")
        self.plan_id, self.tenants = plan_id, tuple(tenants)


class WorkerNotFound(Refused):
    code = "worker-not-found"

    def __init__(self, worker: str) -> None:
        super().__init__(f"no worker {worker} was seen lately")
        self.worker = worker


class StoreFileInUse(Refused, OSError):
    """Raised where this process opens its store's file past the store, by `sqlite3` or `open`."""

    code = "store-file-in-use"

    def __init__(self, name: str, path: str) -> None:
        super().__init__(
            f"{name} belongs to the store {path} that is open in this process: opening it past the "
            "store would drop SQLite's locks and destroy it; for a copy use app.backup() or "
            "`holdfast backup`, to look at it another process"
        )
        self.name, self.path = name, path


class BackupRefused(Refused):
    code = "backup-refused"


class StoreError(HoldfastError):
    code = "store"


class StoreUnavailable(StoreError):
    """``unwritten``: surely nothing was. Else nobody can tell: an answer may have been lost."""

    code = "store-unavailable"
    unwritten = False


class PartlyUnavailable(StoreUnavailable):
    """``answers``: what the rest of the store said. For a batch one for each of its elements, with
    the error in the place of those that got none; whoever does not look may ask again for all."""

    code = "store-partly-unavailable"

    def __init__(self, error: StoreError, answers: Sequence[Any]) -> None:
        super().__init__(str(error))
        self.answers = answers


class StoreFull(StoreUnavailable):
    code = "store-full"
    unwritten = True


class StoreUnusable(StoreError):
    code = "store-unusable"


class StoreForeign(StoreUnusable):
    code = "store-foreign"


class StoreTooNew(StoreUnusable):
    code = "store-too-new"


class StoreNotWritable(StoreUnusable):
    code = "store-not-writable"


class SerialisationError(StoreError):
    code = "serialisation"


class SinkError(HoldfastError):
    code = "sink"


class SinkUnavailable(SinkError):
    code = "sink-unavailable"


class StaleFence(SinkError):
    code = "stale-fence"

    def __init__(self, scope: str, fence: int, seen: int) -> None:
        super().__init__(f"fence {fence} of {scope!r} is behind {seen}: another one holds it now")
        self.scope, self.fence, self.seen = scope, fence, seen


class NotDelivered(HoldfastError):
    code = "not-delivered"


class SubmittedInPart(HoldfastError):
    """By the number of the payload, from 0: ``accepted`` has the ids of the tasks that are kept,
    ``errors`` what was said of others. The rest was not sent. A StoreUnavailable among the errors
    may have been accepted all the same: with keys, submit all of them again."""

    code = "submitted-in-part"

    def __init__(
        self, total: int, accepted: Mapping[int, str], errors: Mapping[int, Exception]
    ) -> None:
        number, error = next(iter(errors.items()))
        super().__init__(f"{len(accepted)} of {total} were accepted; number {number}: {error}")
        self.total, self.accepted, self.errors = total, accepted, errors


class TaskEnded(HoldfastError):
    code = "task-ended"

    def __init__(self, task_id: str, reason: str | None, failure: Failure | None = None) -> None:
        said = failure.summary if failure else reason or "no reason given"
        super().__init__(f"task {task_id}: {said}")
        self.task_id, self.reason, self.failure = task_id, reason, failure


class TaskFailed(TaskEnded):
    code = "task-failed"


class TaskCancelled(TaskEnded):
    code = "task-cancelled"


class TaskRolledBack(TaskEnded):
    code = "task-rolled-back"


class ResultTimeout(HoldfastError, TimeoutError):
    code = "result-timeout"

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__(f"task {task_id} has not ended after {seconds:g} s; it goes on")
        self.task_id, self.seconds = task_id, seconds


class NoResult(HoldfastError, LookupError):
    code = "no-result"

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage {stage!r} has no result in this run")
        self.stage = stage


class StageTimeout(HoldfastError, TimeoutError):
    code = "stage-timeout"

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"stage {stage!r} ran past its timeout of {seconds:g} s")
        self.stage, self.seconds = stage, seconds


class CheckpointTooLarge(HoldfastError):
    code = "checkpoint-too-large"

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"ctx.data is {size_bytes} bytes of JSON, the limit is {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class Permanent(HoldfastError):
    """Raise it in a stage: trying again cannot help, suspend the task for a person now."""

    code = "permanent"


class RetryAfter(HoldfastError):
    """Raise it in a stage: try again after ``delay`` (seconds, or ``"5m"``)."""

    code = "retry-after"

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"asked to be tried again in {delay}")


class Unavailable(HoldfastError):
    """Raise it in a stage or an undo: something it needs does not answer at present. It is tried
    again until it does, and no failure is counted:
    ``raise Unavailable("billing does not answer") from error``."""

    code = "unavailable"


class Snooze(HoldfastError):
    """Raise it in a stage: nothing went wrong, call this stage again after ``delay``. What it has
    put into ``ctx.data`` is kept, no failure is counted, and meanwhile it takes no slot."""

    code = "snooze"

    def __init__(self, delay: float | str, message: str = "") -> None:
        from holdfast.domain.durations import seconds

        self.delay_seconds = seconds(delay)
        super().__init__(message or f"asked to be called again in {delay}")
