"""A plan: one piece of work over many tenants, wave by wave. Its record, and its states as a table.

Three parties change a plan. Its creator seals it when all its tasks are in the store. The one
instance that holds its lease drives it. A person gives commands, which are written at once; the
driver then finds its next write refused, reads the plan again and follows the new status. A driver
changes tasks only by their own legal commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.machine import Machine
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.task.task import Lease
from holdfast.domain.task.transition import Submission

KEEP_SECONDS = 30 * 86_400.0


class PlanStatus(StrEnum):
    """The status of a plan."""

    CREATED = "CREATED"  # its tasks are being accepted
    READY = "READY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    HALTED = "HALTED"  # unhealthy: no new task starts
    COMPLETED = "COMPLETED"
    PARTIAL_FAILED = "PARTIAL_FAILED"  # ended, and some of its tasks are suspended
    FAILED = "FAILED"  # ended, and none of its tasks is completed
    CANCELLED = "CANCELLED"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    ROLLBACK_FAILED = "ROLLBACK_FAILED"


class PlanCommand(StrEnum):
    """A command to a plan, of a person or of its driver."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    ROLLBACK = "rollback"

    SEAL = "seal"

    START = "start"
    ADVANCE = "advance"
    HALT = "halt"
    UNWIND = "unwind"  # a rollback that follows from the terms of the plan
    COMPLETE = "complete"
    END_PARTLY = "end-partly"
    FAIL = "fail"
    FINISH_CANCEL = "finish-cancel"
    FINISH_ROLLBACK = "finish-rollback"
    FAIL_ROLLBACK = "fail-rollback"


S, C = PlanStatus, PlanCommand

