"""A bulk action: one command for all tasks that a filter matches, and how far it has got.

The commands are those of an operator. Only tasks in the statuses named for a command are taken.
A canary goes ahead in small steps and looks how the tasks of each end before it takes more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import IllegalTransition, InvalidInput
from holdfast.domain.plan.plan import FailureRate, HaltRule
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.state import SETTLED, SUSPENDED, Command, Status, can
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition

TYPE, QUEUE, STAGE = "holdfast.bulk", "holdfast", "act"

ROUND_SECONDS = 5.0  # of work between two commits of how far it has got
CHUNK_LIMIT = 500  # tasks of a round: their ids have to fit into the data of a checkpoint
WINDOW_LIMIT = 500  # tasks that were set going and have not come to rest
LOWEST_RATE, HIGHEST_RATE = 1.0, 1000.0  # tasks a second
STEPS_LIMIT = 10


class BulkCommand(StrEnum):
    RESUME = "resume"  # what is suspended or paused goes on, forward or backward as it went
    RETRY = "retry"
    DISCARD = "discard"
    CANCEL = "cancel"
    PAUSE = "pause"
    ROLLBACK = "rollback"


WATCHED = frozenset({BulkCommand.RESUME, BulkCommand.RETRY})  # those that can fail again
OF_WHAT_MOVES = frozenset({BulkCommand.CANCEL, BulkCommand.PAUSE})  # it is stopped as it is found


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """Take so many first, then so many, then the rest; go on only when those have come to rest,
    and halt when more than ``stop_at`` of all that were set going have failed again."""

    steps: tuple[int, ...] = (1, 10)
    stop_at: HaltRule = FailureRate(0.2)
    wait_seconds: float = 600.0  # for those of a step to come to rest
    window: int = WINDOW_LIMIT  # of the rest, at most so many whose end is not known yet


class BulkCounts(msgspec.Struct, frozen=True, kw_only=True):
    done: int = 0
    refused: Mapping[str, int] = {}  # by the code of the error
    changed: int = 0  # by somebody else, or by itself, since it was counted: left alone
    gone: int = 0
    ended: int = 0  # of a canary: came to rest, and well
    failed: int = 0  # of a canary: failed again

    @property
    def taken(self) -> int:
        return self.done + sum(self.refused.values()) + self.changed + self.gone


class Picked(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    version: int  # most commands act on it in this version or not at all


class BulkState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a bulk action, kept from round to round."""

    matching: int = 0  # when it began
    more: bool = False  # there were more than were counted
    cursor: str | None = None
    looked_through: bool = False
    pending: tuple[Picked, ...] = ()  # picked and not acted on, as far as was saved
    watched: tuple[str, ...] = ()  # of a canary: set going, and not at rest yet
    step: int = 0  # of a canary; past the last: the rest
    in_step: int = 0  # set going in this step
    waits_since: float | None = None  # for the ends of those that are watched
    counts: BulkCounts = BulkCounts()
    halted: str = ""  # why


def legal_in(command: BulkCommand) -> tuple[Status, ...]:
    """All statuses in which it can act."""
    return tuple(status for status in Status if _acts_in(command, status))


def meant_in(command: BulkCommand) -> tuple[Status, ...]:
    """Return the statuses that are meant where none is named; an ended task is touched only by
    name."""
    return tuple(status for status in legal_in(command) if status not in SETTLED)


def _acts_in(command: BulkCommand, status: Status) -> bool:
    if command is BulkCommand.RESUME:
        return status in SUSPENDED or status is Status.PAUSED
    return can(status, Command(command))


def check_statuses(command: BulkCommand, statuses: Sequence[Status]) -> tuple[Status, ...]:
    legal = legal_in(command)
    for status in statuses:
        if status not in legal:
            raise InvalidInput(f"{command} does nothing for {status} tasks; for {', '.join(legal)}")
    return tuple(dict.fromkeys(statuses)) or meant_in(command)


def check_rate(rate: float) -> float:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InvalidInput(f"rate {rate!r} is not between {LOWEST_RATE:g} and {HIGHEST_RATE:g}")
    return float(rate)


def check_canary(command: BulkCommand, canary: Canary) -> Canary:
    if command not in WATCHED:
        raise InvalidInput(f"a canary is for {' and '.join(sorted(WATCHED))}, not for {command}")
    steps, rule = canary.steps, canary.stop_at
    if not 1 <= len(steps) <= STEPS_LIMIT or not all(1 <= n <= WINDOW_LIMIT for n in steps):
        said = f"1 to {STEPS_LIMIT} of them, each from 1 to {WINDOW_LIMIT} tasks"
        raise InvalidInput(f"steps {steps}: {said}")
    if not 1 <= canary.window <= WINDOW_LIMIT:
        raise InvalidInput(f"window {canary.window}: from 1 to {WINDOW_LIMIT} tasks")
    if not canary.wait_seconds > 0:
        raise InvalidInput(f"wait_seconds {canary.wait_seconds} is not above zero")
    limit = rule.rate if isinstance(rule, FailureRate) else rule.count
    if limit < 0 or (isinstance(rule, FailureRate) and not limit < 1):
        raise InvalidInput(f"stop_at {limit}: a share below 1, or a number from 0")
    return canary


