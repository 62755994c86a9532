"""The state machine of a task, as a table.

While a worker holds the lease of a task, only that holder changes its status (HOLDER commands).
While nobody holds it, only a submit or an operator does (OPERATOR commands). The store itself
makes three moves over whole sets of tasks: START when a worker claims a task, DUE when a time has
come, LOSE when a lease has lapsed. It gets them as data from here and knows no status by name.

An operator's PAUSE or CANCEL of a running task is a request; the holder applies it at the next
stage boundary. No status changes by itself: the last stage completes a task only because the
executor then sends COMPLETE.

`holdfast states` draws this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.domain.machine import Machine


class Status(StrEnum):
    """The status of a task."""

    CREATED = "CREATED"  # accepted, not yet released to its queue
    PENDING = "PENDING"  # waits for a worker, or for its tenant's line
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"  # a retry is due later
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # suspended: waits for a person
    CANCELLED = "CANCELLED"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    ROLLBACK_FAILED = "ROLLBACK_FAILED"  # suspended: waits for a person


class Command(StrEnum):
    """A command to a task, of a person, of its holder or of the store."""

    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    ROLLBACK = "rollback"
    DISCARD = "discard"

    PUT_CHECKPOINT = "put-checkpoint"
    REMOVE_CHECKPOINT = "remove-checkpoint"

    HOLD_BACK = "hold-back"

    START = "start"
    DUE = "due"
    LOSE = "lose"

    CHECKPOINT = "checkpoint"
    COMPLETE = "complete"
    RETRY_LATER = "retry-later"
    FAIL = "fail"
    YIELD = "yield"
    UNDO = "undo"
    FINISH_ROLLBACK = "finish-rollback"
    FAIL_ROLLBACK = "fail-rollback"


S, C = Status, Command

TABLE: Mapping[Status, Mapping[Command, Status]] = {
    S.CREATED: {
        C.RELEASE: S.PENDING,
        C.HOLD_BACK: S.CREATED,  # makes a release void that the plan may have sent
        C.CANCEL: S.CANCELLED,
    },
    S.PENDING: {
        C.START: S.RUNNING,
        C.DUE: S.PENDING,  # a worker had given it back for a while
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.CANCELLED,
    },
    S.RUNNING: {
        C.CHECKPOINT: S.RUNNING,
        C.COMPLETE: S.COMPLETED,
        C.RETRY_LATER: S.RETRYING,
        C.FAIL: S.FAILED,
        C.PAUSE: S.PAUSED,
        C.RESUME: S.RUNNING,  # withdraws a requested pause
        C.CANCEL: S.CANCELLED,
        C.YIELD: S.PENDING,
        C.LOSE: S.PENDING,
    },
    S.RETRYING: {
        C.DUE: S.PENDING,
        C.RETRY: S.PENDING,
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.CANCELLED,
    },
    S.PAUSED: {
        C.RESUME: S.PENDING,
        C.CANCEL: S.CANCELLED,
        C.ROLLBACK: S.ROLLING_BACK,
        C.PUT_CHECKPOINT: S.PAUSED,
        C.REMOVE_CHECKPOINT: S.PAUSED,
    },
    S.COMPLETED: {C.ROLLBACK: S.ROLLING_BACK},
    S.FAILED: {
        C.RETRY: S.PENDING,
        C.ROLLBACK: S.ROLLING_BACK,
        C.DISCARD: S.CANCELLED,
        C.HOLD_BACK: S.FAILED,
        C.PUT_CHECKPOINT: S.FAILED,
        C.REMOVE_CHECKPOINT: S.FAILED,
    },
    S.CANCELLED: {C.ROLLBACK: S.ROLLING_BACK},
    S.ROLLING_BACK: {
        C.START: S.ROLLING_BACK,
        C.UNDO: S.ROLLING_BACK,
        C.RETRY_LATER: S.ROLLING_BACK,
        C.DUE: S.ROLLING_BACK,
        C.YIELD: S.ROLLING_BACK,
        C.LOSE: S.ROLLING_BACK,
        C.FINISH_ROLLBACK: S.ROLLED_BACK,
        C.FAIL_ROLLBACK: S.ROLLBACK_FAILED,
    },
    S.ROLLED_BACK: {C.RETRY: S.PENDING, C.HOLD_BACK: S.ROLLED_BACK},
    S.ROLLBACK_FAILED: {C.ROLLBACK: S.ROLLING_BACK, C.DISCARD: S.CANCELLED},
}

OPERATOR = frozenset({C.RELEASE, C.PAUSE, C.RESUME, C.CANCEL, C.RETRY, C.ROLLBACK, C.DISCARD})
STORE = frozenset({C.START, C.DUE, C.LOSE})
PLAN = frozenset({C.HOLD_BACK})  # a plan also gives the commands of an operator
RECORD = frozenset({C.PUT_CHECKPOINT, C.REMOVE_CHECKPOINT})  # an operator's, on the record
HOLDER = frozenset(Command) - OPERATOR - STORE - PLAN - RECORD | {C.PAUSE, C.CANCEL}

SUSPENDED = frozenset({S.FAILED, S.ROLLBACK_FAILED})
SETTLED = frozenset({S.COMPLETED, S.CANCELLED, S.ROLLED_BACK})


MACHINE = Machine(TABLE, Command, asked=OPERATOR)
can, legal, step = MACHINE.can, MACHINE.legal, MACHINE.step
LEGAL = {
    status: MACHINE.legal(status) for status in Status
}  # the commands that an operator may give