TABLE: Mapping[PlanStatus, Mapping[PlanCommand, PlanStatus]] = {
    S.CREATED: {
        C.SEAL: S.READY,
        C.ADVANCE: S.CREATED,
        C.CANCEL: S.CREATED,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.READY: {
        C.START: S.RUNNING,
        C.ADVANCE: S.READY,
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.READY,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.RUNNING: {
        C.ADVANCE: S.RUNNING,
        C.PAUSE: S.PAUSED,
        C.CANCEL: S.RUNNING,
        C.ROLLBACK: S.ROLLING_BACK,  # no more tasks start; running ones end their stage first
        C.HALT: S.HALTED,
        C.COMPLETE: S.COMPLETED,
        C.END_PARTLY: S.PARTIAL_FAILED,
        C.FAIL: S.FAILED,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.PAUSED: {
        C.ADVANCE: S.PAUSED,
        C.RESUME: S.RUNNING,
        C.CANCEL: S.PAUSED,
        C.ROLLBACK: S.ROLLING_BACK,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.HALTED: {
        C.ADVANCE: S.HALTED,
        C.RESUME: S.RUNNING,  # the failures so far are forgiven
        C.RETRY: S.RUNNING,
        C.CANCEL: S.HALTED,
        C.ROLLBACK: S.ROLLING_BACK,
        C.UNWIND: S.ROLLING_BACK,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.COMPLETED: {C.ROLLBACK: S.ROLLING_BACK},
    S.PARTIAL_FAILED: {
        C.ADVANCE: S.PARTIAL_FAILED,
        C.COMPLETE: S.COMPLETED,  # a person has repaired the failed tasks, one by one
        C.RETRY: S.RUNNING,
        C.CANCEL: S.PARTIAL_FAILED,
        C.ROLLBACK: S.ROLLING_BACK,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.FAILED: {
        C.ADVANCE: S.FAILED,
        C.COMPLETE: S.COMPLETED,
        C.END_PARTLY: S.PARTIAL_FAILED,
        C.RETRY: S.RUNNING,
        C.CANCEL: S.FAILED,
        C.ROLLBACK: S.ROLLING_BACK,
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.CANCELLED: {C.ROLLBACK: S.ROLLING_BACK},
    S.ROLLING_BACK: {
        C.ADVANCE: S.ROLLING_BACK,
        C.FINISH_ROLLBACK: S.ROLLED_BACK,
        C.FAIL_ROLLBACK: S.ROLLBACK_FAILED,
    },
    S.ROLLED_BACK: {
        C.ADVANCE: S.ROLLED_BACK,
        C.RETRY: S.RUNNING,
        C.CANCEL: S.ROLLED_BACK,  # one wave was rolled back: give up the others
        C.ROLLBACK: S.ROLLING_BACK,  # roll the other waves back, too
        C.FINISH_CANCEL: S.CANCELLED,
    },
    S.ROLLBACK_FAILED: {
        C.ADVANCE: S.ROLLBACK_FAILED,
        C.FINISH_ROLLBACK: S.ROLLED_BACK,
        C.ROLLBACK: S.ROLLING_BACK,
        C.CANCEL: S.ROLLBACK_FAILED,
        C.FINISH_CANCEL: S.CANCELLED,
    },
}

ASKED = frozenset({C.PAUSE, C.RESUME, C.CANCEL, C.RETRY, C.ROLLBACK})
MACHINE = Machine(TABLE, PlanCommand, asked=ASKED)

SETTLED = frozenset({S.COMPLETED, S.CANCELLED, S.ROLLED_BACK})
SUSPENDED = frozenset({S.HALTED, S.PARTIAL_FAILED, S.FAILED, S.ROLLBACK_FAILED})


class TenantConflict(StrEnum):
    """The treatment of a task whose tenant is busy with other work."""

    WAIT = "wait"
    SKIP = "skip"
    REJECT = "reject"  # the whole plan, when it is made


class OnHalt(StrEnum):
    PAUSE = "pause"  # wait for a person
    ROLLBACK = "rollback"  # the wave
    ROLLBACK_PLAN = "rollback-plan"


class FailureRate(msgspec.Struct, frozen=True, gc=False, tag="failure-rate", tag_field="rule"):
    """Halt when more than this share of a wave has failed (0..1)."""

    rate: float

    def broken_by(self, failed: int, size: int) -> bool:
        return failed > self.rate * size + 1e-9  # 29 of 100 are not more than 0.29

    def __str__(self) -> str:
        return f"more than {self.rate * 100:.3g}% of a wave"


class FailureCount(msgspec.Struct, frozen=True, gc=False, tag="failure-count", tag_field="rule"):
    """Halt when more than this many tasks of a wave have failed."""

    count: int

    def broken_by(self, failed: int, size: int) -> bool:
        del size
        return failed > self.count

    def __str__(self) -> str:
        return f"more than {self.count} of a wave"


HaltRule = FailureRate | FailureCount


class MemberState(StrEnum):
    """The state in which the plan sees one of its tasks."""

    WAITING = "waiting"  # it has not begun
    AGAIN = "again"  # it has run, and waits to run again
    ADMITTED = "admitted"  # it has a slot
    UNDOING = "undoing"  # it has a slot, to be rolled back
    PAUSED = "paused"  # by a person
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # its tenant was busy
    ROLLED_BACK = "rolled-back"
    ROLLBACK_FAILED = "rollback-failed"


M = MemberState

SLOTTED = frozenset({M.ADMITTED, M.UNDOING})
ENDED = (M.COMPLETED, M.FAILED, M.CANCELLED, M.SKIPPED, M.ROLLED_BACK, M.ROLLBACK_FAILED)


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A task as the plan sees it. ``version``: the task's, when a command was decided for it; while
    the task has that version, the command has not been executed."""

    state: MemberState = MemberState.WAITING
    version: int = 0


WAITING = Member()

Moves = Mapping[int, Member]  # by the task's number in the plan

Counts = Mapping[MemberState, int]  # of one wave; waiting tasks are not counted


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: str
    total: int
    digest: str  # of its tasks and terms: the same id with another digest is a conflict
    max_concurrency: int | None = None
    waves: tuple[int, ...]  # how many tasks are released at the end of each; the last is all
    soak_seconds: float = 0.0
    halt_on: HaltRule | None = None
    on_halt: OnHalt = OnHalt.PAUSE
    conflict: TenantConflict = TenantConflict.WAIT
    keep_seconds: float = KEEP_SECONDS
    created_at: float

    status: PlanStatus = PlanStatus.CREATED
    status_since: float
    updated_at: float
    started_at: float | None = None
    settled_at: float | None = None
    version: int = 1
    wave: int = 0  # the present one
    wave_ran: bool = False  # it has released a task since it began
    soaks_since: float | None = None  # when the present wave ended
    counts: tuple[Counts, ...]  # one for each wave
    forgiven: int = 0  # failures of the present wave that no longer halt
    undo_from: int | None = None  # while rolling back: the first task to undo
    undo_upto: int | None = None  # and the one after the last
    undo_forced: bool = False  # despite newer work of the tenants
    cancel_requested: bool = False
    progress: float = 0.0
    reason: str | None = None  # given by a person, or why it halted
    request: str = ""  # the one that wrote this version
    asked: str = ""  # the last request of a person, so that a repeat of it is recognised

    # The store's own.
    lease: Lease | None = None
    fence: int = 0

    @property
    def settled(self) -> bool:
        """Return whether nothing is left; other waves may be left after a rollback of one."""
        return self.status in SETTLED and not self.left

    @property
    def is_stopped(self) -> bool:
        """Return whether the plan has ended, or waits for a person."""
        is_quiet = self.status in SETTLED | SUSPENDED | {PlanStatus.PAUSED}
        unwinds = self.status is PlanStatus.HALTED and self.on_halt is not OnHalt.PAUSE
        return is_quiet and not self.cancel_requested and not unwinds

    @property
    def legal(self) -> tuple[PlanCommand, ...]:
        return tuple(command for command in MACHINE.legal(self.status) if self.can(command))

    def can(self, command: PlanCommand) -> bool:
        """Return whether the command is legal; earlier requests count, too."""
        if self.cancel_requested and command in ASKED:
            return False
        if self.status is PlanStatus.ROLLED_BACK and command is PlanCommand.CANCEL:
            return self.left > 0
        return MACHINE.can(self.status, command)

    def wave_of(self, index: int) -> int:
        return next(wave for wave, end in enumerate(self.waves) if index < end)

    def span(self, wave: int) -> range:
        return range(self.waves[wave - 1] if wave else 0, self.waves[wave])

    def size(self, wave: int) -> int:
        return len(self.span(wave))

    def count(self, *states: MemberState, wave: int | None = None) -> int:
        of = self.counts if wave is None else self.counts[wave : wave + 1]
        return sum(counts.get(state, 0) for counts in of for state in states)

    def waiting(self, wave: int) -> int:
        return self.size(wave) - sum(self.counts[wave].values())

    @property
    def left(self) -> int:
        """Return how many tasks have not ended, or have failed and wait for a person."""
        unended = (*SLOTTED, MemberState.AGAIN, MemberState.PAUSED, MemberState.FAILED)
        return self.all_waiting + self.count(*unended)

    @property
    def all_waiting(self) -> int:
        return self.total - sum(sum(counts.values()) for counts in self.counts)


class PlanTasks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tasks of a plan, in its order. A store writes them once."""

    ids: tuple[str, ...]
    tenants: tuple[str | None, ...]


class PlanNext(StrEnum):
    """The party that acts on the plan next."""

    DRIVE = "drive"  # its holder goes on
    LOOK = "look"  # any driver, after ``delay_seconds``
    REST = "rest"  # nobody, until a person gives a command
    SETTLED = "settled"


class PlanChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write, which a store makes completely or not at all: to the version that was read and,
    with ``lease`` set, while that lease is on the record. A person or the creator has no lease."""

    before: Plan
    after: Plan
    lease: str | None = None
    moves: tuple[tuple[int, Member], ...] = ()  # by the task's number in the plan
    events: tuple[PlanEvent, ...]
    next: PlanNext
    delay_seconds: float = 0.0
    audit: Audit | None = None
    follows: tuple[Submission, ...] = ()  # tasks that the store inserts in the same step

    @property
    def is_news(self) -> bool:
        """Return whether waiters are woken; most steps of a driver concern nobody else."""
        drives = self.lease is not None and self.next is PlanNext.DRIVE
        return not drives or self.before.status is not self.after.status


class PlanApplied(msgspec.Struct, frozen=True, gc=False):
    plan: Plan


class PlanStale(msgspec.Struct, frozen=True, gc=False):
    """The answer to a change over another version or lease; ``plan`` is the record as it is."""

    plan: Plan | None


PlanOutcome = PlanApplied | PlanStale