def decision(
    command: BulkCommand, task: Task, ask: OperatorRequest, *, force: bool, from_checkpoint: bool
) -> Transition:
    """Return what the command would do to this task; Refused when it cannot."""
    if command in _PLAIN:
        return _PLAIN[command](task, ask)
    if command is BulkCommand.RETRY:
        return operate.retry(task, ask, from_checkpoint=from_checkpoint, force=force)
    if command is BulkCommand.ROLLBACK:
        return operate.rollback(task, ask, force=force)
    if task.suspended:
        return operate.resume_suspended(task, ask, force=force)
    if task.status is not Status.PAUSED:
        raise IllegalTransition(task.status, Command.RESUME, task.legal)
    return operate.resume(task, ask, force=force)


def is_asked(command: BulkCommand, task: Task) -> bool:
    """The request is on it already, and its holder will see it."""
    asks = {BulkCommand.CANCEL: task.cancel_requested, BulkCommand.PAUSE: task.pause_requested}
    return asks.get(command, False)


_PLAIN: Mapping[BulkCommand, Callable[[Task, OperatorRequest], Transition]] = {
    BulkCommand.DISCARD: operate.discard,
    BulkCommand.CANCEL: operate.cancel,
    BulkCommand.PAUSE: operate.pause,
}


# -- from round to round


def room(state: BulkState, *, rate: float, limit: int | None, canary: Canary | None) -> int:
    """Return how many tasks may be picked for the next round."""
    if state.looked_through:
        return 0
    left = [CHUNK_LIMIT, max(1, int(rate * ROUND_SECONDS))]
    if limit is not None:
        left.append(limit - state.counts.taken)
    if canary is not None and state.step < len(canary.steps):
        left.append(canary.steps[state.step] - state.in_step)
    elif canary is not None:
        left.append(canary.window - len(state.watched))
    return max(0, min(left))


def note_ends(state: BulkState, rests: Mapping[str, Status | None], *, now: float) -> BulkState:
    """Note which of the watched tasks have come to rest, and how; None: the record is gone."""
    failed = sum(status in SUSPENDED for status in rests.values())
    counts = state.counts
    counts = replace(
        counts, failed=counts.failed + failed, ended=counts.ended + len(rests) - failed
    )
    watched = tuple(task_id for task_id in state.watched if task_id not in rests)
    waits_since = state.waits_since
    if not watched:
        waits_since = None
    elif rests or waits_since is None:
        waits_since = now
    return replace(state, counts=counts, watched=watched, waits_since=waits_since)


def judge_canary(state: BulkState, canary: Canary, *, now: float) -> BulkState:
    """Go on to the next step when all of this one have come to rest, or halt."""
    counts = state.counts
    if canary.stop_at.broken_by(counts.failed, counts.done):
        return replace(state, halted=f"{counts.failed} of {counts.done} have failed again")
    ahead = state.step < len(canary.steps)
    full = ahead and (state.looked_through or state.in_step >= canary.steps[state.step])
    if ahead and full and not state.watched and not state.pending:
        return replace(state, step=state.step + 1, in_step=0, waits_since=None)
    blocked = full or len(state.watched) >= canary.window
    since = state.waits_since
    if blocked and since is not None and now - since > canary.wait_seconds:
        said = f"{len(state.watched)} have not come to rest in {canary.wait_seconds:g} s"
        return replace(state, halted=said)
    return state


def is_over(state: BulkState, canary: Canary | None, *, now: float) -> bool:
    """The ends of the last ones are waited for, but not for ever."""
    if state.halted:
        return True
    if not state.looked_through or state.pending:
        return False
    since = state.waits_since
    if canary is None or not state.watched:
        return True
    return since is not None and now - since > canary.wait_seconds


def finish_round(
    state: BulkState, counts: BulkCounts, going: Sequence[str], rest: Sequence[Picked]
) -> BulkState:
    """Return the state after a round: its counts, the tasks it set going, and those it did not get
    to."""
    return replace(
        state,
        counts=add_counts(state.counts, counts),
        pending=tuple(rest),
        watched=(*state.watched, *going),
        in_step=state.in_step + counts.done,
    )


def count_missing(state: BulkState, limit: int | None) -> BulkState:
    """Return the final state: a task that matched at first and was not found any more has
    changed."""
    taken = state.counts.taken
    if not state.looked_through or state.more or state.halted or state.pending:
        return state
    if limit is not None and taken >= limit:
        return state
    missed = BulkCounts(changed=max(0, state.matching - taken))
    return replace(state, counts=add_counts(state.counts, missed))


def add_counts(one: BulkCounts, two: BulkCounts) -> BulkCounts:
    refused = dict(one.refused)
    for code, number in two.refused.items():
        refused[code] = refused.get(code, 0) + number
    return BulkCounts(
        done=one.done + two.done,
        refused=refused,
        changed=one.changed + two.changed,
        gone=one.gone + two.gone,
        ended=one.ended + two.ended,
        failed=one.failed + two.failed,
    )
