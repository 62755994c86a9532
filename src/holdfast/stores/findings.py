"""The findings that the doctors of several stores report, each worded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.domain.plan.plan import MemberState, Plan
from holdfast.domain.task.placement import RUNNABLE, STOPPED, fits
from holdfast.domain.task.task import Task
from holdfast.domain.trigger.trigger import LEASE, Trigger


def wrong_status(task: Task) -> str:
    """Return what is wrong with a status that does not fit the place, or an empty text."""
    return "" if fits(task.status, task.place) else f"the task is {task.place} and {task.status}"


def wrong_index(task: Task, index: str, *, is_in: bool) -> str:
    return f"the task is {task.place} {'and in' if is_in else 'but not in'} {index}"


def broken_rules(task: Task) -> Iterator[tuple[str, str]]:
    """Yield each invariant that a record breaks by itself, with a message."""
    if task.pause_requested and task.place in STOPPED:
        yield "I14", "the task is stopped, but a pause is still requested"
    # The last failure wrote both numbers, so a limit that was lowered since then does not matter.
    if 0 < task.retry_max <= task.failures and task.place in RUNNABLE:
        yield "I16", f"the task runs again after failure {task.failures} of {task.retry_max}"


def wrong_stages(mismatch: str) -> str:
    return f"the task's record {mismatch}"


def wrong_stage_number(stored: int, completed: int) -> str:
    return f"{stored} stages are stored, but {completed} were completed"


def wrong_checkpoint(stage: int | str, task: Task) -> str:
    return f"the checkpoint is at stage {stage}, the record at {task.last_completed}"


def wrong_count(what: str, counted: int, there: int) -> str:
    return f"{what} is counted as {counted}, but there are {there}"


def wrong_waves(plan: Plan, members: Sequence[Mapping[MemberState, int]]) -> Iterator[str]:
    """Yield a message for each wave whose counts are not those of its members."""
    for wave, (counts, there) in enumerate(zip(plan.counts, members, strict=True)):
        stored, counted = _plain(counts), _plain(there)
        if stored != counted:
            yield f"plan {plan.id} counts {stored} in wave {wave}, but its members are {counted}"


def missing_fire_time(trigger: Trigger) -> str:
    """Return what is wrong with a trigger that waits for no time, or an empty text."""
    waits = trigger.status in LEASE and trigger.trigger_at is None
    return f"trigger {trigger.id} is {trigger.status}, but has no fire time" if waits else ""


def _plain(counts: Mapping[MemberState, int]) -> dict[str, int]:
    return {str(state): number for state, number in sorted(counts.items()) if number}
