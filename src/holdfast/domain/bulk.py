"""A bulk action: one command for all tasks that a filter matches, and how far it has got.

The commands are those of an operator, and each acts only on tasks in certain statuses. A canary
starts with small steps, and waits for the outcome of each step before it takes more tasks.
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

ROUND_SECONDS = 5.0  # of work between two commits of the progress
CHUNK_LIMIT = 500  # tasks of a round: their ids must fit into the data of a checkpoint
WINDOW_LIMIT = 500  # tasks that took the command and have not stopped again
LOWEST_RATE, HIGHEST_RATE = 1.0, 1000.0  # tasks a second
STEPS_LIMIT = 10


class BulkCommand(StrEnum):
    """A command that a bulk action sends to each of its tasks."""

    RESUME = "resume"  # a suspended or paused task goes on, forward or in its rollback
    RETRY = "retry"
    DISCARD = "discard"
    CANCEL = "cancel"
    PAUSE = "pause"
    ROLLBACK = "rollback"


WATCHED = frozenset({BulkCommand.RESUME, BulkCommand.RETRY})  # their tasks can fail again
OF_WHAT_MOVES = frozenset({BulkCommand.CANCEL, BulkCommand.PAUSE})  # stop a task in any version


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a careful start: each step waits until the tasks of the one before have stopped.
    The action halts when more than ``stop_at`` of the tasks that took the command failed again."""

    steps: tuple[int, ...] = (1, 10)
    stop_at: HaltRule = FailureRate(0.2)
    wait_seconds: float = 600.0  # for the tasks of a step to stop
    window: int = WINDOW_LIMIT  # after the steps: at most so many tasks that still run


class BulkCounts(msgspec.Struct, frozen=True, kw_only=True):
    done: int = 0
    refused: Mapping[str, int] = {}  # by the code of the error
    changed: int = 0  # tasks that changed since they were counted, and were left alone
    gone: int = 0
    ended: int = 0  # of a canary: tasks that stopped without a failure
    failed: int = 0  # of a canary: tasks that failed again

    @property
    def taken(self) -> int:
        return self.done + sum(self.refused.values()) + self.changed + self.gone


class PickedTask(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    version: int  # most commands act on the task in this version or not at all


class BulkState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a bulk action, kept from round to round."""

    matching: int = 0  # tasks, at the start
    more: bool = False  # more tasks matched than were counted
    cursor: str | None = None
    looked_through: bool = False
    pending: tuple[PickedTask, ...] = ()  # tasks that were picked and not yet acted on, when saved
    watched: tuple[str, ...] = ()  # tasks of a canary that took the command and still run
    step: int = 0  # the step of a canary; past the last step: all other tasks
    in_step: int = 0  # tasks that took the command in this step
    waits_since: float | None = None  # when it began to wait for the watched tasks
    counts: BulkCounts = BulkCounts()
    halted: str = ""  # the reason of a halt


def legal_in(command: BulkCommand) -> tuple[Status, ...]:
    """Return the statuses in which the command can act."""
    return tuple(status for status in Status if _acts_in(command, status))


def meant_in(command: BulkCommand) -> tuple[Status, ...]:
    """Return the statuses that are meant where none is named: all legal ones but settled."""
    return tuple(status for status in legal_in(command) if status not in SETTLED)


def _acts_in(command: BulkCommand, status: Status) -> bool:
    if command is BulkCommand.RESUME:
        return status in SUSPENDED or status is Status.PAUSED
    return can(status, Command(command))


def check_statuses(command: BulkCommand, statuses: Sequence[Status]) -> tuple[Status, ...]:
    legal = legal_in(command)
    for status in statuses:
        if status not in legal:
            raise InvalidInput(f"{command} is not for {status} tasks, but for {', '.join(legal)}")
    return tuple(dict.fromkeys(statuses)) or meant_in(command)


def check_rate(rate: float) -> float:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InvalidInput(
            f"rate must be between {LOWEST_RATE:g} and {HIGHEST_RATE:g}, not {rate!r}"
        )
    return float(rate)


def check_canary(command: BulkCommand, canary: Canary) -> Canary:
    if command not in WATCHED:
        raise InvalidInput(f"a canary is for {' and '.join(sorted(WATCHED))}, not for {command}")
    steps, rule = canary.steps, canary.stop_at
    if not 1 <= len(steps) <= STEPS_LIMIT or not all(1 <= n <= WINDOW_LIMIT for n in steps):
        allowed = f"1 to {STEPS_LIMIT} numbers, each from 1 to {WINDOW_LIMIT}"
        raise InvalidInput(f"steps must be {allowed}, not {steps}")
    if not 1 <= canary.window <= WINDOW_LIMIT:
        raise InvalidInput(f"window must be 1 to {WINDOW_LIMIT} tasks, not {canary.window}")
    if not canary.wait_seconds > 0:
        raise InvalidInput(f"wait_seconds must be above zero, not {canary.wait_seconds}")
    limit = rule.rate if isinstance(rule, FailureRate) else rule.count
    if limit < 0 or (isinstance(rule, FailureRate) and not limit < 1):
        raise InvalidInput(f"stop_at must be a share below 1 or a number from 0, not {limit}")
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
        going = operate.resume_suspended(task, ask, force=force)
    elif task.status is Status.PAUSED:
        going = operate.resume(task, ask, force=force)
    else:
        raise IllegalTransition(task.status, Command.RESUME, task.legal)
    needs_checkpoint = from_checkpoint and task.continues_from_checkpoint
    return replace(going, not_without_checkpoint=needs_checkpoint)


def is_requested(command: BulkCommand, task: Task) -> bool:
    """Return whether the request is on the task already, where its holder will see it."""
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
    """Note which watched tasks have stopped, and in which status; None: the record is gone."""
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
    """Go on to the next step when all tasks of this step have stopped, or halt."""
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
        late = f"that have neither settled nor parked within {canary.wait_seconds:g} s"
        why = f"tasks {late}: {len(state.watched)}"
        return replace(state, halted=why)
    return state


def is_over(state: BulkState, canary: Canary | None, *, now: float) -> bool:
    """Return whether the action is over; it waits for its last tasks, but not for ever."""
    if state.halted:
        return True
    if not state.looked_through or state.pending:
        return False
    since = state.waits_since
    if canary is None or not state.watched:
        return True
    return since is not None and now - since > canary.wait_seconds


def finish_round(
    state: BulkState, counts: BulkCounts, going: Sequence[str], rest: Sequence[PickedTask]
) -> BulkState:
    """Return the state after a round: ``going`` took the command, ``rest`` was not reached."""
    return replace(
        state,
        counts=add_counts(state.counts, counts),
        pending=tuple(rest),
        watched=(*state.watched, *going),
        in_step=state.in_step + counts.done,
    )


def count_missing(state: BulkState, limit: int | None) -> BulkState:
    """Return the final state: tasks that matched at first and no longer match have changed."""
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
