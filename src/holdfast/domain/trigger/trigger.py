"""A trigger: its record, its states as a table, and the changes that a store writes.

The lease of a trigger is its version: a claim raises it, so a scheduler that was slow, froze or
lost its lease writes against a version that is gone. Only a change that moves the trigger past its
fire times can make their tasks, in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.machine import Machine
from holdfast.domain.task.transition import Conflict, Existing, Insertion, Submission
from holdfast.domain.trigger.schedule import Schedule

KEEP_SECONDS = 7 * 86_400.0  # after its end
GRACE_SECONDS = 60.0  # late by more than this is a misfire
CATCH_UP_MAX = 100


class TriggerStatus(StrEnum):
    """The status of a trigger."""

    PENDING = "PENDING"  # waits for its time
    PROCESSING = "PROCESSING"  # a scheduler has it
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"  # its firing kept failing: waits for a person
    COMPLETED = "COMPLETED"  # there is no next time
    CANCELLED = "CANCELLED"


class TriggerCommand(StrEnum):
    """A command to a trigger, of a person or of a scheduler."""

    FIRE = "fire"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"

    LEASE = "lease"

    MOVE_ON = "move-on"  # to its next time, with the tasks of this one
    FINISH = "finish"  # there is no next time
    PUT_OFF = "put-off"
    SUSPEND = "suspend"


S, C = TriggerStatus, TriggerCommand

TABLE: Mapping[TriggerStatus, Mapping[TriggerCommand, TriggerStatus]] = {
    S.PENDING: {
        C.LEASE: S.PROCESSING,
        C.FIRE: S.PENDING,  # one more task now; the fire times stay as they are
        C.FINISH: S.COMPLETED,
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.CANCELLED,
    },
    S.PROCESSING: {
        C.LEASE: S.PROCESSING,  # a take-over
        C.MOVE_ON: S.PENDING,
        C.FINISH: S.COMPLETED,
        C.PUT_OFF: S.PENDING,
        C.SUSPEND: S.SUSPENDED,
        C.FIRE: S.PENDING,
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.CANCELLED,
    },
    S.PAUSED: {
        C.FIRE: S.PAUSED,
        C.FINISH: S.COMPLETED,
        C.RESUME: S.PENDING,
        C.CANCEL: S.CANCELLED,
    },
    S.SUSPENDED: {
        C.FIRE: S.SUSPENDED,
        C.FINISH: S.COMPLETED,
        C.RESUME: S.PENDING,
        C.CANCEL: S.CANCELLED,
    },
    S.COMPLETED: {},
    S.CANCELLED: {},
}

ASKED = frozenset({C.FIRE, C.PAUSE, C.RESUME, C.CANCEL})
MACHINE = Machine(TABLE, TriggerCommand, asked=ASKED)

LEASE = {status: row[C.LEASE] for status, row in TABLE.items() if C.LEASE in row}
PENDING = frozenset({S.PENDING, S.PROCESSING})  # `find_all_pending` returns these
UNFINISHED = frozenset(TriggerStatus) - {S.COMPLETED, S.CANCELLED}


class Misfire(StrEnum):
    """The treatment of fire times that passed while no worker was running."""

    ONCE = "once"  # one task for all of them
    SKIP = "skip"
    CATCH_UP = "catch-up"  # one task for each, of the newest ``catch_up_max``


class Overlap(StrEnum):
    """The treatment of a fire time while the trigger's last task still waits or runs."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"  # the fire time waits until that task has ended


class Definition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a trigger that a call or the code has defined."""

    schedule: Schedule
    target: str  # a task type
    payload: msgspec.Raw = msgspec.Raw(b"null")
    tenant: str | None = None
    queue: str | None = None  # None: the type's own
    user: Any = None
    misfire: Misfire = Misfire.ONCE
    catch_up_max: int = CATCH_UP_MAX
    grace_seconds: float = GRACE_SECONDS
    overlap: Overlap = Overlap.ALLOW
    jitter_seconds: float = 0.0
    declared: bool = False  # defined in code, not by a call
    keep_seconds: float = KEEP_SECONDS


class Trigger(Definition, frozen=True, kw_only=True, gc=False):
    id: str
    created_at: float
    status: TriggerStatus = TriggerStatus.PENDING
    version: int = 0  # 0: not saved yet
    fire_time: float | None  # the next one that needs a decision
    trigger_at: float | None  # when it is due: the fire time with its jitter, or later
    updated_at: float
    ended_at: float | None = None
    retry_count: int = 0  # failed tries in a row at this fire time
    unknown_since: float | None = None  # when a worker first did not know its type
    last_fire_time: float | None = None
    last_task: str | None = None
    fired: int = 0  # fire times with a task; if the clock is set back, some count twice
    missed: int = 0  # fire times without a task, at least
    reason: str | None = None  # why it rests, was put off or ended
    request: str = ""  # the one that wrote this version
    asked: str = ""  # the last request of a person, so that a repeat of it is recognised

    # The store's own, while a scheduler has it.
    owner: str | None = None
    lease_until: float | None = None  # by the store's clock

    @property
    def kind(self) -> str:
        return str(self.schedule.__struct_config__.tag)

    @property
    def legal(self) -> tuple[TriggerCommand, ...]:
        return MACHINE.legal(self.status)


class TriggerWrite(StrEnum):
    """The way in which a change is written."""

    COMPARE = "compare"  # to the version that was read, else it is stale
    SAVE = "save"  # over any stored version, as the next one
    REMOVE = "remove"  # the record is deleted, whatever its version


class TriggerChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write, which a store makes completely or not at all, to the version that was read. The
    store inserts its tasks in the same step.

    Version 0 was never saved: it is written only if there is no trigger of that id."""

    before: Trigger
    after: Trigger
    submissions: tuple[Submission, ...] = ()
    unless_unfinished: str | None = None  # refuse while this task waits or runs
    audit: Audit | None = None
    write: TriggerWrite = TriggerWrite.COMPARE


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a change that was written, with an answer for each of its submissions."""

    trigger: Trigger
    tasks: tuple[Insertion, ...] = ()


class TriggerStale(msgspec.Struct, frozen=True, gc=False):
    """The answer to a change over another version; ``trigger`` is the record as it is."""

    trigger: Trigger | None


class Overlapping(msgspec.Struct, frozen=True, gc=False):
    """The answer to a change that was refused because that task still waits or runs."""

    task_id: str


class NoRoom(msgspec.Struct, frozen=True, gc=False):
    """The answer to a change that was refused because a queue is full or its intake paused."""

    queue: str


TriggerOutcome = Changed | TriggerStale | Overlapping | NoRoom


def with_last_task(change: TriggerChange, answers: Sequence[Insertion]) -> Trigger:
    """Return the record to write when its tasks are inserted. If the key of the last one was used
    before, the task that has the key is the last task."""
    after = change.after
    if not answers or after.last_task != change.submissions[-1].task.id:
        return after
    last = answers[-1]
    if not isinstance(last, Existing | Conflict):
        return after
    return msgspec.structs.replace(after, last_task=last.task_id)
